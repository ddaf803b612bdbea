"""The articles' claims: their data, what is made of a run, and how verdicts are reached; known values by hand."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from experiments.articles import page, verdicts
from experiments.articles.__main__ import app
from experiments.articles.carry_out import Store, digest
from experiments.articles.figures import published
from experiments.articles.measures import of_iperf3, of_seconds, of_series
from experiments.articles.trials import TESTS, TRIALS, Job, Published, Trial, forms_of, jobs_of, trials_of
from experiments.articles.verdicts import (
    NO_VERDICT,
    NOT_REPRODUCED,
    REPRODUCED,
    Estimate,
    articles,
    controls,
    estimate,
    judge,
    quantities_of,
    response_mbit,
    share_as_extreme,
)
from lab.commandline import run_app
from topologies.errors import UsageError

Result = dict[str, Any]


# ---- the data


def test_the_seconds_add_up_to_what_the_articles_tables_say() -> None:
    data = articles()
    totals = {
        (table["article"], cca): value
        for table in data["tables"]
        for row, values in table.get("rows", {}).items()
        if row == "retransmissions"
        for cca, value in values.items()
    }
    seconds = [table for table in data["tables"] if "columns" in table]
    assert len(seconds) == 3 + 3 + 4
    for table in seconds:
        assert sum(table["columns"]["retransmissions"]) == totals[table["article"], table["cca"]]


def test_claims_agree_with_the_tables() -> None:
    """What a claim says of retransmissions is what its article's table has."""
    for claim in articles()["claims"]:
        if claim["published"] and claim["test"] != "entropy" and len(claim["published"]) == 2:
            names = [quantity[-1] for quantity in claim["quantities"]]
            if names == ["retransmissions"] * 2:
                table = published(claim["test"], "retransmissions")
                assert claim["published"] == [table[quantity[0]] for quantity in claim["quantities"]], claim["id"]


def test_every_claim_asks_for_what_is_run() -> None:
    known = {(trial.name, variant) for trial in TRIALS for variant in trial.variants}
    for claim in articles()["claims"]:
        if claim["test"] == "none":
            assert claim["why"]
            continue
        forms = forms_of(claim["test"]) if len(claim["quantities"][0]) == 2 else {"link": ""}
        for form in forms:
            assert {key[:2] for key in quantities_of(claim, form, "ndm2")} <= known, claim["id"]


def test_published_lines_for_tc_are_the_articles() -> None:
    settings = {trial.name: trial.setting for trial in TRIALS}
    noisy = settings["constrained-published"]
    assert isinstance(noisy, Published)
    assert noisy.tc == (
        "qdisc add dev lo root handle 1: netem delay 20ms 5ms distribution normal loss 0.5%",
        "qdisc add dev lo parent 1:1 handle 10: tbf rate 50mbit burst 5000kbit latency 50ms",
    )
    assert noisy.seconds == 20 and noisy.clock == "virtual"
    free = settings["loopback-published"]
    assert isinstance(free, Published)
    assert (free.tc, free.seconds, free.clock) == ((), 40, "real")


def test_a_test_alone_and_all_of_them() -> None:
    assert {trial.test for trial in trials_of(TESTS)} == set(TESTS)
    assert [trial.name for trial in trials_of(["torture"])] == ["torture-published", "torture-link"]
    assert [trial.name for trial in trials_of(["loopback"])] == ["clean-link", "loopback-published"]
    assert {job.seed for job in jobs_of(trials_of(["clean"]), 5, 3)} == {5, 6, 7}


# ---- what a run says


def test_halves_of_twenty_seconds() -> None:
    retransmissions = [40, 9, 8, 1, 2, 1, 2, 1, 0, 0, *[2, 0] * 5]
    found = of_seconds(retransmissions)
    assert found == {
        "retransmissions": 74,
        "retransmissions_early": 64,
        "retransmissions_late": 10,
    }
    rates = of_series({"bytes": [500_000] * 20, "retransmissions": retransmissions})
    assert rates == {
        "retransmissions_per_mb": 7.4,
        "retransmissions_per_mb_settled": 2.0,  # 7 in the seconds from 3 to 10
        "retransmissions_per_mb_late": 2.0,
    }
    assert of_series({"bytes": [0] * 20, "retransmissions": retransmissions}) == {}


@pytest.fixture
def report(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes what lab.loopback writes for two seconds."""

    def write(**extra: Any) -> Path:
        intervals = [
            {"sum": {"bytes": sent, "retransmits": again}, "streams": [{"snd_cwnd": cwnd}]}
            for sent, again, cwnd in ((1_000_000, 3, 500_000), (0, 1, 250_000))
        ]
        end = {
            "sum_sent": {"bits_per_second": 4e6},
            "sum_received": {"bits_per_second": 3.6e6, "bytes": 900_000},
        }
        (tmp_path / "iperf3.json").write_text(json.dumps({"intervals": intervals, "end": end} | extra))
        counters = {"TCPTimeouts": 2, "TCPDSACKRecv": 1, "TCPLossProbes": 4, "TCPBacklogDrop": 5, "TCPRcvQDrop": 6}
        (tmp_path / "counters.json").write_text(json.dumps(counters))
        (tmp_path / "qdiscs.json").write_text(json.dumps([{"drops": 7}, {"drops": 8}]))
        return tmp_path

    return write


def test_iperf3s_report(report: Callable[..., Path]) -> None:
    found = of_iperf3(report())
    assert found["series"] == {"bytes": [1_000_000, 0], "retransmissions": [3, 1], "cwnd_bytes": [500_000, 250_000]}
    measures = found["measures"]
    assert (measures["goodput_mbit"], measures["sent_mbit"], measures["received_bytes"]) == (3.6, 4.0, 900_000)
    assert (measures["retransmissions"], measures["retransmissions_late"], measures["silent_s"]) == (4, 1, 1)
    assert (measures["cwnd_final_bytes"], measures["cwnd_max_bytes"], measures["cwnd_per_sent_byte"]) == (
        250_000,
        500_000,
        0.5,
    )
    named = ("timeouts", "unneeded", "loss_probes", "dropped_by_receiver", "dropped")
    assert [measures[name] for name in named] == [2, 1, 4, 11, 15]


def test_iperf3s_own_error_is_passed_on(report: Callable[..., Path]) -> None:
    with pytest.raises(ValueError, match="iperf3: unable to connect"):
        of_iperf3(report(error="unable to connect"))
    with pytest.raises(ValueError, match="no second"):
        of_iperf3(report(intervals=[]))


# ---- estimates and chances


def samples(**values: list[float]) -> verdicts.Samples:
    return {("t", name, "x"): dict(enumerate(numbers)) for name, numbers in values.items()}


def keys(*names: str) -> list[tuple[str, str, str]]:
    return [("t", name, "x") for name in names]


def test_ratio_of_means() -> None:
    found = estimate(samples(a=[1, 2, 3], b=[4, 4, 4]), keys("a", "b"))
    assert found.value == pytest.approx(0.5)
    assert found.low is not None and found.high is not None
    assert 0.25 <= found.low < 0.5 < found.high <= 0.75  # no resample can leave [1/4, 3/4]


def test_ratio_of_ratios_and_a_lone_mean() -> None:
    four = estimate(samples(a=[2, 2], b=[4, 4], c=[1, 1], d=[8, 8]), keys("a", "b", "c", "d"))
    assert four == Estimate(4.0, 4.0, 4.0, 2)
    assert estimate(samples(a=[5, 5]), keys("a")) == Estimate(5.0, 5.0, 5.0, 2)


def test_seeds_are_paired() -> None:
    """b is always twice a: however much both vary, the ratio doesn't."""
    found = estimate(samples(a=[1, 10, 100], b=[2, 20, 200]), keys("a", "b"))
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)


def test_only_seeds_that_all_have_count() -> None:
    data: verdicts.Samples = {("t", "a", "x"): {1: 1.0, 2: 3.0}, ("t", "b", "x"): {2: 6.0, 3: 9.0}}
    assert estimate(data, keys("a", "b"))[:4] == (0.5, None, None, 1)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (samples(a=[1, 2]), "no run of b has x"),
        (samples(a=[1, 2], b=[0, 0]), "what is compared with is 0 in every run"),
        ({("t", "a", "x"): {1: 1.0}, ("t", "b", "x"): {2: 1.0}}, "no seed has all that is compared"),
    ],
)
def test_what_has_no_ratio_says_why(data: verdicts.Samples, words: str) -> None:
    found = estimate(data, keys("a", "b"))
    assert found.value is None and found.why == words


@pytest.mark.parametrize(
    ("a", "b", "ratio", "side", "share"),
    [
        ([1, 3], [2, 4], 0.5, "below", 0.5),  # 1/2 and 1/4 of four; 3/2 and 3/4 are not
        ([0], [0], 0.5, "below", 0.0),  # two runs without a single one do not differ
        ([0], [1], 0.5, "below", 1.0),
        ([10, 1], [2], 4.0, "above", 0.5),
    ],
)
def test_how_often_chance_gives_as_much(a: list[float], b: list[float], ratio: float, side: str, share: float) -> None:
    assert share_as_extreme(a, b, ratio, side) == share


@pytest.mark.parametrize(
    ("side", "low", "high", "bound", "word"),
    [
        ("below", 0.4, 0.9, None, REPRODUCED),
        ("below", 0.4, 1.1, None, NOT_REPRODUCED),
        ("above", 1.1, 2.0, None, REPRODUCED),
        ("above", 0.9, 2.0, None, NOT_REPRODUCED),
        ("above", 50, 200, 100, NOT_REPRODUCED),
        ("equal", 0.96, 1.04, None, REPRODUCED),
        ("equal", 0.9, 1.0, None, NOT_REPRODUCED),
        ("within", 72, 72, [72, 88], REPRODUCED),
        ("within", 140, 150, [300, 400], NOT_REPRODUCED),
    ],
)
def test_verdict_is_on_the_whole_interval(side: str, low: float, high: float, bound: Any, word: str) -> None:
    claim = {"side": side} | ({} if bound is None else {"bound": bound})
    assert judge(claim, Estimate((low + high) / 2, low, high, 20))[0] == word


def test_without_twenty_repeats_there_is_no_verdict() -> None:
    assert judge({"side": "below"}, Estimate(0.5, 0.4, 0.6, 19)) == (NO_VERDICT, "19 repeats; 20 are needed")


def test_response_function() -> None:
    """1.2247 segments / sqrt(p) of 1448 bytes per RTT; CUBIC's own where RTTs are long: 1.054 (RTT / p)^0.75."""
    assert response_mbit(0.01, 0.1) == pytest.approx(1.5**0.5 / 0.1 * 1448 * 8 / 0.1 / 1e6)
    assert response_mbit(1e-5, 0.2) == pytest.approx(1.054 * 20_000**0.75 * 1448 * 8 / 0.2 / 1e6)


# ---- results on disk, and verdicts from them


def result(trial: str, variant: str, seed: int, status: str = "complete", **measures: float) -> Result:
    """Return a result as carry_out keeps it."""
    settings = next(each for each in TRIALS if each.name == trial).settings()
    return {
        "trial": trial, "variant": variant, "seed": seed, "settings": json.loads(json.dumps(settings)),
        "status": status, "error": "" if status == "complete" else "it broke", "commit": "abc",
        "measures": measures, "series": {},
    }  # fmt: skip


def torture(variant: str, values: Mapping[int, float]) -> list[Result]:
    return [result("torture-published", variant, seed, retransmissions=value) for seed, value in values.items()]


def found(results: list[Result], claim: str, form: str = "published", profile: str = "ndm_tcp") -> verdicts.Verdict:
    (verdict,) = [
        each
        for each in verdicts.verdicts(results, ["torture"])
        if (each.claim["id"], each.form, each.profile) == (claim, form, profile)
    ]
    return verdict


def test_a_claim_from_results() -> None:
    """4 of 8 retransmissions in every seed: half, wholly below 1; a table like 5 against 6 comes of every pair."""
    seeds = range(20)
    verdict = found(torture("ndm_tcp", dict.fromkeys(seeds, 4)) + torture("cubic", dict.fromkeys(seeds, 8)), "1a")
    assert (verdict.word, verdict.estimate.value, verdict.by_chance, verdict.by_luck) == (REPRODUCED, 0.5, 1.0, 0.0)


def test_luck_alone_makes_such_tables() -> None:
    """Both have 1 and 10 by turns: no difference, though half of CUBIC's own pairs look like one (10 runs each)."""
    turns = {seed: 1.0 + 9 * (seed % 2) for seed in range(20)}
    verdict = found(torture("ndm_tcp", turns) + torture("cubic", turns), "1a")
    assert verdict.word == NOT_REPRODUCED
    assert verdict.by_chance == 0.25  # 10 x 10 of 400 pairs
    assert verdict.by_luck == pytest.approx(100 / 380)


def test_an_algorithm_that_is_missing_cannot_be_judged_and_the_rest_can() -> None:
    seeds = range(20)
    results = torture("ndm_tcp", dict.fromkeys(seeds, 4)) + torture("reno", dict.fromkeys(seeds, 8))
    results += [result("torture-published", "cubic", seed, "missing") for seed in seeds]
    assert (found(results, "1a").word, found(results, "1a").why) == (NO_VERDICT, "cubic is not loaded")
    assert found(results, "1b").word == REPRODUCED


def test_runs_that_crash_are_counted_and_shown(tmp_path: Path) -> None:
    seeds = range(20)
    results = torture("ndm_tcp", dict.fromkeys(seeds, 4)) + torture("cubic", dict.fromkeys(range(19), 8))
    results += [result("torture-published", "cubic", 19, "crashed")]
    verdict = found(results, "1a")
    assert verdict.word == NO_VERDICT and verdict.why == "19 repeats; 20 are needed; 1 runs did not end as they should"
    text = page.filled(results, verdicts.verdicts(results, ["torture"]), controls(results), tmp_path)
    assert "40 runs; 39 complete" in text
    assert "| 1 | torture-published | cubic | crashed | it broke |" in text


def test_a_control_that_is_wrong_is_seen() -> None:
    fair = [result("others", "reno,reno", seed, jain=0.6) for seed in range(20)]
    assert [check.right for check in controls(fair)] == [False, None, None]
    right = [result("others", "reno,reno", seed, jain=0.99) for seed in range(20)]
    right += [result("controls", "cubic", seed, goodput_mbit=9.0) for seed in range(20)]
    right += [result("torture-link", "reno", seed, goodput_mbit=0.1) for seed in range(20)]
    assert [check.right for check in controls(right)] == [True, True, True]


@pytest.fixture
def job() -> Job:
    return jobs_of(trials_of(["torture"]), 1, 1)[0]


def test_results_are_kept_and_known_again(tmp_path: Path, job: Job) -> None:
    store = Store(tmp_path)
    assert store.load(job) is None
    store.save(job, result("torture-published", "ndm_tcp", 1, retransmissions=3))
    kept = store.load(job)
    assert kept is not None and kept["measures"] == {"retransmissions": 3}


def test_results_of_other_settings_are_refused(tmp_path: Path, job: Job) -> None:
    store = Store(tmp_path)
    store.save(job, result("torture-published", "ndm_tcp", 1))
    changed = Job(Trial(job.trial.name, "torture", Published(99), job.trial.variants), job.variant, job.seed)
    with pytest.raises(UsageError, match="other settings of torture-published: choose another --out"):
        store.load(changed)
    store.path(job).write_text("{")
    with pytest.raises(UsageError, match="is not a result"):
        store.load(job)


def test_the_digest_is_of_the_virtual_clock_alone_and_not_of_the_commit() -> None:
    virtual, real = result("torture-link", "reno", 1, goodput_mbit=1.0), result("clean-published", "reno", 1)
    assert digest([virtual]) == digest([virtual | {"commit": "def"}, real])
    assert digest([virtual]) != digest([result("torture-link", "reno", 1, goodput_mbit=1.1)])


# ---- the page


def test_the_page_has_every_claim_and_loads_nothing(tmp_path: Path) -> None:
    results = [
        result(trial.name, variant, seed, retransmissions=float(seed), goodput_mbit=1.0, received_bytes=1.0)
        for trial in TRIALS
        for variant in trial.variants
        for seed in range(1, 3)
    ]
    judged, checks = verdicts.verdicts(results, TESTS), controls(results)
    text = page.write_markdown(tmp_path / "page.md", results, judged, checks).read_text()
    for claim in articles()["claims"]:
        assert f"**{claim['id']}** {claim['said']}".replace("|", "\\|") in text
    assert not re.findall(r"\{\w+\}", text)
    for name in re.findall(r"\]\(([\w-]+\.png)\)", text):
        assert (tmp_path / name).stat().st_size > 10_000
    html = page.write_page(tmp_path / "page.html", results, judged, checks).read_text()
    assert html.count("<h2") == text.count("\n## ")
    assert not re.findall(r'(?:src|href)="(?!data:)', html)


def test_an_unknown_test_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(app, "articles", ["tortoise"]) == 2
    words = capsys.readouterr().err
    assert words.startswith("fairbed: there is no test 'tortoise': choose from constrained, torture,")
