"""Topologies as networkx graphs, what their edges may say, and what follows from them.

A topology is a function of the same name as its module, which takes numbers and strings and returns a graph.
To add one, write the module and add its name to `NAMES`.
"""

from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any

from topologies.errors import UsageError

if TYPE_CHECKING:
    import networkx as nx

__all__ = ["NAMES", "build"]

NAMES = ("dumbbell", "graph_file", "leaf_spine", "parking_lot", "satellite", "wifi")


def build(name: str, **params: Any) -> "nx.DiGraph":
    """Return the validated graph of a topology by name, with the parameters of the function of that name.

    The module is imported only here, so that a name costs nothing until it is used.

    Examples
    --------
    >>> sorted(build("dumbbell", pairs=1))
    ['rcv1', 's1', 's2', 'snd1']
    >>> build("ring")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    topologies.errors.UsageError: there is no topology 'ring': choose one of dumbbell, ...
    """
    if name not in NAMES:
        raise UsageError(f"there is no topology {name!r}: choose one of {', '.join(NAMES)}")
    function = getattr(import_module(f"topologies.{name}"), name)
    try:
        signature(function).bind(**params)
    except TypeError as error:
        known = ", ".join(signature(function).parameters)
        raise UsageError(f"topology {name}: {error}; its parameters are {known}") from error
    return function(**params)
