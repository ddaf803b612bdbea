"""An event as the parts of a run write it down, one JSON object a line; ``decode.py`` makes the table of them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any


def event_line(kind: str, subject: str = "", detail: Mapping[str, Any] | None = None, t_ns: int | None = None) -> bytes:
    """Return the line of an event that happens now, or at ``t_ns`` of the monotonic clock."""
    event = {
        "t_ns": time.monotonic_ns() if t_ns is None else t_ns,
        "kind": kind,
        "subject": subject,
        "detail": json.dumps(detail) if detail else "",
    }
    return json.dumps(event).encode() + b"\n"
