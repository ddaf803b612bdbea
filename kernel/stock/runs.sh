#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# In the guest: carries out planned runs one after the other, each as the lab kernel would (lab/inside.py).
#
#   runs.sh MODULE.ko PYTHON NAME...
#
# A run is /run/out/NAME with its raw/plan.json. What lab.runner says goes to NAME/raw/words.jsonl, what it records to
# NAME/raw. Meanwhile all of it is in memory: the guest's clock jumps over each wait for this machine's files. Programs
# that start look for files there, most of all in the first run, and deadlines pass meanwhile: a run whose flows have not
# begun is tried again. One whose flows have begun never is.
set -euo pipefail
insmod "$1"
# Those that the kernel would load by itself too: it would do so in the middle of a run, from this machine's files.
modprobe -a tcp_bbr openvswitch sch_netem sch_htb sch_ingress cls_matchall act_mirred inet_diag tcp_diag

carry_out() {
  for try in 1 2 3 4 5 6; do
    echo "run $1, try $try"
    rm -rf "/run/$1"; cp -r "/run/out/$1" "/run/$1"
    if "$python" -m lab.runner "/run/$1" >"/run/$1/raw/words.jsonl" 2>"/run/$1/raw/runner.log"; then break; fi
    tail -n 1 "/run/$1/raw/words.jsonl"
    if grep -q '"phase": "flows"' "/run/$1/raw/words.jsonl"; then break; fi
  done
  cp -r "/run/$1/raw/." "/run/out/$1/raw"
  rm -r "/run/$1"
}
export -f carry_out
export python=$2 PYTHONHASHSEED=0
shift 2
exec "$python" -m lab.inside --openvswitch -- /bin/bash -euc 'for name; do carry_out "$name"; done' runs "$@"
