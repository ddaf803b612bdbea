"""The main job's dumbbell in ns-3, for `benchmarks.dumbbell`: prints what its wall time and goodputs were, as JSON.

Run by an interpreter that has the ns3 wheel. ns-3 simulates TCP and hosts itself; it has CUBIC, Reno and BBR, and no
NDM-TCP, in whose place another Reno runs. Segments of 1448 bytes, a drop-tail queue of 100 kB, 20 Mbit/s, 40 ms, as
in the main job; no sampling of sockets and queues.
"""

import json
import sys
import time

from ns import ns

SEGMENT_BYTES = 1448
PORT = 5001
ALGORITHMS = ["TcpLinuxReno", "TcpCubic", "TcpLinuxReno", "TcpBbr"]


def main(duration_s: float) -> None:
    """Simulate and print."""
    began = time.monotonic()
    ns.Config.SetDefault("ns3::TcpSocket::SegmentSize", ns.UintegerValue(SEGMENT_BYTES))
    for end in ("Snd", "Rcv"):
        ns.Config.SetDefault(f"ns3::TcpSocket::{end}BufSize", ns.UintegerValue(1 << 24))
    pairs = len(ALGORITHMS)
    nodes = ns.NodeContainer()
    nodes.Create(2 * pairs + 2)
    ns.InternetStackHelper().Install(nodes)
    left, right = 2 * pairs, 2 * pairs + 1
    address = ns.Ipv4AddressHelper()

    def link(a: int, b: int, rate: str, delay: str, queue: str) -> None:
        helper = ns.PointToPointHelper()
        helper.SetDeviceAttribute("DataRate", ns.StringValue(rate))
        helper.SetChannelAttribute("Delay", ns.StringValue(delay))
        helper.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", ns.QueueSizeValue(ns.QueueSize(queue)))
        devices = helper.Install(nodes.Get(a), nodes.Get(b))
        address.SetBase(ns.Ipv4Address(f"10.{len(interfaces)}.0.0"), ns.Ipv4Mask("255.255.0.0"))
        interfaces.append(address.Assign(devices))
        # Assigning an address puts a queue discipline on the device; the device's own queue is to be the buffer.
        ns.TrafficControlHelper.Default().Uninstall(devices)

    interfaces: list[object] = []
    for k in range(pairs):
        link(k, left, "10Gbps", "10ms", "100000p")
        link(right, pairs + k, "10Gbps", "10ms", "100000p")
    link(left, right, "20Mbps", "0ms", "100000B")
    ns.Ipv4GlobalRoutingHelper.PopulateRoutingTables()
    sinks = []
    for k, algorithm in enumerate(ALGORITHMS):
        kind = getattr(ns, algorithm).GetTypeId()
        ns.Config.Set(f"/NodeList/{k}/$ns3::TcpL4Protocol/SocketType", ns.TypeIdValue(kind))
        here = ns.InetSocketAddress(ns.Ipv4Address.GetAny(), PORT).ConvertTo()
        sink = ns.PacketSinkHelper("ns3::TcpSocketFactory", here).Install(nodes.Get(pairs + k))
        sinks.append(sink)
        there = ns.InetSocketAddress(interfaces[2 * k + 1].GetAddress(1), PORT).ConvertTo()  # type: ignore[attr-defined]
        source = ns.BulkSendHelper("ns3::TcpSocketFactory", there).Install(nodes.Get(k))
        source.Start(ns.Seconds(0))
        source.Stop(ns.Seconds(duration_s))
    ns.Simulator.Stop(ns.Seconds(duration_s))
    built = time.monotonic()
    ns.Simulator.Run()
    ran = time.monotonic()
    goodputs = [sink.Get(0).__deref__().GetTotalRx() * 8 / duration_s / 1e6 for sink in sinks]
    print(json.dumps({"build_s": built - began, "run_s": ran - built, "goodput_mbit": goodputs}))


if __name__ == "__main__":
    main(float(sys.argv[1]))
