"""`python -m analysis`: output, exit status, and one line for what goes wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.__main__ import main
from lab.record import Run
from tests.analysis.synthetic_runs import MakeRun

FLOWS = {"cubic-1": 6.0, "bbr-1": 4.0}
Capture = pytest.CaptureFixture[str]


def test_summary_prints_tables_and_repeats(make_run: MakeRun, capsys: Capture) -> None:
    """One table per run, and one over the repeats; a directory of runs stands for its runs."""
    runs = [make_run(FLOWS, seed=i, name=f"r{i}") for i in (1, 2)]
    assert main(["summary", *(str(run.path) for run in runs)]) == 0
    shown = capsys.readouterr().out
    assert "seed 1" in shown and "seed 2" in shown and "95 % interval" in shown
    assert main(["summary", str(runs[0].path.parent)]) == 0
    assert capsys.readouterr().out == shown


def test_summary_json(make_run: MakeRun, capsys: Capture) -> None:
    """JSON and nothing else on stdout."""
    assert main(["summary", "--json", str(make_run(FLOWS).path)]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["runs"][0]["jain"] == pytest.approx(100 / 104)
    assert content["repeats"] == []


def test_digest(make_run: MakeRun, capsys: Capture) -> None:
    """One line per run: the hash and the directory."""
    run = make_run(FLOWS)
    assert main(["digest", str(run.path)]) == 0
    assert capsys.readouterr().out == f"{run.digest()}  {run.path}\n"


def test_plot_prints_the_files(make_run: MakeRun, tmp_path: Path, capsys: Capture) -> None:
    """Each file printed is there."""
    assert main(["plot", str(make_run(FLOWS).path), "-o", str(tmp_path / "out")]) == 0
    files = [Path(line) for line in capsys.readouterr().out.splitlines()]
    assert len(files) == 18 and all(file.stat().st_size > 1000 for file in files)


def test_compare(make_run: MakeRun, capsys: Capture) -> None:
    """Two single runs are compared, with the warning that they are single."""
    a, b = make_run(FLOWS, name="a"), make_run({"cubic-1": 5.0, "bbr-1": 5.0}, name="b")
    assert main(["compare", str(a.path), str(b.path)]) == 0
    assert "A: one run is never a finding" in capsys.readouterr().out
    assert main(["compare", str(a.path), str(b.path), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["differences"]["bbr"]["goodput_mbit"]["difference"]["mean"] == pytest.approx(1.0)


def test_errors_are_one_line(make_run: MakeRun, tmp_path: Path, capsys: Capture) -> None:
    """No run, a newer format, a damaged table, a wrong option: `fairbed: ...` and the right status."""
    newer = Run.create(tmp_path / "newer").path
    (newer / "run.json").write_text('{"format": 99}')
    damaged = make_run(FLOWS, name="damaged").path
    (damaged / "queues.parquet").write_bytes(b"PAR1")
    cases = [
        (["summary", str(tmp_path / "missing")], 1, "not a run directory"),
        (["summary", str(newer)], 1, "newer than 1"),
        (["digest", str(damaged)], 1, "queues.parquet"),
        (["plot", str(damaged)], 1, "queues.parquet"),
        (["summary"], 2, "RUN"),
        (["summary", "--wrong", "x"], 2, "--wrong"),
        (["nonsense"], 2, "nonsense"),
    ]
    for arguments, status, complaint in cases:
        assert main(arguments) == status, arguments
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("fairbed: ") and err.count("\n") == 1
        assert complaint in err


def test_without_arguments_the_help_is_shown(capsys: Capture) -> None:
    """And the status says that this was no success."""
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert "compare" in out + err and "fairbed:" not in err


def test_import_is_light() -> None:
    """`import analysis` gives the library without matplotlib, and the figures when asked for."""
    code = (
        "import sys; from analysis import Run, summarise, jain; print('matplotlib' in sys.modules);"
        "from analysis import save_all; print('matplotlib.pyplot' in sys.modules, 'mininet' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "False", "False"]


def test_broken_pipe_is_quiet(make_run: MakeRun) -> None:
    """A reader that leaves early gets no traceback."""
    run = make_run(FLOWS)
    command = [sys.executable, "-m", "analysis", "summary", *[str(run.path)] * 40]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert "Traceback" not in process.stderr.read()
