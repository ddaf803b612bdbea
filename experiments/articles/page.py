"""The outcome in words: ``page.md`` with what was measured put in; as Markdown, as one HTML page, on the terminal."""

from __future__ import annotations

import base64
import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from analysis.drawing import save_figures
from experiments.articles import figures
from experiments.articles.carry_out import COMPLETE, digest
from experiments.articles.measures import NOISE, SETTLED_S, Result
from experiments.articles.trials import NDM, TESTS, forms_of, trial_named
from experiments.articles.verdicts import (
    EQUAL,
    NEEDED,
    NO_VERDICT,
    NOT_REPRODUCED,
    REPRODUCED,
    Control,
    Estimate,
    Samples,
    Verdict,
    articles,
    estimate,
    samples_of,
)
from experiments.markdown import markdown_table
from topologies.errors import UsageError

TEMPLATE = Path(__file__).with_name("page.md")
TITLE = "The published claims about NDM-TCP, tested"
FORM_HEADS = {"published": "as published", "link": "on a link", "reordering": "on a link that reorders"}
SIGNS = {REPRODUCED: "✓", NOT_REPRODUCED: "✗", NO_VERDICT: "?"}
CONTROL_WORDS = {True: "right", False: "**wrong**", None: "not run"}
NOT_RUN = "Not run."


# ---- numbers in words


def number(value: float) -> str:
    """Return three significant digits, in full.

    Examples
    --------
    >>> number(0.4567), number(12345.6), number(3.0)
    ('0.457', '12,300', '3')
    """
    if not np.isfinite(value):
        return "∞"
    digits = float(f"{value:.3g}")
    return f"{digits:,.0f}" if abs(digits) >= 100 else f"{digits:g}"


def interval(found: Estimate, factor: float = 1.0) -> str:
    """Return an estimate with its interval.

    Examples
    --------
    >>> interval(Estimate(0.5, 0.4, 0.6, 20)), interval(Estimate(72, 72, 72, 20))
    ('0.5 [0.4, 0.6]', '72')
    """
    if found.value is None:
        return "–"
    if found.low is None or found.high is None or found.low == found.high:
        return number(found.value * factor)
    return f"{number(found.value * factor)} [{number(found.low * factor)}, {number(found.high * factor)}]"


def percent(share: float | None) -> str:
    """Return a share as a percentage, "<1 %" for a small one that isn't 0."""
    if share is None:
        return "–"
    return f"{share:.0%}".replace("%", " %") if share == 0 or share >= 0.005 else "<1 %"


def published(values: Sequence[float] | None) -> str:
    """Return the ratio of published figures.

    Examples
    --------
    >>> published([43, 94]), published([11, 32, 8, 86]), published(None)
    ('0.457', '3.7', '–')
    """
    if not values:
        return "–"
    ratio = values[0] / values[1]
    return number(ratio if len(values) == 2 else ratio / (values[2] / values[3]))


def cell(verdict: Verdict | None) -> str:
    """Return a verdict's sign with the estimate, or with why there is none."""
    if verdict is None:
        return "–"
    sign = SIGNS[verdict.word]
    return f"{sign} {verdict.why if verdict.word == NO_VERDICT else interval(verdict.estimate)}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose cells are text."""
    return markdown_table(head, rows, words=len(head)).rstrip()


# ---- what the page is filled with


def filled(results: Sequence[Result], found: Sequence[Verdict], checks: Sequence[Control], directory: Path) -> str:
    """Return the page in Markdown; its figures go to ``directory``."""
    samples = samples_of(results)
    values = {
        "runs": f"{len(results):,}",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "needed": NEEDED,
        "equal": percent(EQUAL),
        "noise": NOISE,
        "in_short": _in_short(found),
        "highlights": _highlights(found),
        "controls": table(
            ["what is expected", "what came", ""],
            [[check.said, check.found, CONTROL_WORDS[check.right]] for check in checks],
        ),
        "torture_spans": _spans(samples, "torture-published") or NOT_RUN,
        "torture_luck": _luck(samples, "torture-published"),
        "constrained_rates": _rates(samples) or NOT_RUN,
        "constrained_early": _early(samples, "constrained-published") or NOT_RUN,
        "loopback_probes": _probes(samples, "loopback-published"),
        "clean_probes": _probes(samples, "clean-published"),
        "learning": _learning(samples),
        "table_learning": _learning_table(samples),
        "entropy": "\n".join(f"- `{profile}`: {_tells_apart(samples, profile)}" for profile in NDM),
        "table_entropy": _entropy_table(samples),
        "table_others": _others_table(samples),
        "table_window": _window_table(samples),
        "endings": _endings(results),
        **_again(results),
        **{f"claims_{name}": _claims(found, name) for name in articles()["articles"]},
        **_figures(results, directory),
    }
    return TEMPLATE.read_text(encoding="utf-8").format_map(values)


def _in_short(found: Sequence[Verdict]) -> str:
    """Return how many claims have which verdict, by form and profile."""
    forms = {"published": "as published, on the loopback device", "link": "over a link, or in numbers", "": "anywhere"}
    rows = []
    for form, words in forms.items():
        for profile in NDM:
            counts = Counter(each.word for each in found if (each.form, each.profile) == (form, profile))
            if counts:
                rows.append([words, f"`{profile}`", *(str(counts[word]) for word in SIGNS)])
    return table(["where", "algorithm", *SIGNS], rows) if rows else NOT_RUN


def _highlights(found: Sequence[Verdict]) -> str:
    """Return, in a line each, the claims of the published algorithm that hold as published but not over a link."""
    own = {(each.claim["id"], each.form): each for each in found if each.profile == NDM[0]}
    lines = [
        f"- {each.claim['id']}: {each.claim['said']}. As published {interval(each.estimate)}; over a link "
        f"{interval(other.estimate)}."
        for (claim, form), each in own.items()
        if form == "published" and each.word == REPRODUCED and (other := own.get((claim, "link"))) is not None
        if other.word == NOT_REPRODUCED
    ]
    return "Claims that hold on the loopback device and not over a link:\n\n" + "\n".join(lines) if lines else ""


def _claims(found: Sequence[Verdict], article: str) -> str:
    """Return an article's claims, a table for each of its tests."""
    own = [each for each in found if each.claim["article"] == article]
    tests = dict.fromkeys(each.claim["test"] for each in own)
    return "\n\n".join(_claims_table([each for each in own if each.claim["test"] == test]) for test in tests) or NOT_RUN


def _claims_table(found: Sequence[Verdict]) -> str:
    have = {(each.form, each.profile) for each in found}
    shown = [key for key in product((*FORM_HEADS, ""), NDM) if key in have]
    shown.sort(key=lambda key: NDM.index(key[1]))
    chance = any(each.by_chance is not None for each in found)
    head = ["claim", "published", *(["by chance", "by luck"] if chance else [])]
    head += [
        f"`{profile}`{', ' + FORM_HEADS[form] if len(shown) > 2 else ''}" if form else "" for form, profile in shown
    ]
    rows = []
    for claim in {each.claim["id"]: each.claim for each in found}.values():
        own = {(each.form, each.profile): each for each in found if each.claim["id"] == claim["id"]}
        first = own.get(("published", NDM[0]))
        chances = [percent(first.by_chance), percent(first.by_luck)] if chance and first else ["–", "–"] * chance
        said = f"**{claim['id']}** {claim['said']}"
        rows.append([said, published(claim["published"]), *chances, *(cell(own.get(key)) for key in shown)])
    return table(head, rows)


def _figures(results: Sequence[Result], directory: Path) -> dict[str, str]:
    """Draw every figure and return the Markdown that shows it."""
    drawn = {
        **{f"figure_{test}": figures.spread_figure(test, results) for test in figures.PUBLISHED_ROW},
        "figure_learning": figures.learning_figure(results),
        "figure_entropy": figures.entropy_figure(results),
        "figure_others": figures.others_figure(results),
        "figure_window": figures.window_figure(results),
    }
    save_figures({each.name: each.figure for each in drawn.values() if each}, directory, ("png",))
    return {key: f"![{each.caption}]({each.name}.png)" if each else NOT_RUN for key, each in drawn.items()}


def _spans(samples: Samples, trial: str) -> str:
    """Return from what to what the retransmissions of single runs reach."""
    return ", ".join(
        f"{variant} {min(values):.0f} to {max(values):.0f}"
        for variant in trial_named(trial).variants
        if (values := list(samples.get((trial, variant, "retransmissions"), {}).values()))
    )


def _luck(samples: Samples, trial: str) -> str:
    """Return how often the same seed gives NDM-TCP and CUBIC the same figure."""
    a, b = (samples.get((trial, variant, "retransmissions"), {}) for variant in (NDM[0], "cubic"))
    seeds = set(a) & set(b)
    if not seeds:
        return ""
    same = float(np.mean([a[seed] == b[seed] for seed in seeds]))
    return (
        f"The same seed is the same luck for all: in {percent(same)} of the seeds NDM-TCP and CUBIC retransmit exactly "
        "as often. The article's table compares three draws of luck."
    )


def _early(samples: Samples, trial: str) -> str:
    """Return the first half's share of an algorithm's retransmissions."""
    parts = []
    for variant in trial_named(trial).variants:
        names = ("retransmissions_early", "retransmissions")
        share = estimate(samples, [(trial, variant, name) for name in names])
        if share.value is not None:
            parts.append(f"{variant} {percent(share.value)}")
    return ", ".join(parts)


def _rates(samples: Samples) -> str:
    """Return, for each form, how often each algorithm retransmits per megabyte."""
    forms = []
    for form, trial in forms_of("constrained").items():
        parts = [
            f"{variant} {interval(found)}"
            for variant in trial_named(trial).variants
            if (found := estimate(samples, [(trial, variant, "retransmissions_per_mb")])).value is not None
        ]
        forms += [f"{FORM_HEADS[form]} {', '.join(parts)}"] if parts else []
    return "; ".join(forms)


def _probes(samples: Samples, trial: str) -> str:
    """Return what the retransmissions over an unimpaired loopback device are."""
    totals = {
        name: sum(sum(samples.get((trial, variant, name), {}).values()) for variant in trial_named(trial).variants)
        for name in ("retransmissions", "unneeded", "loss_probes", "dropped", "dropped_by_receiver")
    }
    if not any(key[0] == trial for key in samples):
        return NOT_RUN
    return (
        f"All runs together retransmitted {totals['retransmissions']:,.0f} times. Queues dropped "
        f"{totals['dropped']:,.0f} packets, and the receiver {totals['dropped_by_receiver']:,.0f}. To "
        f"{totals['unneeded']:,.0f} retransmissions the receiver answered that it had the segment already (DSACK, "
        f"RFC 2883); {totals['loss_probes']:,.0f} were probes that TCP sends when an acknowledgement is late (RFC "
        "8985). Where nothing is lost, such a table counts how busy the machine was, not congestion control."
    )


def _learning(samples: Samples) -> str:
    """Return how the published profile's retransmissions per megabyte move once slow start is over, and CUBIC's."""
    parts = []
    for form, trial in forms_of("constrained").items():
        ours, others = (_settled(samples, trial, variant) for variant in (NDM[0], "cubic"))
        if ours.value is not None and others.value is not None:
            parts.append(f"{FORM_HEADS[form]} {interval(ours)}, CUBIC {interval(others)}")
    return "; ".join(parts) or "not run"


def _settled(samples: Samples, trial: str, variant: str) -> Estimate:
    return estimate(samples, [(trial, variant, f"retransmissions_per_mb_{part}") for part in ("late", "settled")])


def _learning_table(samples: Samples) -> str:
    rows = [
        [
            FORM_HEADS[form],
            variant,
            interval(estimate(samples, [(trial, variant, f"retransmissions_{half}") for half in ("late", "early")])),
            interval(_settled(samples, trial, variant)),
        ]
        for form, trial in forms_of("constrained").items()
        for variant in trial_named(trial).variants
    ]
    head = ["where", "algorithm", "last 10 s ÷ first 10 s", f"per megabyte, 10 to 20 s ÷ {SETTLED_S:g} to 10 s"]
    return table(head, rows)


def _tells_apart(samples: Samples, profile: str) -> str:
    """Return whether jitter and a queue lie on different sides of the threshold."""
    jitter, queue = (
        estimate(samples, [(trial, profile, "entropy")]).value for trial in ("entropy-jitter", "entropy-queue")
    )
    if jitter is None or queue is None:
        return "not run."
    means = f"mean entropy {jitter:.0f} under jitter, {queue:.0f} in a queue"
    if (jitter >= NOISE) != (queue >= NOISE):
        return f"yes; {means}."
    apart = "" if abs(jitter - queue) < NOISE / 2 else ", though they differ"
    return f"no, both lie {'above' if queue >= NOISE else 'below'} it{apart}; {means}."


def _entropy_table(samples: Samples) -> str:
    def words(trial: str, profile: str) -> str:
        noise = estimate(samples, [(trial, profile, "noise_share")]).value
        return f"{interval(estimate(samples, [(trial, profile, 'entropy')]))}; {percent(noise)}"

    rows = [[path, *(words(trial, profile) for profile in NDM)] for trial, path in figures.PATHS.items()]
    return table(["path", *(f"`{profile}`: mean; taken for noise" for profile in NDM)], rows)


def _others_table(samples: Samples) -> str:
    rows = []
    for victim in ("cubic", "reno"):
        for rival in (*NDM, victim):
            mix, flow = f"{rival},{victim}", f"{victim}-{2 if rival == victim else 1}"
            measures = [("others", mix, f"goodput_mbit {flow}"), ("others", victim, "goodput_mbit")]
            jain = estimate(samples, [("others", mix, "jain")])
            rows.append([f"{rival} beside {victim}", interval(_harm(estimate(samples, measures))), interval(jain)])
    return table(["pair", "harm to the second", "Jain's index"], rows)


def _harm(left: Estimate) -> Estimate:
    """Return 1 minus an estimate, its bounds exchanged."""
    if left.value is None or left.low is None or left.high is None:
        return left
    return Estimate(1 - left.value, 1 - left.high, 1 - left.low, left.n)


def _window_table(samples: Samples) -> str:
    trial = "loopback-published"
    rows = [
        [
            variant,
            interval(estimate(samples, [(trial, variant, "cwnd_per_sent_byte")])),
            interval(estimate(samples, [(trial, variant, "cwnd_max_bytes")]), 1e-6),
        ]
        for variant in trial_named(trial).variants
    ]
    return table(["algorithm", "window ÷ bytes sent, after 1 s", "largest window, MB"], rows)


def _endings(results: Sequence[Result]) -> str:
    """Return what did not end well, or not validly: counted, and shown."""
    bad = [result for result in results if result["status"] != COMPLETE]
    doubtful = [result for result in results if result.get("verdict", {}).get("status", "valid") != "valid"]
    said = (
        f"{len(results):,} runs; {len(results) - len(bad):,} complete. Of those on a link {len(doubtful)} have a "
        "verdict other than valid (a loss outside its 99 % interval is one, which one run in a hundred has by chance); "
        "they count above. Runs that did not end as they should have no part in any figure."
    )
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for each in bad:
        reasons.setdefault((each["trial"], each["variant"], each["status"]), []).append(each["error"])
    for each in doubtful:
        key = (each["trial"], each["variant"], each["verdict"]["status"])
        reasons.setdefault(key, []).append("; ".join(each["verdict"]["reasons"]))
    rows = [[str(len(all_of)), *words, all_of[0]] for words, all_of in sorted(reasons.items())]
    return f"{said}\n\n{table(['runs', 'trial', 'flows', 'how', 'why, of the first'], rows)}" if rows else said


def _again(results: Sequence[Result]) -> dict[str, str]:
    """Return the command, and what was used."""
    seeds = sorted({result["seed"] for result in results})
    commits = sorted({(result.get("commit") or "unknown")[:12] for result in results})
    tests = tuple(dict.fromkeys(trial_named(result["trial"]).test for result in results))
    some = "" if set(tests) == set(TESTS) else f" {' '.join(tests)}"
    return {
        "command": f"python -m experiments.articles{some} --page docs/articles.md",
        "provenance": (
            f"Seeds {seeds[0]} to {seeds[-1]}, commit {', '.join(commits)}, in Fairbed's lab kernel. All but "
            "`loopback` and `clean` as published, and `footprint`, runs on the virtual clock: the same seeds give the "
            f"same results, byte for byte, on one installation. Their digest: `{digest(results)}`."
        ),
    }


# ---- where it goes


def write_markdown(path: Path, results: Sequence[Result], found: Sequence[Verdict], checks: Sequence[Control]) -> Path:
    """Write the page in Markdown, its figures as PNG beside it, and return its path."""
    _write(path, filled(results, found, checks, path.parent))
    return path


def write_page(path: Path, results: Sequence[Result], found: Sequence[Verdict], checks: Sequence[Control]) -> Path:
    """Write one HTML file with everything in it, and return its path."""
    from markdown_it import MarkdownIt

    from analysis.report import page_style

    with tempfile.TemporaryDirectory() as name:
        text = filled(results, found, checks, Path(name))
        body = MarkdownIt("commonmark").enable("table").render(text)
        body = re.sub(r'src="([\w-]+\.png)"', lambda match: f'src="{_embedded(Path(name, match[1]))}"', body)
    body = body.replace("<table>", '<div class="scroll"><table>').replace("</table>", "</table></div>")
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    style = "img { max-width: 100%; background: white } th, td { text-align: left } p, li { max-width: 60rem }"
    _write(
        path,
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(TITLE)} – Fairbed</title><style>{page_style()}{style}</style></head>"
        f"<body>{body}</body></html>\n",
    )
    return path


def _embedded(picture: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture.read_bytes()).decode()}"


def _write(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def summary_tables(found: Sequence[Verdict], checks: Sequence[Control]) -> list[Table]:
    """Return the verdicts on the published algorithm, and the controls, for a terminal."""
    claims = Table(box=SIMPLE_HEAD, title="Claims", title_justify="left")
    for head in ("claim", "published", "as published", "on a link"):
        claims.add_column(head, ratio=3 if head == "claim" else 1)
    said: dict[str, Mapping[str, Any]] = {each.claim["id"]: each.claim for each in found}
    for identity, claim in said.items():
        own = {each.form: each for each in found if each.claim["id"] == identity and each.profile == NDM[0]}
        first = own.get("published") or own.get("")
        claims.add_row(f"{identity} {claim['said']}", published(claim["published"]), cell(first), cell(own.get("link")))
    controls = Table(box=SIMPLE_HEAD, title="Is the instrument right?", title_justify="left")
    for head in ("what is expected", "what came", ""):
        controls.add_column(head)
    for check in checks:
        controls.add_row(check.said, check.found, CONTROL_WORDS[check.right].strip("*"))
    return [claims, controls]
