"""Experiments: ``python -m experiments.<name>``, each a scenario and what to show of it."""

import sys

from lab import environment

if sys.argv[:1] == ["-m"]:  # as a command
    environment.explain_failing_imports()
