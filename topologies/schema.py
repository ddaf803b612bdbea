"""What a node and one direction of a link may say; without networkx, which takes long to import."""

from collections.abc import Iterator
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from topologies.units import MAX_BUFFER_BYTES, MAX_RATE_MBIT, MAX_TIME_MS, MIN_RATE_MBIT, PACKET_BYTES

__all__ = [
    "AQMS",
    "AQM_PARAMS",
    "DISTRIBUTIONS",
    "ECN_AQMS",
    "NODE_PATTERN",
    "ROLES",
    "Aqm",
    "Edge",
    "GilbertElliott",
    "Role",
    "Slot",
]

Aqm = Literal["fifo", "fq_codel", "codel", "pie", "fq_pie", "cake", "fq", "red", "sfq", "dualpi2"]
Role = Literal["sender", "receiver", "switch"]
Distribution = Literal["uniform", "normal", "pareto", "paretonormal"]

AQMS: tuple[str, ...] = get_args(Aqm)
ROLES: tuple[str, ...] = get_args(Role)
DISTRIBUTIONS: tuple[str, ...] = get_args(Distribution)

ECN_AQMS = frozenset({"fq_codel", "codel", "pie", "fq_pie", "red", "cake", "dualpi2"})
"""Those that can mark in place of dropping; the last two always do."""

AQM_PARAMS: dict[str, tuple[str, ...]] = {
    "fq_codel": ("target_ms", "interval_ms", "ce_threshold_ms", "flows", "quantum"),
    "codel": ("target_ms", "interval_ms", "ce_threshold_ms"),
    "pie": ("target_ms", "tupdate_ms", "alpha", "beta"),
    "fq_pie": ("target_ms", "tupdate_ms", "alpha", "beta", "flows", "quantum"),
    "cake": ("rtt_ms",),
    "fq": ("quantum", "initial_quantum", "flow_limit"),
    "sfq": ("quantum", "depth", "divisor", "perturb"),
    "red": ("min", "max", "avpkt", "burst", "probability"),
    "dualpi2": ("target_ms", "tupdate_ms"),
}
"""AQM -> the parameters that may be given: tc's own words (tc-codel(8), …), times with _ms after them."""

NODE_PATTERN = r"^[A-Za-z][A-Za-z0-9_]{0,9}$"
"""A node's name: with "-ethN" after it, it fits an interface's 15 characters."""

EDGE_DATA = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

Time = Annotated[float, Field(ge=0, le=MAX_TIME_MS)]
Percent = Annotated[float, Field(ge=0, le=100)]


class GilbertElliott(BaseModel):
    """Loss in bursts: a good and a bad state (E. N. Gilbert, 1960; E. O. Elliott, 1963).

    Attributes
    ----------
    p_pct, r_pct : float
        Chance at each packet to go from good to bad, and from bad to good, above 0.
    loss_bad_pct, loss_good_pct : float
        Loss in the bad state (1 - h) and in the good state (1 - k).
    """

    model_config = EDGE_DATA

    p_pct: Annotated[float, Field(gt=0, le=100)]
    r_pct: Annotated[float, Field(gt=0, le=100)]
    loss_bad_pct: Percent = 100.0
    loss_good_pct: Percent = 0.0

    @property
    def mean_loss_pct(self) -> float:
        """Loss over a long time: each state's loss, weighed by how long it is visited.

        Examples
        --------
        >>> GilbertElliott(p_pct=1.0, r_pct=19.0).mean_loss_pct
        5.0
        """
        return (self.p_pct * self.loss_bad_pct + self.r_pct * self.loss_good_pct) / (self.p_pct + self.r_pct)


class Slot(BaseModel):
    """Packets leave in bunches, as a shared radio sends: a slot opens every `min_ms` to `max_ms`.

    Attributes
    ----------
    min_ms, max_ms : float
        Time between slots, drawn evenly; `max_ms` of 0 means always `min_ms`.
    packets, bytes : int
        What a slot takes at most; 0 for no bound.
    """

    model_config = EDGE_DATA

    min_ms: Annotated[float, Field(gt=0, le=MAX_TIME_MS)]
    max_ms: Time = 0.0
    packets: Annotated[int, Field(ge=0, lt=2**31)] = 0
    bytes: Annotated[int, Field(ge=0, lt=2**31)] = 0

    @model_validator(mode="after")
    def _fields_agree(self) -> "Slot":
        """Refuse times in the wrong order."""
        if self.max_ms and self.max_ms < self.min_ms:
            raise ValueError(f"max_ms {self.max_ms} is below min_ms {self.min_ms}")
        return self


class Edge(BaseModel):
    """One direction of a link.

    Attributes
    ----------
    rate_mbit : float or None
        Rate in 10⁶ bit/s, None where nothing shapes.
    delay_ms, jitter_ms : float
        One-way propagation delay and its variation, at most the delay itself.
    distribution : {"uniform", "normal", "pareto", "paretonormal"}
        How the delay varies: evenly within ± jitter, or with jitter as the deviation (tc-netem(8)).
    reorder : bool
        Whether packets whose delay varies may overtake one another; else a late one holds back those behind.
    loss_pct : float
        Random loss, from 0 to below 100 %.
    gemodel : GilbertElliott or None
        Loss in bursts, in place of `loss_pct`.
    slot : Slot or None
        Packets leave in bunches.
    buffer_bytes : int or None
        Queue before the rate, in bytes of Ethernet frames, at least one frame of 1514. A fifo behind a rate
        must have one: without, it would silently be the kernel's 1000 packets.
    aqm : str
        How that queue is managed, one of `AQMS`.
    aqm_params : mapping
        Its parameters, of `AQM_PARAMS`, numbers at least 0.
    ecn : bool
        Whether the AQM marks packets in place of dropping them; hosts then negotiate ECN.
    bottleneck : bool
        Whether queueing is expected, and measured, here.
    """

    model_config = EDGE_DATA

    rate_mbit: Annotated[float, Field(ge=MIN_RATE_MBIT, le=MAX_RATE_MBIT)] | None = None
    delay_ms: Time = 0.0
    jitter_ms: Time = 0.0
    distribution: Distribution = "uniform"
    reorder: bool = False
    loss_pct: Annotated[float, Field(ge=0, lt=100)] = 0.0
    gemodel: GilbertElliott | None = None
    slot: Slot | None = None
    buffer_bytes: Annotated[int, Field(le=MAX_BUFFER_BYTES)] | None = None
    aqm: Aqm = "fifo"
    aqm_params: dict[str, Annotated[float, Field(ge=0, le=MAX_BUFFER_BYTES)]] = {}
    ecn: bool = False
    bottleneck: bool = False

    @property
    def mean_loss_pct(self) -> float:
        """Loss over a long time, whatever the model."""
        return self.gemodel.mean_loss_pct if self.gemodel else self.loss_pct

    @property
    def needs_netem(self) -> bool:
        """Whether the edge does anything to packets other than queueing them."""
        return bool(self.delay_ms or self.jitter_ms or self.loss_pct or self.gemodel or self.slot)

    @model_validator(mode="after")
    def _fields_agree(self) -> "Edge":
        """Refuse fields that contradict each other."""
        for reason in (*self._queue_problems(), *self._delay_problems()):
            raise ValueError(reason)
        return self

    def _queue_problems(self) -> Iterator[str]:
        """Yield what is wrong with the queue before the rate."""
        size, rate_mbit = self.buffer_bytes, self.rate_mbit
        if size is not None and size < PACKET_BYTES:
            yield f"buffer_bytes {size} is below one packet ({PACKET_BYTES})"
        if size is not None and rate_mbit is None:
            yield f"buffer_bytes {size} needs a rate_mbit before which it fills"
        if size is None and rate_mbit is not None:
            yield f"a {self.aqm} at rate_mbit {rate_mbit} needs its buffer_bytes"
        if self.bottleneck and rate_mbit is None:
            yield "a bottleneck needs a rate_mbit"
        if self.ecn and self.aqm not in ECN_AQMS:
            yield f"ecn needs an aqm that can mark, one of {', '.join(sorted(ECN_AQMS))}, not {self.aqm}"
        for name in self.aqm_params.keys() - set(AQM_PARAMS.get(self.aqm, ())):
            known = ", ".join(AQM_PARAMS.get(self.aqm, ())) or "none"
            yield f"aqm_params {name} is not a parameter of {self.aqm}: there are {known}"

    def _delay_problems(self) -> Iterator[str]:
        """Yield what is wrong with delay and loss."""
        if self.jitter_ms > self.delay_ms:
            yield f"jitter_ms {self.jitter_ms} is above delay_ms {self.delay_ms}"
        if self.loss_pct and self.gemodel:
            yield f"loss_pct {self.loss_pct} and a gemodel are both given: one loss model is enough"
        if self.reorder and not self.jitter_ms:
            yield "reorder needs a jitter_ms that lets packets overtake"
        if self.distribution != "uniform" and not self.jitter_ms:
            yield f"distribution {self.distribution} needs a jitter_ms"
