"""A run's topology as an SVG: the flows' paths, the bottlenecks marked. Colours come from the page around it."""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from lab.record import Run
from topologies.units import format_size

__all__ = ["topology_svg"]

COLUMN = 170
ROW = 44
NODE = (74, 24)
LABEL = 20

Place = tuple[float, float]


def topology_svg(run: Run) -> str:
    """Return the SVG of the nodes and links that the flows use; empty when run.json knows no path."""
    paths = [list(map(str, path.get("nodes") or ())) for path in run.paths.values()]
    places = _places([path for path in paths if path])
    if not places:
        return ""
    links = dict.fromkeys(link for path in paths for link in pairwise(path))
    queues = {name: queue for name, queue in run.queue_settings.items() if queue.get("bottleneck")}
    width = max(x for x, _ in places.values()) + NODE[0]
    height = max(y for _, y in places.values()) + NODE[1] + LABEL
    parts = [_link(places, link, queues.get("->".join(link))) for link in links]
    parts += [_node(name, place) for name, place in places.items()]
    size = f'viewBox="{-NODE[0] / 2 - 2:g} {-NODE[1]:g} {width + 4:g} {height:g}" style="max-width:{width * 1.3:g}px"'
    return f'<svg class="topology" role="img" aria-label="Topology" {size}>{"".join(parts)}</svg>'


def _places(paths: Sequence[Sequence[str]]) -> dict[str, Place]:
    """Return the middle of each node: a column for each step of the paths, ends at the sides, rows centred."""
    columns: dict[str, int] = {}
    for path in paths:
        for index, node in enumerate(path):
            columns.setdefault(node, index)
    last = max(columns.values(), default=0)
    for path in paths:
        if columns[path[-1]] > 0:
            columns[path[-1]] = last
    rows: dict[int, list[str]] = {}
    for node, column in columns.items():
        rows.setdefault(column, []).append(node)
    tallest = max(map(len, rows.values()), default=0)
    return {
        node: (column * COLUMN, ROW * (row + (tallest - len(nodes)) / 2))
        for column, nodes in rows.items()
        for row, node in enumerate(nodes)
    }


def _link(places: Mapping[str, Place], link: tuple[str, str], queue: Mapping[str, Any] | None) -> str:
    (x1, y1), (x2, y2) = places[link[0]], places[link[1]]
    line = f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" class="{"bottleneck" if queue else "link"}"/>'
    if queue is None:
        return line
    words = [f"{queue['rate_mbit']:g} Mbit/s"] if queue.get("rate_mbit") else []
    words += [f"{format_size(queue['buffer_bytes'])} {queue.get('aqm') or ''}"] if queue.get("buffer_bytes") else []
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    texts = [
        f'<text x="{x:g}" y="{y + (-8 if index == 0 else 18):g}">{escape(word)}</text>'
        for index, word in enumerate(words)
    ]
    return line + "".join(texts)


def _node(name: str, place: Place) -> str:
    (x, y), (width, height) = place, NODE
    box = f'<rect x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width}" height="{height}" rx="5"/>'
    return f'{box}<text x="{x:g}" y="{y + 4:g}">{escape(name)}</text>'
