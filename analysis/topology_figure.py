"""A run's topology as a figure: roles, rates, delays, and where queueing is expected."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import networkx as nx
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from pydantic import ValidationError

from analysis.drawing import WIDTH_IN, new_figure
from analysis.style import cca_looks
from lab.record import Run
from lab.scenario import Scenario, build_graph
from topologies.errors import UsageError
from topologies.graph import role
from topologies.layout import layout
from topologies.units import format_rate, format_size, format_time

__all__ = ["topology_figure"]

LINK, BOTTLENECK = "#9A9A9A", "#D55E00"
APART = 2.2
"""How much further apart switches are than in the layout."""
LABELLED_LINKS = 24
NAMED_NODES = 40
"""Of one role: the names of more would hide one another."""
LOW_IN, HIGH_IN = 2.6, 9.0

Place = tuple[float, float]


def topology_figure(run: Run) -> Figure | None:
    """Return the picture; None when the topology can't be made again, as when it came from a file that is gone."""
    try:
        graph = build_graph(Scenario.model_validate(run.scenario))
    except (UsageError, ValidationError):
        return None
    places = _wider(graph, layout(graph))
    figure = new_figure(_height_in(places))
    axes = figure.subplots()
    axes.set_axis_off()
    links = [(u, v) for u, v in graph.edges if u < v]
    marked = [(u, v) for u, v in links if graph.edges[u, v]["bottleneck"] or graph.edges[v, u]["bottleneck"]]
    worded = next((some for some in (links, marked) if len(some) <= LABELLED_LINKS), [])
    for u, v in links:
        _draw_link(axes, graph, places, (u, v), (u, v) in worded)
    _draw_nodes(axes, graph, places, {flow["src"]: flow["cca"] for flow in run.scenario["flows"]})
    axes.margins(0.14, 0.16)
    figure.legend(handles=_entries(), loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(f"Topology: {run.scenario['topology']}, {_flows_words(run)}", fontsize="medium")
    return figure


def _wider(graph: nx.DiGraph, places: Mapping[str, Place]) -> dict[str, Place]:
    """Return the places with more room between switches, for words; hosts stay where they are beside theirs."""
    wide = {node: (APART * x, APART * y) for node, (x, y) in places.items() if role(graph, node) == "switch"}
    for node, (x, y) in places.items():
        if node not in wide:
            (switch,) = graph.successors(node)
            (old_x, old_y), (new_x, new_y) = places[switch], wide[switch]
            wide[node] = (new_x + x - old_x, new_y + y - old_y)
    return wide


def _flows_words(run: Run) -> str:
    count = len(run.scenario["flows"])
    return "one flow" if count == 1 else f"{count} flows"


def _height_in(places: Mapping[str, Place]) -> float:
    """Return a height that suits how wide and high the nodes lie."""
    width, height = (max(values) - min(values) for values in zip(*places.values(), strict=True))
    return float(min(HIGH_IN, max(LOW_IN, WIDTH_IN * height / max(width, 0.1) + 1.6)))


def _draw_link(axes: Axes, graph: nx.DiGraph, places: Mapping[str, Place], ends: tuple[str, str], wordy: bool) -> None:
    """Draw one link, an arrow on it for each direction in which it is a bottleneck, and what it says."""
    (x1, y1), (x2, y2) = (places[node] for node in ends)
    marked = [pair for pair in (ends, ends[::-1]) if graph.edges[pair]["bottleneck"]]
    axes.plot([x1, x2], [y1, y2], color=BOTTLENECK if marked else LINK, linewidth=2.6 if marked else 1.1, zorder=1)
    for u, v in marked:
        (ux, uy), (vx, vy) = places[u], places[v]
        tip, tail = ((ux + share * (vx - ux), uy + share * (vy - uy)) for share in (0.72, 0.68))
        arrow = {"arrowstyle": "-|>", "color": BOTTLENECK, "linewidth": 2.6, "mutation_scale": 18}
        axes.annotate("", tip, tail, arrowprops=arrow, zorder=2)
    if wordy and (words := _link_words(graph, ends)):
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8}
        look: dict[str, Any] = {
            "ha": "center",
            "va": "bottom" if marked else "center",
            "fontsize": 7,
            "bbox": box,
            "zorder": 4,
        }
        lift = (0, 5) if marked else (0, 0)
        axes.annotate(words, ((x1 + x2) / 2, (y1 + y2) / 2), lift, textcoords="offset points", **look)


def _link_words(graph: nx.DiGraph, ends: tuple[str, str]) -> str:
    """Return rate and queue, delay and loss of a link, both directions where they differ."""
    there, back = (_edge_words(graph.edges[pair]) for pair in (ends, ends[::-1]))
    if there == back or not (there and back):
        return there or back
    return f"→ {there}\n← {back}"


def _edge_words(data: Mapping[str, object]) -> str:
    found = [f"{format_rate(data['rate_mbit'])}"] if data["rate_mbit"] else []  # type: ignore[arg-type]
    if data["buffer_bytes"]:
        found.append(f"{format_size(data['buffer_bytes'])} {data['aqm']}")  # type: ignore[arg-type]
    if data["delay_ms"]:
        found.append(format_time(data["delay_ms"]))  # type: ignore[arg-type]
    if data["loss_pct"]:
        found.append(f"{data['loss_pct']:g} % lost")
    elif data["gemodel"]:
        found.append("bursts lost")
    return ", ".join(found[:2]) + ("\n" if len(found) > 2 else "") + ", ".join(found[2:])


def _draw_nodes(axes: Axes, graph: nx.DiGraph, places: Mapping[str, Place], ccas: Mapping[str, str]) -> None:
    """Draw each node, senders in the colour of their algorithm, with its name beside it."""
    looks = cca_looks(list(ccas.values()))
    crowd = Counter(role(graph, node) for node in graph)
    for node, (x, y) in places.items():
        kind = role(graph, node)
        colour = {"switch": "#4D4D4D", "receiver": "white"}.get(kind, "#CCCCCC")
        if node in ccas:
            colour = looks[ccas[node]][0]
        marker, size = ("s", 11) if kind == "switch" else ("o", 9)
        axes.plot(x, y, marker, markersize=size, markerfacecolor=colour, markeredgecolor="black", zorder=3)
        if crowd[kind] > NAMED_NODES:
            continue
        where = {"sender": ((-9, 0), "right", "center"), "receiver": ((9, 0), "left", "center")}
        offset, horizontal, vertical = where.get(kind, ((0, 9), "center", "bottom"))
        words = f"{node} {ccas[node]}" if node in ccas else node
        axes.annotate(
            words, (x, y), offset, textcoords="offset points", ha=horizontal, va=vertical, fontsize=8, zorder=5
        )


def _entries() -> list[Line2D]:
    look = {"linestyle": "", "markeredgecolor": "black"}
    return [
        Line2D([], [], marker="o", markerfacecolor="#CCCCCC", label="sender", **look),  # type: ignore[arg-type]
        Line2D([], [], marker="o", markerfacecolor="white", label="receiver", **look),  # type: ignore[arg-type]
        Line2D([], [], marker="s", markerfacecolor="#4D4D4D", label="switch", **look),  # type: ignore[arg-type]
        Line2D([], [], color=BOTTLENECK, linewidth=2.6, label="bottleneck"),
    ]
