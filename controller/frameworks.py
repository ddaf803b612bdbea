"""Load Ryu or os-ken behind one interface, without the parts this controller never uses.

The frameworks share one API (os-ken is Ryu's maintained fork), so one application runs under either. What
they import by default costs far more than all our work: five protocol versions, every packet parser, a web
server, option files. While they are imported, empty modules stand in for those parts; a test compares the
bytes of our messages with those of the complete framework.
"""

import importlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from topologies.errors import FairbedError, UsageError

PACKAGES = {"ryu": "ryu", "os-ken": "os_ken"}
"""Framework names, as on the command line -> Python packages."""

OTHER_VERSIONS = {"v1_0": 1, "v1_2": 3, "v1_4": 5, "v1_5": 6}
"""OpenFlow versions that the frameworks know and this controller doesn't speak -> number on the wire."""


class Framework(NamedTuple):
    """The parts of Ryu or os-ken that the application is made of."""

    name: str
    app_manager: Any
    app_class: Any
    handler: Any
    hub: Any
    ofp_event: Any
    ofp_handler: Any
    ofproto: Any
    parser: Any
    options: Any


def load(framework: str, lean: bool = True) -> Framework:
    """Return the parts of `framework`.

    Parameters
    ----------
    framework : str
        "ryu" or "os-ken".
    lean : bool
        Leave out what this controller never uses. An application that is not ours may need all of it.
    """
    if framework not in PACKAGES:
        raise UsageError(f"unknown framework {framework!r}: choose from {', '.join(PACKAGES)}")
    package = PACKAGES[framework]
    if importlib.util.find_spec(package) is None:
        raise FairbedError(f"the framework {framework} is not installed")
    with _stand_ins(_unused_modules(package) if lean else {}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # every import of eventlet announces its retirement
        if framework == "ryu":
            _prepare_eventlet(lean)
        return _import(framework, package)


def read(framework: Framework, fd: int, count: int) -> bytes:
    """Return up to `count` bytes of a descriptor, letting the framework's other threads work until they come."""
    if framework.name == "ryu":
        importlib.import_module("eventlet.hubs").trampoline(fd, read=True)
    return os.read(fd, count)


def _import(framework: str, package: str) -> Framework:
    """Return the framework's parts."""
    hub = importlib.import_module(f"{package}.lib.hub")
    app_manager = importlib.import_module(f"{package}.base.app_manager")
    parser = importlib.import_module(f"{package}.ofproto.ofproto_v1_3_parser")
    _read_every_greeting(package, parser)
    return Framework(
        name=framework,
        app_manager=app_manager,
        app_class=app_manager.RyuApp if framework == "ryu" else app_manager.OSKenApp,
        handler=importlib.import_module(f"{package}.controller.handler"),
        hub=hub,
        ofp_event=importlib.import_module(f"{package}.controller.ofp_event"),
        ofp_handler=importlib.import_module(f"{package}.controller.ofp_handler"),
        ofproto=importlib.import_module(f"{package}.ofproto.ofproto_v1_3"),
        parser=parser,
        options=importlib.import_module(f"{package}.cfg").CONF,
    )


def _prepare_eventlet(lean: bool) -> None:
    """Make eventlet importable, quick and fit for Ryu 4.34.

    The standard library is patched for applications that aren't ours only: Ryu asks its hub for everything,
    and patching takes 35 ms.
    """
    os.environ["EVENTLET_NO_GREENDNS"] = "yes"  # no name is resolved here, and its resolver takes 70 ms
    # Its poll and epoll hubs serve what is ready in the order of a set of objects, that is, of their addresses in
    # memory: a record then depended on how many files lay in the checkout. select's order is that of the descriptors.
    os.environ["EVENTLET_HUB"] = "selects"
    with _stand_ins({"OpenSSL": None}):  # preferred where installed, and fatal when it doesn't fit `cryptography`
        eventlet = importlib.import_module("eventlet")
    if lean:
        return
    wsgi = importlib.import_module("eventlet.wsgi")
    if not hasattr(wsgi, "ALREADY_HANDLED"):  # dropped in eventlet 0.30.3, Ryu's web server still reads it
        wsgi.ALREADY_HANDLED = object()  # type: ignore[attr-defined]
    eventlet.monkey_patch()


def _read_every_greeting(package: str, parser: Any) -> None:
    """Parse greetings of other versions as 1.3 does (all have its form): a switch greets with its highest."""
    ofproto_parser = importlib.import_module(f"{package}.ofproto.ofproto_parser")
    for number in OTHER_VERSIONS.values():
        ofproto_parser._MSG_PARSERS.setdefault(number, parser.msg_parser)


def _unused_modules(package: str) -> dict[str, Mapping[str, Any] | None]:
    """Return the modules to leave out -> the names that others expect to find in them."""
    root = importlib.util.find_spec(package).submodule_search_locations[0]  # type: ignore[union-attr, index]
    unused: dict[str, Mapping[str, Any] | None] = {
        "asyncio": {},
        "eventlet.websocket": {"WebSocketWSGI": None},
        "eventlet.wsgi": {},
        "pbr": {},
        "pbr.version": {"VersionInfo": _UnknownVersion},
        f"{package}.app.wsgi": {},
        f"{package}.cfg": _options_module(),
        f"{package}.lib.packet": {"__path__": [f"{root}/lib/packet"]},  # still the home of the number tables
        f"{package}.lib.packet.packet": {"Packet": type("Packet", (), {})},
    }
    for version, number in OTHER_VERSIONS.items():
        unused[f"{package}.ofproto.ofproto_{version}_parser"] = {}
        if version != "v1_0":  # its constants are used by all
            unused[f"{package}.ofproto.ofproto_{version}"] = {"OFP_VERSION": number}
    return unused


def _options_module() -> dict[str, Any]:
    """Return what the framework finds in its module of options, in place of oslo.config's 20 ms."""
    kinds = ("StrOpt", "IntOpt", "ListOpt", "FloatOpt", "BoolOpt", "MultiStrOpt")
    return {"CONF": _Options()} | dict.fromkeys(kinds, _option)


def _option(name: str, default: Any = None, **_unused: Any) -> tuple[str, Any]:
    """Return an option's attribute name and default value."""
    return name.replace("-", "_"), default


class _Options(SimpleNamespace):
    """The framework's settings, as attributes."""

    def register_opts(self, options: list[tuple[str, Any]]) -> None:
        """Give every option its default."""
        vars(self).update(options)

    register_cli_opts = register_opts


class _UnknownVersion:
    """A package version that nobody reads (finding the real one takes os-ken 10 ms)."""

    def __init__(self, package: str) -> None:
        self.package = package

    def version_string(self) -> str:
        """Return nothing of use."""
        return ""


@contextmanager
def _stand_ins(modules: Mapping[str, Mapping[str, Any] | None]) -> Iterator[None]:
    """Let imports find these modules' names (or, for None, no module at all), then the real modules again."""
    new = {name: names for name, names in modules.items() if name not in sys.modules}
    for name, names in new.items():
        sys.modules[name] = _module(name, names) if names is not None else None  # type: ignore[assignment]
    for name in new:
        parent, _, child = name.rpartition(".")
        if parent in new:
            setattr(sys.modules[parent], child, sys.modules[name])
    try:
        yield
    finally:
        for name in new:
            del sys.modules[name]


def _module(name: str, names: Mapping[str, Any]) -> ModuleType:
    """Return a module that holds just these names."""
    module = ModuleType(name)
    vars(module).update(names)
    return module
