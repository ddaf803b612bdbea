#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# In the guest: carries out planned runs one after the other, each as the lab kernel would (lab/inside.py).
#
#   runs.sh MODULE.ko PYTHON WARM-UP NAME...
#
# A run is /run/out/NAME with its raw/plan.json. What lab.runner says goes to NAME/raw/words.jsonl, what it records to
# NAME/raw. Meanwhile all of it is in memory: the guest's clock jumps over each wait for this machine's files. While the
# warm-up reads programs and libraries from there, deadlines pass at once, so it gets several tries.
set -euo pipefail
insmod "$1"
# Those that the kernel would load by itself too: it would do so in the middle of a run, from this machine's files.
modprobe -a tcp_bbr openvswitch sch_netem sch_htb sch_ingress cls_matchall act_mirred inet_diag tcp_diag

carry_out() {	# tries, run
  for try in $(seq "$1"); do
    echo "run $2, try $try"
    rm -rf "/run/$2"; cp -r "/run/out/$2" "/run/$2"
    if "$python" -m lab.runner "/run/$2" >"/run/$2/raw/words.jsonl" 2>"/run/$2/raw/runner.log"; then break; fi
    tail -n 1 "/run/$2/raw/words.jsonl"
  done
  cp -r "/run/$2/raw/." "/run/out/$2/raw"
  rm -r "/run/$2"
}
export -f carry_out
export python=$2 PYTHONHASHSEED=0
shift 2
exec "$python" -m lab.inside --openvswitch -- /bin/bash -euc \
  'carry_out 6 "$1"; shift; for name; do carry_out 1 "$name"; done' runs "$@"
