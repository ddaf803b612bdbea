#!/bin/sh
# Runs the tests that a host's kernel has to pass: on this machine's own where it can carry runs, else on a lab kernel
# with the real clock, which plays the host. They kill that kernel's Open vSwitch now and then, and start it again.
# Bounds are those of a real clock; an idle machine is still a good idea.
#
#   tests/host/run.sh PYTEST-ARGUMENTS…
set -e
python=.venv/bin/python
set -- -m "system and not virtual" tests/host tests/system/test_dumbbell.py "$@"
if $python -c "import sys; from lab import doctor, hosts; sys.exit(bool(hosts.missing(doctor.CCAS)))"; then
  echo "on this machine's own kernel, whose Open vSwitch is killed and started again:" >&2
  FAIRBED_TEST_KERNEL=host exec $python -m pytest "$@"
fi
echo "in a lab kernel on the real clock; this machine's own can't carry runs (python -m lab doctor says why):" >&2
exec $python -m lab run --clock real --memory 2048 --openvswitch -- \
  env FAIRBED_TEST_KERNEL=host sh tests/host/in_guest.sh "$@"
