"""What follows from a graph, kept as long as the graph: only of one that can't change any more (`networkx.freeze`)."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import networkx as nx

__all__ = ["kept"]

P = ParamSpec("P")
T = TypeVar("T")


def kept(
    function: Callable[Concatenate[nx.DiGraph, P], T],
) -> Callable[Concatenate[nx.DiGraph, P], T]:
    """Return the function, which does its work once for each frozen graph and each further argument.

    Whoever asks must not change the answer: the next one gets the same.
    """
    found: WeakKeyDictionary[nx.DiGraph, dict[Any, T]] = WeakKeyDictionary()

    @wraps(function)
    def ask(graph: nx.DiGraph, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if not nx.is_frozen(graph):
            return function(graph, *args, **kwargs)
        of_graph, key = found.setdefault(graph, {}), (args, *sorted(kwargs.items()))
        if key not in of_graph:
            of_graph[key] = function(graph, *args, **kwargs)
        return of_graph[key]

    return ask
