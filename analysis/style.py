"""How flows look, in every figure and page, and how many points a line needs; no plot library is imported here.

Colour and marker tell the congestion control, the line's number tells flows of the same one apart, so that a picture
reads in grey and with any colour vision.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.series import FlowSeries

__all__ = ["Look", "downsample", "flow_looks", "lightened"]

Array = NDArray[np.float64]

# Okabe & Ito's colours, without the yellow that is lost on white; twins share a colour, not a marker.
CCA_LOOKS = {
    "ndm_tcp": ("#009E73", "o"),
    "bpf_ndm": ("#009E73", "h"),
    "ndm2": ("#CC79A7", "P"),
    "bpf_ndm2": ("#CC79A7", "X"),
    "cubic": ("#0072B2", "s"),
    "reno": ("#E69F00", "^"),
    "bbr": ("#D55E00", "D"),
}
OTHER_LOOKS = (("#56B4E9", "v"), ("#000000", "<"), ("#7F7F7F", ">"), ("#56B4E9", "*"), ("#000000", "p"))
QUEUE_COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7")
BUCKETS = 700


@dataclass(frozen=True)
class Look:
    """How one flow is drawn.

    Attributes
    ----------
    colour, marker : str
        Of its congestion control; the marker by matplotlib's name.
    number : int
        Which flow of its congestion control it is, from 0: chooses the line style.
    phase : float
        Where between two markers the first one sits, 0 to 1, so that flows on one line show both.
    """

    colour: str
    marker: str
    number: int
    phase: float


def cca_looks(ccas: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return colour and marker of each congestion control; unknown ones take the spare looks in order."""
    others = [cca for cca in dict.fromkeys(ccas) if cca not in CCA_LOOKS]
    return CCA_LOOKS | {cca: OTHER_LOOKS[index % len(OTHER_LOOKS)] for index, cca in enumerate(others)}


def flow_looks(flows: Sequence[FlowSeries]) -> dict[str, Look]:
    """Return the look of each flow, by its id."""
    ccas = [flow.cca for flow in flows]
    looks = cca_looks(ccas)
    return {
        flow.flow_id: Look(*looks[flow.cca], ccas[:index].count(flow.cca), index / len(flows))
        for index, flow in enumerate(flows)
    }


def lightened(colour: str, towards_white: float = 0.3) -> str:
    """Return a colour for a dark ground: mixed with white, black turned to a light grey.

    Examples
    --------
    >>> lightened("#000000"), lightened("#0072B2", 0.5)
    ('#E6E6E6', '#7FB8D8')
    """
    if colour == "#000000":
        return "#E6E6E6"
    parts = [int(colour[start : start + 2], 16) for start in (1, 3, 5)]
    return "#" + "".join(f"{int(part + (255 - part) * towards_white):02X}" for part in parts)


def downsample(t_s: Array, values: Array, buckets: int = BUCKETS) -> tuple[Array, Array]:
    """Return at most about 2 points per bucket of equal time, the extremes among them, in order of time.

    A short series comes back as it is. Every bucket keeps its smallest and largest value, so no spike is
    lost; a gap (NaN) is kept where a bucket has nothing else.

    Examples
    --------
    >>> t, v = downsample(np.arange(1000.0), np.where(np.arange(1000) == 500, 9.0, 0.0), buckets=10)
    >>> t.size, float(v.max())
    (11, 9.0)
    """
    if t_s.size <= 2 * buckets:
        return t_s, values
    edges = np.linspace(t_s[0], t_s[-1], buckets + 1)[1:-1]
    starts = np.unique(np.concatenate([[0], np.searchsorted(t_s, edges)]))
    starts = starts[starts < t_s.size]
    kept = np.zeros(t_s.size, bool)
    for signed in (values, -values):
        kept[_first_smallest(np.where(np.isnan(signed), np.inf, signed), starts)] = True
    return t_s[kept], values[kept]


def _first_smallest(values: Array, starts: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return where each bucket's smallest value is, the first when there are several."""
    lengths = np.diff(starts, append=values.size)
    candidates = np.flatnonzero(values == np.repeat(np.minimum.reduceat(values, starts), lengths))
    firsts: NDArray[np.intp] = candidates[np.searchsorted(candidates, starts)]
    return firsts
