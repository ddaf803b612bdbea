#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# In the guest: the module and the BPF program, one after the other, over the same path without chance.
#
#   twins.sh MODULE.ko BPF.o SECONDS
#
# a 10.213.1.2 [netem 20 ms] --- r [tbf 20 Mbit/s, 100 kB] --- 10.213.2.2 b
#
# Prints "report NAME JSON" for ndm2, bpf_ndm2, ndm_tcp, bpf_ndm: iperf3's.
set -euo pipefail
module=$1 object=$2 seconds=$3
report=$(mktemp -d)

ip netns add a; ip netns add r; ip netns add b
link() {	# host, port of r, net
  ip -n r link add "$2" type veth peer name eth0 netns "$1"
  for end in "r $2" "$1 eth0"; do ip netns exec ${end% *} ethtool -K ${end#* } tso off gso off gro off; done
  ip -n r address add "10.213.$3.1/24" dev "$2"; ip -n r link set "$2" up
  ip -n "$1" address add "10.213.$3.2/24" dev eth0; ip -n "$1" link set eth0 up
  ip -n "$1" route add default via "10.213.$3.1"
}
link a ra 1; link b rb 2
ip netns exec r sysctl -q net.ipv4.ip_forward=1
for host in a b; do ip netns exec $host sysctl -q net.ipv4.tcp_no_metrics_save=1; done
tc -n a qdisc add dev eth0 root netem limit 10000 delay 20ms
tc -n b qdisc add dev eth0 root netem limit 10000 delay 20ms
tc -n r qdisc add dev rb root tbf rate 20mbit burst 3k limit 100k

insmod "$module"
bpftool struct_ops register "$object" >/dev/null
ip netns exec b iperf3 -s >/dev/null &
server=$!
sleep 2
for name in ndm2 bpf_ndm2 ndm_tcp bpf_ndm; do
  ip netns exec a ping -qc 2 10.213.2.2 >/dev/null
  ip netns exec a iperf3 -J -c 10.213.2.2 -t "$seconds" -C "$name" >"$report/$name"
done
kill "$server"; wait "$server" 2>/dev/null || true
for name in ndm2 bpf_ndm2 ndm_tcp bpf_ndm; do echo "report $name $(tr -d '\n\t' <"$report/$name")"; done
