#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# In the guest: loads the module, sends with each algorithm over a path as bad as the articles', unloads it.
#
#   check.sh MODULE.ko SECONDS
#
# a 10.213.1.2 [netem 20 ms +- 5 ms, 0.5 % loss] --- r [tbf 50 Mbit/s] --- 10.213.2.2 b
#
# Prints "key value" lines and iperf3's JSON reports; fails at the first thing that does.
set -euo pipefail
module=$1 seconds=$2
report=$(mktemp -d)

ip netns add a; ip netns add r; ip netns add b
link() {	# host, port of r, net
  ip -n r link add "$2" type veth peer name eth0 netns "$1"
  ip -n r address add "10.213.$3.1/24" dev "$2"; ip -n r link set "$2" up
  ip -n "$1" address add "10.213.$3.2/24" dev eth0; ip -n "$1" link set eth0 up
  ip -n "$1" route add default via "10.213.$3.1"
}
link a ra 1; link b rb 2
ip netns exec r sysctl -q net.ipv4.ip_forward=1
tc -n a qdisc add dev eth0 root netem limit 10000 delay 20ms 5ms loss 0.5%
tc -n r qdisc add dev rb root tbf rate 50mbit burst 32k latency 50ms

echo "release $(uname -r)"
insmod "$module"
echo "available $(cat /proc/sys/net/ipv4/tcp_available_congestion_control)"
ip netns exec b iperf3 -s >/dev/null &
server=$!
sleep 2
for name in ndm_tcp ndm2 cubic; do
  ip netns exec a ping -qc 3 10.213.2.2 >/dev/null
  ip netns exec a iperf3 -J -c 10.213.2.2 -t "$seconds" -C "$name" >"$report/$name"
done
kill "$server"; wait "$server" 2>/dev/null || true
for _ in $(seq 30); do rmmod ndm_tcp 2>/dev/null && break; sleep 1; done	# the last sockets take a moment
if [ -d /sys/module/ndm_tcp ]; then echo "unloaded no"; else echo "unloaded yes"; fi
echo "complaints $(dmesg | grep -cE 'BUG|WARNING|Oops|Call Trace' || true)"
dmesg | grep -E 'ndm_tcp:' | sed 's/^\[[^]]*\] /said /'
for name in ndm_tcp ndm2 cubic; do echo "report $name $(tr -d '\n\t' <"$report/$name")"; done
