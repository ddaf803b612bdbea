"""The cost of NDM-TCP: sizes from BTF, times, what they mean at a rate, and the tables."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess

import pytest
from rich.console import Console

from experiments.footprint import (
    ALGORITHMS,
    ARTICLES,
    BTF,
    Footprint,
    app,
    bench_lines,
    btf_sizes,
    core_figures,
    core_share_pct,
    tables,
)
from lab.commandline import run_app
from topologies.errors import FairbedError

INTEGER, ARRAY, STRUCTURE, ENUMERATION, UNION = 1, 3, 4, 6, 5


def btf(names: list[str], types: list[bytes]) -> bytes:
    """Return BTF data with these names (the first empty) and types."""
    strings = b"".join(name.encode() + b"\0" for name in names)
    body = b"".join(types)
    return struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(body), len(body), len(strings)) + body + strings


def test_sizes_from_btf() -> None:
    """Structures by name, past every kind of type, and the room for an algorithm's state."""
    names = ["", "u64", "bbr", "inet_connection_sock", "icsk_ca_priv", "colour"]
    at = [sum(len(name) + 1 for name in names[:index]) for index in range(len(names))]
    types = [
        struct.pack("<IIII", at[1], INTEGER << 24, 8, 64),
        struct.pack("<IIIIII", 0, ARRAY << 24, 0, 1, 1, 13),
        struct.pack("<III", at[5], ENUMERATION << 24 | 1, 4) + struct.pack("<II", at[5], 0),
        struct.pack("<III", at[2], STRUCTURE << 24 | 1, 104) + struct.pack("<III", at[1], 1, 0),
        struct.pack("<III", 0, UNION << 24 | 2, 8) + struct.pack("<IIIIII", at[1], 1, 0, at[1], 1, 0),
        struct.pack("<III", at[3], STRUCTURE << 24 | 1, 1400) + struct.pack("<III", at[4], 2, 0),
    ]
    assert btf_sizes(btf(names, types)) == {"bbr": 104, "inet_connection_sock": 1400, "icsk_ca_priv": 104}


def test_other_data_is_refused() -> None:
    with pytest.raises(FairbedError, match="no BTF data"):
        btf_sizes(bytes(64))


@pytest.mark.skipif(not BTF.exists(), reason="this kernel has no BTF")
def test_sizes_of_this_kernel() -> None:
    """Our reader and pahole say the same."""
    if not shutil.which("pahole"):
        pytest.skip("pahole is not installed (apt-get install pahole)")
    sizes = btf_sizes(BTF.read_bytes())
    for name in ("tcp_sock", "bictcp", "inet_connection_sock"):
        said = subprocess.run(["pahole", "-C", name, str(BTF)], capture_output=True, text=True, check=False).stdout
        if found := re.search(r"/\* size: (\d+)", said):
            assert sizes[name] == int(found[1])
    assert sizes["icsk_ca_priv"] == 104


def test_share_of_a_core() -> None:
    """The article's 350 cycles at 2 GHz, for the packet rate of 1448-byte payloads; a tenth of the ACKs, a tenth."""
    assert core_share_pct(175, 1, 1) == pytest.approx(1e9 / 8 / 1448 * 175e-9 * 100)
    assert core_share_pct(175, 10, 2) == pytest.approx(5 * core_share_pct(175, 1, 1))
    articles = json.loads(ARTICLES.read_text())
    for rate, said in articles["core_share_pct"].items():
        if rate != "table":
            assert core_share_pct(175, float(rate), 1) == pytest.approx(said, rel=0.1)


def test_bench_lines_leave_out_errors() -> None:
    said = (
        "[ 1.0] cc_bench: reno 4063\n[ 1.0] cc_bench: vegas error -2\n[ 1.0] other: 5 6\n[ 2.0] cc_bench: ndm2 83614\n"
    )
    assert bench_lines(said) == {"reno": 4.063, "ndm2": 83.614}


def test_core_costs_less_than_the_articles_say() -> None:
    """On a machine that anybody uses today; generous, because the machine may be busy."""
    figures = core_figures()
    assert (figures["v1_bytes"], figures["v2_bytes"]) == (72, 80)
    assert 1 < figures["v1_ns"] < 2000
    assert 1 < figures["v2_ns"] < figures["v2_evaluation_ns"] < 4000


def shown(found: Footprint) -> str:
    """Return the tables as text."""
    console = Console(width=140, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    for table in tables(found, json.loads(ARTICLES.read_text())):
        console.print(table)
    return console.export_text()


def test_tables_show_what_there_is() -> None:
    """Measured figures beside the articles'; a dash where nothing was measured."""
    found = Footprint(state_bytes={"ndm2": 80, "limit": 104}, lab_cycles={"ndm2": 84.4}, lab_ns={"ndm2": 32.5})
    text = shown(found)
    assert re.search(r"ndm2 +│ +80 │ +– │ +– │ +32\.5 │ +84\.4 │", text)
    assert re.search(r"cubic +│ +– │ +~50 │", text)
    assert re.search(r"ndm2, 2 +│ +0\.014 │ +0\.14 │ +1\.4 │ +14 │", text)
    assert shown(Footprint())


@pytest.mark.system
def test_footprint_of_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    """Every algorithm is measured in the lab kernel; NDM-TCP costs more than Reno, and less than a microsecond."""
    assert run_app(app, "footprint", ["--json"]) == 0
    measured = json.loads(capsys.readouterr().out)["measured"]
    assert measured["lab_ns"].keys() == set(ALGORITHMS), measured["notes"]
    assert measured["lab_ns"]["reno"] < measured["lab_ns"]["ndm2"] < 1000
    assert measured["lab_ns"]["reno"] < measured["lab_ns"]["ndm_tcp"] < 1000
    if BTF.exists():
        assert measured["state_bytes"] | {"ndm_tcp": 72, "ndm2": 80, "reno": 0} == measured["state_bytes"]
        assert max(measured["state_bytes"].values()) <= measured["state_bytes"]["limit"]
