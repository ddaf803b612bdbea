"""Experiments: ``python -m experiments.<name>``, each a scenario and what to show of it."""
