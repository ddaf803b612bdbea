"""The lab kernel by hand, what it leaves behind (nothing), and how it ends when something goes wrong."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from analysis import Run
from lab.kernels import cache_directory
from tests.system.conftest import CHECKOUT, Command

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

NOBODY = 65534


def traces(place: Path) -> set[str]:
    """Return what is there of guests whose temporary files are in ``place``: processes and files."""
    found = {str(path) for path in place.glob("fairbed-*")}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            line = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(place) in line or str(place) in str((directory / "cwd").readlink()):
                found.add(f"{directory.name} {line}")
        except OSError:
            continue  # it is gone
    return found


def shared_state() -> set[str]:
    """Return what the whole machine has of mounts, namespaces and links."""
    mounts = set(Path("/proc/self/mounts").read_text().splitlines())
    namespaces = {str(path) for path in Path("/run/netns").glob("*")}
    return mounts | namespaces | {path.name for path in Path("/sys/class/net").iterdir()}


@pytest.fixture
def nothing_left(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give guests a temporary directory of their own, and see that it and the machine are as before at the end."""
    place = tmp_path_factory.mktemp("guests")
    monkeypatch.setenv("TMPDIR", str(place))
    before = shared_state()
    yield place
    deadline = time.monotonic() + 10
    while traces(place) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert traces(place) == set()
    assert shared_state() - before == set()
    assert list((Path.home() / ".uml").glob("*")) == []


def guest(place: Path) -> int:
    """Return the process id of the lab kernel whose temporary files are in ``place``."""
    lines = [line for line in traces(place) if "/linux mem=" in line and "supervisor.py" not in line]
    return int(lines[0].split()[0])


def obey_ctrl_c() -> None:
    """A shell's background job, and all it starts, ignores SIGINT; these tests may be one."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(*arguments: object, **options: object) -> "subprocess.Popen[str]":
    return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-m", *map(str, arguments)], cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, preexec_fn=obey_ctrl_c, **options,
    )  # fmt: skip


def test_run_passes_output_and_status(command: Command, nothing_left: Path) -> None:
    done = command("lab", "run", "--", "sh", "-c", "echo to stdout; echo to stderr >&2; exit 7")
    assert (done.status, done.stdout, done.stderr) == (7, "to stdout\n", "to stderr\n")


def test_run_passes_many_bytes_unchanged(nothing_left: Path) -> None:
    script = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 4000)"
    argv = [sys.executable, "-m", "lab", "run", "--", "/usr/bin/python3", "-c", script]
    assert subprocess.run(argv, cwd=CHECKOUT, capture_output=True, check=True).stdout == bytes(range(256)) * 4000


def test_inside_one_is_root_in_a_kernel_of_ones_own(command: Command) -> None:
    done = command("lab", "run", "--", "sh", "-c", "id -u; cat /proc/sys/net/ipv4/tcp_available_congestion_control")
    lines = done.stdout.splitlines()
    assert lines[0] == "0"
    assert {"ndm_tcp", "cubic", "reno", "bbr"} <= set(lines[1].split())


def test_a_missing_command_is_said_plainly(command: Command) -> None:
    done = command("lab", "run", "--", "no-such-command")
    assert (done.status, done.stderr) == (127, "fairbed: no-such-command: No such file or directory\n")


def test_a_killed_command_gives_its_signal(command: Command) -> None:
    assert command("lab", "run", "--", "sh", "-c", "kill -TERM $$").status == 128 + signal.SIGTERM


def test_sleeping_is_free_on_the_virtual_clock(command: Command) -> None:
    began = time.monotonic()
    assert command("lab", "run", "--clock", "virtual", "--", "sleep", "1000").status == 0
    assert time.monotonic() - began < 60


def test_writing_is_kept_in_the_current_directory_only(tmp_path: Path, nothing_left: Path) -> None:
    outside = tmp_path / "outside"
    inside = tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    script = f"echo kept >here; echo lost >{outside}/lost; cat {outside}/lost; echo x >/etc/fairbed-test"
    argv = [sys.executable, "-m", "lab", "run", "--", "sh", "-c", script]
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(argv, cwd=inside, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "lost\n"
    assert (inside / "here").read_text() == "kept\n"
    assert list(outside.iterdir()) == []
    assert not Path("/etc/fairbed-test").exists()


def test_shell_gives_a_prompt(nothing_left: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(CHECKOUT)
        os.environ["SHELL"] = "/bin/sh"
        os.execv(sys.executable, [sys.executable, "-m", "lab", "shell"])  # noqa: S606
    text = b""

    def read_until(mark: bytes) -> None:
        nonlocal text
        deadline = time.monotonic() + 60
        while mark not in text and time.monotonic() < deadline:
            if select.select([terminal], [], [], 1)[0]:
                text += os.read(terminal, 4096)
        assert mark in text, text

    read_until(b"# ")
    os.write(terminal, b"echo $((6*7)) $(uname -n)\n")
    read_until(b"42 fairbed")
    os.write(terminal, b"exit 5\n")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    os.close(terminal)


def test_shell_needs_a_terminal(command: Command) -> None:
    done = command("lab", "shell")
    assert done.status == 2 and "needs a terminal" in done.stderr


def test_a_panic_is_told_in_the_kernels_own_words(command: Command, nothing_left: Path) -> None:
    done = command("lab", "run", "--", "sh", "-c", "echo c > /proc/sysrq-trigger; sleep 5")
    assert done.status == 1
    assert done.stderr.startswith("fairbed: the lab kernel died: Kernel panic")
    assert len(done.stderr.splitlines()) == 1


STAGES = ["boot", "network", "controller", "flows", "stop"]


def reach(process: "subprocess.Popen[str]", run: Path, stage: str) -> None:
    """Wait until the run has come to a stage, as its files tell."""
    signs = {
        "boot": "run.json",
        "network": "raw/runner.log",
        "controller": "raw/controller.jsonl",
        "flows": "raw/samples",
    }
    sign = run / signs.get(stage, "raw/tc.json")
    deadline = time.monotonic() + 60
    while not sign.exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["kill -9", "Ctrl-C"])
def test_nothing_is_left_wherever_it_is_killed(tmp_path: Path, nothing_left: Path, stage: str, number: int) -> None:
    out = tmp_path / "run"
    process = start("experiments.dumbbell", "--kernel", "lab", "--duration", "120s", "--out", out, "--json")
    reach(process, out, stage)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert "Traceback" not in errors
    if number == signal.SIGINT and process.returncode:  # it may have come to its end
        assert process.returncode == 130
        assert Run.open(out).outcome["status"] == "interrupted"
    if number == signal.SIGKILL:
        assert Run.open(out).outcome["status"] in ("crashed", "complete")


def test_what_was_recorded_before_ctrl_c_can_be_analysed(tmp_path: Path, command: Command) -> None:
    out = tmp_path / "run"
    process = start("experiments.dumbbell", "--kernel", "lab", "--duration", "1h", "--out", out, "--json")
    reach(process, out, "flows")
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert Run.open(out).flows["t_s"].max() > 1  # type: ignore[operator]
    done = command("analysis", "summary", out)
    assert done.status == 0 and "interrupted" in done.stdout


def test_a_hang_is_ended_by_the_watchdog(tmp_path: Path, nothing_left: Path) -> None:
    out = tmp_path / "run"
    options = ("--duration", "1h", "--watchdog", "15", "--out", out)
    process = start("experiments.dumbbell", "--kernel", "lab", *options)
    reach(process, out, "flows")
    os.kill(guest(nothing_left), signal.SIGSTOP)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the run hung: no word for 15 s of real time" in errors
    assert Run.open(out).verdict["status"] == "invalid"


def test_a_guest_that_is_killed_makes_a_crashed_run(tmp_path: Path, nothing_left: Path) -> None:
    out = tmp_path / "run"
    process = start("experiments.dumbbell", "--kernel", "lab", "--duration", "1h", "--out", out)
    reach(process, out, "flows")
    os.kill(guest(nothing_left), signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1 and "the lab kernel died" in errors
    assert Run.open(out).outcome["status"] == "crashed"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become an ordinary user")
def test_an_ordinary_user_gets_the_same_record(main_job: Run, tmp_path_factory: pytest.TempPathFactory) -> None:
    place = Path("/tmp") / f"fairbed-test-{os.getpid()}"  # noqa: S108 - the test's own folder is root's alone
    place.mkdir()
    os.chown(place, NOBODY, NOBODY)
    try:
        argv = [sys.executable, "-m", "experiments.dumbbell", "--kernel", "lab", "--out", str(place / "run"), "--json"]
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(place), "FAIRBED_CACHE": str(cache_directory()),
            "PYTHONPATH": str(CHECKOUT), "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        done = subprocess.run(
            ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", *argv],
            cwd=CHECKOUT, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert Run.open(place / "run").digest() == main_job.digest()
    finally:
        subprocess.run(["rm", "-rf", str(place)], check=True)


def test_a_damaged_kernel_cache_is_made_again(tmp_path: Path) -> None:
    build = CHECKOUT / "kernel" / "uml" / "build.sh"
    cache = tmp_path / "kernel"
    cache.mkdir()
    for kernel in (cache_directory() / "kernel").glob("kernel-*"):
        if kernel.is_dir():
            (cache / kernel.name).symlink_to(kernel)  # the long part is taken as it is
    run: Callable[[], subprocess.CompletedProcess[str]] = lambda: subprocess.run(  # noqa: E731
        [str(build), str(cache)], capture_output=True, text=True, check=True
    )
    lab = Path(run().stdout.splitlines()[-1])
    whole = (lab / "init").read_bytes()
    (lab / "init").write_bytes(whole[:100])
    again = run()
    assert "damaged; making it again" in again.stderr
    assert Path(again.stdout.splitlines()[-1]) == lab and len((lab / "init").read_bytes()) == len(whole)


BAD = [
    (["--flows", "nosuch:1"], 2, "unknown algorithm nosuch: this kernel has"),
    (["--flows", "cubic:0"], 2, "are 0 flows: there must be 1 to 1000"),
    (["--flows", "cubic:-1"], 2, "must be a whole number from 0"),
    (["--rate", "-5mbit"], 2, "rate"),
    (["--rate", "20mbps"], 2, "20mbps"),
    (["--rate", "9999gbit"], 2, "rate"),
    (["--rtt", "40"], 2, "unit"),
    (["--buffer", "1000B"], 2, "1514"),
    (["--buffer", "0bdp"], 2, "buffer"),
    (["--aqm", "blue"], 2, "'blue' must be"),
    (["--duration", "5s", "--warmup", "5s"], 2, "duration_s 5 must be above warmup_s 5"),
    (["--seed", "-1"], 2, "seed"),
    (["--kernel", "moon"], 2, "must be one of auto, host, lab"),
    (["--kernel", "host", "--clock", "virtual"], 2, "--kernel lab"),
    (["--memory", "99999999"], 2, "needs 99999999 MB"),
    (["--no-such-option"], 2, "no-such-option"),
]


@pytest.mark.parametrize(("options", "status", "words"), BAD, ids=[" ".join(options) for options, _, _ in BAD])
def test_bad_input_is_one_clear_line(
    command: Command, nothing_left: Path, tmp_path: Path, options: list[str], status: int, words: str
) -> None:
    done = command("experiments.dumbbell", "--out", tmp_path / "run", *options)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("seed ")]
    assert done.status == status, done.stderr
    assert len(lines) == 1 and lines[0].startswith("fairbed: "), done.stderr
    assert words.lower() in lines[0].lower()
    assert done.stdout == ""


def test_an_output_that_exists_is_refused_and_untouched(command: Command, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    done = command("experiments.dumbbell", "--out", tmp_path)
    assert done.status == 2 and "never overwritten" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_an_output_that_cant_be_made_is_said(command: Command) -> None:
    done = command("experiments.dumbbell", "--out", "/proc/nowhere")
    assert done.status in (1, 2) and "cannot create the run directory /proc/nowhere" in done.stderr


def test_a_host_kernel_that_cant_names_what_is_missing(command: Command, tmp_path: Path) -> None:
    done = command("experiments.dumbbell", "--kernel", "host", "--out", tmp_path / "run")
    if done.status == 0:
        pytest.skip("this machine's kernel has all that is needed")
    assert done.status == 2
    assert "this machine's kernel can't run this: " in done.stderr and "--kernel lab can" in done.stderr


def test_explain_shows_the_plan_and_does_nothing(command: Command, tmp_path: Path) -> None:
    done = command("experiments.dumbbell", "--explain", "--out", tmp_path / "run")
    assert done.status == 0 and "bfifo limit 100000" in done.stdout
    assert not (tmp_path / "run").exists()


def test_strict_fails_on_anything_but_valid(command: Command, tmp_path: Path) -> None:
    done = command("experiments.dumbbell", "--kernel", "lab", "--strict", "--duration", "2s", "--warmup", "1s",
                   "--flows", "reno:1", "--out", tmp_path / "run")  # fmt: skip
    assert done.status == 0, done.stderr
