"""Run a recorded scenario again. This is the one part of the analysis that needs what the lab needs."""

from pathlib import Path

from analysis.differences import first_difference
from lab.record import RecordError, Run

__all__ = ["replay"]


def replay(run: Run, directory: str | Path | None = None) -> tuple[Run, str | None]:
    """Run the recorded scenario with the recorded seed; return the new run and what differs first, None for nothing.

    It executes where the recorded run did: on the same kind of kernel and clock, with the same controller framework.
    Only the virtual clock promises an identical record.

    Parameters
    ----------
    run : Run
    directory : path, optional
        Of the new run; must not exist. ``<run>-replay`` when not given.

    Raises
    ------
    RecordError
        When the run recorded no scenario, or ran on a kernel that is not started for one run.
    FairbedError
        When the new run fails, as any run.
    """
    from lab.execute import Where, execute  # only now: the rest of the analysis works where no run can
    from lab.scenario import make_scenario

    if not run.scenario:
        raise RecordError(f"{run.path} recorded no scenario, so it cannot be run again")
    facts = run.info.get("environment") or {}
    if facts.get("kernel_kind") == "stock":
        raise RecordError(
            f"{run.path} ran on a stock kernel, one of many in a boot: python -m experiments.stock runs them"
        )
    where = Where(
        kernel=facts.get("kernel_kind", "auto"), clock=facts.get("clock"), framework=facts.get("framework", "ryu")
    )
    out = run.path.resolve().with_name(f"{run.name}-replay") if directory is None else Path(directory)
    again = execute(make_scenario(**run.scenario), out, where)
    return again, first_difference(run, Run.open(again.path))
