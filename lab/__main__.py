"""``python -m lab``: the lab kernel by hand, what this machine can do, and what a killed run left on it."""

import sys

from lab import environment

if __name__ == "__main__":
    if sys.argv[1:2] == ["doctor"] and sys.version_info >= environment.OLDEST_PYTHON:
        from lab import doctor  # with whatever packages there are

        sys.exit(doctor.main(sys.argv[2:]))
    environment.explain_failing_imports()
    from lab.commandline import run_app
    from lab.commands import app

    sys.exit(run_app(app, "python -m lab"))
