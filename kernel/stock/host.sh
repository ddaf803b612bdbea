#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# In the guest: pytest on a kernel that plays the host of runs, with Open vSwitch and with NDM-TCP loaded.
#
#   host.sh MODULE.ko PYTHON PYTEST-ARGUMENT...
#
# Loaded before is what a run may leave loaded; all else it has the kernel load it has to have unloaded.
set -euo pipefail
insmod "$1"
modprobe -a tcp_bbr openvswitch veth
python=$2
shift 2
exec "$python" -m lab.inside --openvswitch -- env FAIRBED_TEST_KERNEL=host sh tests/host/in_guest.sh "$@"
