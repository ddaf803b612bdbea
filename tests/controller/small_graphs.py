"""Small topologies for the tests of forwarding and queues."""

import networkx as nx


def graph_of(links: str, bottlenecks: str = "", rate_mbit: float = 20.0) -> nx.DiGraph:
    """Return the graph of links "a-b c-d": nodes named s… are switches, snd… senders, rcv… receivers."""
    graph = nx.DiGraph()
    for text in links.split():
        u, v = text.split("-")
        for node in (u, v):
            graph.add_node(node, role=_role(node))
        graph.add_edge(u, v, rate_mbit=None, delay_ms=0.0, bottleneck=False)
        graph.add_edge(v, u, rate_mbit=None, delay_ms=0.0, bottleneck=False)
    for text in bottlenecks.split():
        u, v = text.split(">")
        graph.edges[u, v].update(rate_mbit=rate_mbit, bottleneck=True)
    return graph


def dumbbell(pairs: int = 4) -> nx.DiGraph:
    """Return senders on s1, receivers on s2."""
    hosts = " ".join(f"snd{n}-s1 rcv{n}-s2" for n in range(1, pairs + 1))
    return graph_of(f"{hosts} s1-s2", "s1>s2")


def ring() -> nx.DiGraph:
    """Return five switches in a circle with a host on each: a loop that would melt under flooding."""
    return graph_of("s1-s2 s2-s3 s3-s4 s4-s5 s5-s1 snd1-s1 snd2-s2 snd3-s3 rcv4-s4 rcv5-s5")


def parking_lot() -> nx.DiGraph:
    """Return three bottlenecks in a row; one flow crosses all, one each of the others crosses one."""
    return graph_of(
        "s1-s2 s2-s3 s3-s4 snd0-s1 rcv0-s4 snd1-s1 rcv1-s2 snd2-s2 rcv2-s3 snd3-s3 rcv3-s4",
        "s1>s2 s2>s3 s3>s4",
    )


def _role(node: str) -> str:
    return {"snd": "sender", "rcv": "receiver"}.get(node[:3], "switch")
