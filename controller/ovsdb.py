"""A small OVSDB client (JSON-RPC of RFC 7047 over a Unix socket) that writes, reads and removes our QoS rows.

Rows of ours carry `external_ids:fairbed=<tag>`. Only they are ever changed or deleted, and a port is touched
only while it has no QoS row or one of ours. OVSDB does not collect unused QoS and Queue rows, so they are
deleted with the reference to them, in one transaction.
"""

import json
import socket
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from controller.plan import PortSetting, QueueSetting
from topologies.errors import FairbedError

LOCAL = "unix:/var/run/openvswitch/db.sock"
"""Where a machine's own Open vSwitch has its database."""
TAG = "fairbed"
"""Key in external_ids that marks a row as ours."""
TIMEOUT_S = 10.0
"""Longest silence of the server, and longest time for the switch to carry out new settings."""
READ_BYTES = 65536

Json = Any
Operation = dict[str, Json]


def apply_queues(address: str, tag: str, settings: Sequence[PortSetting], wait: bool = True) -> None:
    """Give ports their queues in one transaction, in place of what this tag gave them before.

    Parameters
    ----------
    address : str
        "unix:/path" of the server's socket.
    tag : str
        Marks the rows.
    settings : sequence of PortSetting
        Each port must exist and have no QoS row of anyone else.
    wait : bool
        Return only when the switch has carried it out.
    """
    with Ovsdb(address) as database:
        ours = _our_rows(database, tag)
        ports = _ports(database)
        for setting in settings:
            _check_port(setting["port"], ports, ours["QoS"])
        operations = _removal(ours)
        for index, setting in enumerate(settings):
            operations += _insertion(index, setting, tag)
        _commit(database, operations, wait)


def read_queues(address: str, tag: str) -> list[PortSetting]:
    """Return the settings that the database holds with this tag, in order of port."""
    with Ovsdb(address) as database:
        qos, queues = (_by_uuid(rows) for rows in _our_rows(database, tag).values())
        found = [
            _setting(name, qos[uuid], queues)
            for name, uuids in _ports(database).items()
            for uuid in uuids
            if uuid in qos
        ]
    return sorted(found, key=lambda setting: setting["port"])


def remove_queues(address: str, tag: str, wait: bool = True) -> int:
    """Delete every row with this tag and free the ports that used them; return how many rows there were."""
    with Ovsdb(address) as database:
        ours = _our_rows(database, tag)
        count = sum(len(rows) for rows in ours.values())
        if count:
            _commit(database, _removal(ours), wait)
    return count


def bridges(address: str, tag: str | None = None) -> list[str]:
    """Return the names of all bridges, or of those with this tag."""
    where = [] if tag is None else [["external_ids", "includes", _map({TAG: tag})]]
    with Ovsdb(address) as database:
        (result,) = database.transact([{"op": "select", "table": "Bridge", "where": where, "columns": ["name"]}])
    return sorted(row["name"] for row in result["rows"])


class Ovsdb:
    """A connection to an OVSDB server, for the Open_vSwitch database."""

    def __init__(self, address: str) -> None:
        """Connect to "unix:/path"."""
        kind, _, path = address.partition(":")
        if kind != "unix" or not path:
            raise FairbedError(f"OVSDB address {address!r} is not of the form unix:/path")
        self._address = address
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(TIMEOUT_S)
        self._text = ""
        self._id = 0
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise FairbedError(f"cannot connect to OVSDB at {address}: {error}") from error

    def __enter__(self) -> Self:
        """Return the connection."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        self._socket.close()

    def transact(self, operations: Iterable[Operation]) -> list[Json]:
        """Return the results of the operations, all of which are done, or none and a FairbedError."""
        asked = list(operations)
        results: list[Json] = self.call("transact", ["Open_vSwitch", *asked])
        errors = [result for result in results if result and "error" in result]
        if errors:
            reasons = "; ".join(f"{error['error']}: {error.get('details', '')}" for error in errors)
            raise FairbedError(f"OVSDB at {self._address} refused {_summary(asked)}: {reasons}")
        return results

    def call(self, method: str, parameters: Json) -> Json:
        """Return the result of a JSON-RPC request."""
        self._id += 1
        self._send({"method": method, "params": parameters, "id": self._id})
        while True:
            message = self._receive()
            if message.get("id") == self._id and "method" not in message:
                break
        if message.get("error") is not None:
            raise FairbedError(f"OVSDB at {self._address} refused {method}: {message['error']}")
        return message["result"]

    def next_update(self) -> dict[str, Json]:
        """Return the tables of the next change that a monitor reports."""
        while True:
            message = self._receive()
            if message.get("method") == "update":
                return dict(message["params"][1])

    def _send(self, message: Json) -> None:
        try:
            self._socket.sendall(json.dumps(message).encode())
        except OSError as error:
            raise FairbedError(f"cannot write to OVSDB at {self._address}: {error}") from error

    def _receive(self) -> dict[str, Json]:
        """Return the next message, answering the server's probes on the way."""
        while True:
            message = self._next_message()
            if message.get("method") != "echo":
                return message
            self._send({"result": message["params"], "error": None, "id": message["id"]})

    def _next_message(self) -> dict[str, Json]:
        """Return the next JSON object of the stream; RFC 7047 puts nothing between them."""
        while True:
            self._text = self._text.lstrip()
            try:
                message, end = json.JSONDecoder().raw_decode(self._text)
            except ValueError:
                self._text += self._read()
                continue
            self._text = self._text[end:]
            return dict(message)

    def _read(self) -> str:
        try:
            data = self._socket.recv(READ_BYTES)
        except TimeoutError as error:
            raise FairbedError(f"OVSDB at {self._address} was silent for {TIMEOUT_S:g} s") from error
        except OSError as error:
            raise FairbedError(f"cannot read from OVSDB at {self._address}: {error}") from error
        if not data:
            raise FairbedError(f"OVSDB at {self._address} closed the connection")
        return data.decode()


def _our_rows(database: Ovsdb, tag: str) -> dict[str, list[Json]]:
    """Return the QoS and the Queue rows with this tag."""
    where = [["external_ids", "includes", _map({TAG: tag})]]
    tables = {"QoS": ["_uuid", "type", "other_config", "queues"], "Queue": ["_uuid", "other_config"]}
    results = database.transact(
        {"op": "select", "table": table, "where": where, "columns": columns} for table, columns in tables.items()
    )
    return {table: result["rows"] for table, result in zip(tables, results, strict=True)}


def _ports(database: Ovsdb) -> dict[str, list[str]]:
    """Return every port's name -> the uuid of its QoS row, if it has one."""
    (result,) = database.transact([{"op": "select", "table": "Port", "where": [], "columns": ["name", "qos"]}])
    return {row["name"]: [uuid for _, uuid in _set(row["qos"])] for row in result["rows"]}


def _check_port(name: str, ports: Mapping[str, list[str]], our_qos: Iterable[Json]) -> None:
    """Raise a FairbedError unless the port is there and free, or ours."""
    if name not in ports:
        raise FairbedError(f"cannot set queues on {name}: Open vSwitch has no such port")
    if not set(ports[name]) <= set(_by_uuid(our_qos)):
        raise FairbedError(f"cannot set queues on {name}: it has a QoS row of someone else")


def _removal(ours: Mapping[str, list[Json]]) -> list[Operation]:
    """Return the operations that free the ports of our QoS rows, then delete these, then their queues."""
    free = [
        {"op": "update", "table": "Port", "where": [["qos", "==", row["_uuid"]]], "row": {"qos": _set_of([])}}
        for row in ours["QoS"]
    ]
    delete = [
        {"op": "delete", "table": table, "where": [["_uuid", "==", row["_uuid"]]]}
        for table in ("QoS", "Queue")
        for row in ours[table]
    ]
    return free + delete


def _insertion(index: int, setting: PortSetting, tag: str) -> list[Operation]:
    """Return the operations that make one port's rows; they fail if it gets a QoS row meanwhile."""
    ours = _map({TAG: tag})
    names = {number: f"queue_{index}_{number}" for number in setting["queues"]}
    queues: list[Operation] = [
        {
            "op": "insert",
            "table": "Queue",
            "uuid-name": names[number],
            "row": {"other_config": _map(_queue_config(queue)), "external_ids": ours},
        }
        for number, queue in setting["queues"].items()
    ]
    qos = {
        "type": setting["type"],
        "other_config": _map({"max-rate": str(setting["max_rate_bit"])}),
        "queues": ["map", [[number, ["named-uuid", name]] for number, name in names.items()]],
        "external_ids": ours,
    }
    where = [["name", "==", setting["port"]]]
    free = {"op": "wait", "table": "Port", "where": where, "columns": ["qos"], "until": "==", "timeout": 0}
    return [
        {**free, "rows": [{"qos": _set_of([])}]},
        *queues,
        {"op": "insert", "table": "QoS", "uuid-name": f"qos_{index}", "row": qos},
        {"op": "update", "table": "Port", "where": where, "row": {"qos": ["named-uuid", f"qos_{index}"]}},
    ]


def _queue_config(queue: QueueSetting) -> dict[str, str]:
    """Return a queue's other_config; OVS wants the burst in bits (ovs-vswitchd.conf.db(5))."""
    return {
        "min-rate": str(queue["min_rate_bit"]),
        "max-rate": str(queue["max_rate_bit"]),
        "burst": str(queue["burst_bytes"] * 8),
        "priority": str(queue.get("priority", 0)),
    }


def _setting(port: str, qos: Json, queues: Mapping[str, Json]) -> PortSetting:
    """Return a port's setting from its rows, the opposite of `_insertion`."""
    return {
        "port": port,
        "type": qos["type"],
        "max_rate_bit": int(dict(qos["other_config"][1])["max-rate"]),
        "queues": {number: _queue_setting(queues[uuid]) for number, (_, uuid) in sorted(qos["queues"][1])},
    }


def _queue_setting(row: Json) -> QueueSetting:
    config = dict(row["other_config"][1])
    return {
        "min_rate_bit": int(config["min-rate"]),
        "max_rate_bit": int(config["max-rate"]),
        "burst_bytes": int(config["burst"]) // 8,
        "priority": int(config["priority"]),
    }


def _commit(database: Ovsdb, operations: list[Operation], wait: bool) -> None:
    """Carry out the operations; then, if asked, wait until the switch has done what they say.

    `next_cfg` asks for it and `cur_cfg` follows when it is done, as ovs-vsctl does.
    """
    if not wait:
        database.transact(operations)
        return
    bump = {"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [["next_cfg", "+=", 1]]}
    select = {"op": "select", "table": "Open_vSwitch", "where": [], "columns": ["next_cfg"]}
    wanted = database.transact([*operations, bump, select])[-1]["rows"][0]["next_cfg"]
    tables = database.call("monitor", ["Open_vSwitch", None, {"Open_vSwitch": {"columns": ["cur_cfg"]}}])
    while not _reached(tables, wanted):
        tables = database.next_update()


def _reached(tables: Mapping[str, Json], wanted: int) -> bool:
    """Say whether a monitor's tables show the wanted configuration as carried out."""
    return any(row["new"]["cur_cfg"] >= wanted for row in tables.get("Open_vSwitch", {}).values())


def _map(values: Mapping[str, str]) -> Json:
    return ["map", [[key, value] for key, value in values.items()]]


def _set_of(values: list[Json]) -> Json:
    return ["set", values]


def _set(value: Json) -> list[Json]:
    """Return the members of an OVSDB set, which writes a single member without the set."""
    return list(value[1]) if value[0] == "set" else [value]


def _by_uuid(rows: Iterable[Json]) -> dict[str, Json]:
    return {row["_uuid"][1]: row for row in rows}


def _summary(operations: Iterable[Operation]) -> str:
    """Return what a transaction was about, for an error message."""
    return ", ".join(f"{operation['op']} {operation['table']}" for operation in operations)
