"""What a node and one direction of a link may say; without networkx, which takes long to import."""

from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from topologies.units import MAX_BUFFER_BYTES, MAX_RATE_MBIT, MAX_TIME_MS, MIN_RATE_MBIT, PACKET_BYTES

__all__ = ["AQMS", "NODE_PATTERN", "ROLES", "Aqm", "Edge", "Role"]

Aqm = Literal["fifo", "fq_codel", "codel", "pie", "cake", "fq", "red", "dualpi2"]
Role = Literal["sender", "receiver", "switch"]

AQMS: tuple[str, ...] = get_args(Aqm)
ROLES: tuple[str, ...] = get_args(Role)

NODE_PATTERN = r"^[A-Za-z][A-Za-z0-9_]{0,9}$"
"""A node's name: with "-ethN" after it, it fits an interface's 15 characters."""

Time = Annotated[float, Field(ge=0, le=MAX_TIME_MS)]


class Edge(BaseModel):
    """One direction of a link.

    Attributes
    ----------
    rate_mbit : float or None
        Rate in 10⁶ bit/s, None where nothing shapes.
    delay_ms, jitter_ms : float
        One-way propagation delay and its variation, at most the delay itself.
    loss_pct : float
        Random loss, from 0 to below 100 %.
    buffer_bytes : int or None
        Queue before the rate, in bytes of Ethernet frames, at least one frame of 1514. A fifo behind a rate
        must have one: without, it would silently be the kernel's 1000 packets.
    aqm : str
        How that queue is managed, one of `AQMS`.
    bottleneck : bool
        Whether queueing is expected, and measured, here.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    rate_mbit: Annotated[float, Field(ge=MIN_RATE_MBIT, le=MAX_RATE_MBIT)] | None = None
    delay_ms: Time = 0.0
    jitter_ms: Time = 0.0
    loss_pct: Annotated[float, Field(ge=0, lt=100)] = 0.0
    buffer_bytes: Annotated[int, Field(le=MAX_BUFFER_BYTES)] | None = None
    aqm: Aqm = "fifo"
    bottleneck: bool = False

    @model_validator(mode="after")
    def _fields_agree(self) -> "Edge":
        """Refuse fields that contradict each other."""
        for wrong, reason in (
            (self.jitter_ms > self.delay_ms, f"jitter_ms {self.jitter_ms} is above delay_ms {self.delay_ms}"),
            (
                self.buffer_bytes is not None and self.buffer_bytes < PACKET_BYTES,
                f"buffer_bytes {self.buffer_bytes} is below one packet ({PACKET_BYTES})",
            ),
            (
                self.buffer_bytes is not None and self.rate_mbit is None,
                f"buffer_bytes {self.buffer_bytes} needs a rate_mbit before which it fills",
            ),
            (
                self.buffer_bytes is None and self.rate_mbit is not None and self.aqm == "fifo",
                f"a fifo at rate_mbit {self.rate_mbit} needs its buffer_bytes",
            ),
            (self.bottleneck and self.rate_mbit is None, "a bottleneck needs a rate_mbit"),
        ):
            if wrong:
                raise ValueError(reason)
        return self
