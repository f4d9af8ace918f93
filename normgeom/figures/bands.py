"""Curves over seeds as bands: a seed that diverges is shown, and does not improve the mean."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False)
class Band:
    """Centre and range over seeds at every x; NaN from where a seed has no finite value.

    `count` is the number of finite values at each x, `lost` the last finite place (x, y) of every seed that
    has none at the end.
    """

    x: np.ndarray
    centre: np.ndarray
    low: np.ndarray
    high: np.ndarray
    count: np.ndarray
    lost: dict[Hashable, tuple[float, float]]


def seed_band(rows: Sequence[dict[str, Any]], *, x: str, y: str, geometric: bool = False) -> Band:
    """Return mean, smallest and largest value over seeds at every x.

    A mean over the seeds that are left would change when one diverges, so there is none: where a seed's
    value is NaN, infinite, None or missing, centre and range are NaN and the line breaks.

    Args:
        rows: dicts with `seed` and the names given as x and y.
        x: name of the coordinate.
        y: name of the value.
        geometric: the geometric mean, for values on a log axis; that of a value of 0 is 0.

    >>> rows = [{"seed": s, "step": t, "loss": v} for s, t, v in [(0, 0, 4.0), (0, 1, 2.0), (1, 0, 2.0)]]
    >>> band = seed_band(rows, x="step", y="loss")
    >>> band.centre.tolist(), band.count.tolist(), band.lost
    ([3.0, nan], [2, 1], {1: (0.0, 2.0)})
    """
    places, seeds = sorted({row[x] for row in rows}), list(dict.fromkeys(row["seed"] for row in rows))
    values = np.full((len(seeds), len(places)), np.nan)
    for row in rows:
        if row[y] is not None and np.isfinite(row[y]):
            values[seeds.index(row["seed"]), places.index(row[x])] = row[y]
    count = np.isfinite(values).sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        centre = np.exp(np.log(values).mean(0)) if geometric else values.mean(0)
    lost = {
        seed: _last(np.array(places), mine)
        for seed, mine in zip(seeds, values, strict=True)
        if not np.isfinite(mine[-1])
    }
    return Band(np.array(places, dtype=float), centre, values.min(0), values.max(0), count, lost)


def _last(places: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """The last place with a finite value; NaN if there is none."""
    finite = np.flatnonzero(np.isfinite(values))
    return (float(places[finite[-1]]), float(values[finite[-1]])) if len(finite) else (np.nan, np.nan)


def draw_seed_band(band: Band, ax: Axes, *, colour: str, line: Any = "-", width: float = 1.2) -> int:
    """Draw the centre as a line and the range as a band; return how many x a log y-axis cannot show.

    A cross stands where a seed had its last finite value. On a log axis, places with a value of 0 or below
    are left open.

    Args:
        band: of `seed_band`.
        ax: where to draw; its scales must be set before.
        colour: of line and band.
        line: its style, as in matplotlib.
        width: of the line, in points.
    """
    centre, low, high = band.centre, band.low, band.high
    hidden = np.zeros(len(centre), dtype=bool)
    if ax.get_yscale() == "log":
        hidden = np.isfinite(low) & ~((low > 0) & (centre > 0))
        centre, low, high = (np.where(hidden, np.nan, part) for part in (centre, low, high))
    ax.fill_between(band.x, low, high, color=colour, alpha=0.22, lw=0)
    ax.plot(band.x, centre, ls=line, color=colour, lw=width)
    for place in band.lost.values():
        ax.plot(*place, "x", color=colour, ms=5, mew=1.2)
    return int(hidden.sum())


def draw_seeds(
    values: Sequence[float | None], place: float | int, ax: Axes, *, colour: str, across: bool
) -> None:
    """Draw the values of seeds as small dots, and beside them their mean with a bar of two standard errors.

    A seed that has no finite value leaves its dot, the mean and the bar out.

    Args:
        values: one for each seed; None is NaN.
        place: on the other axis.
        ax: where to draw.
        colour: of all.
        across: whether values go along the x-axis.
    """
    given = np.array([np.nan if value is None else value for value in values], dtype=float)
    error = 2 * given.std(ddof=1) / len(given) ** 0.5 if len(given) > 1 else 0.0
    beside = np.full(len(given), place + 0.23)
    mean = given.mean()
    x, y = (mean, place) if across else (place, mean)
    ax.plot(*((given, beside) if across else (beside, given)), ".", ms=3, color=colour, alpha=0.7)
    along_x, along_y = (error, None) if across else (None, error)
    ax.errorbar(x, y, xerr=along_x, yerr=along_y, fmt="o", ms=4, color=colour, lw=1.2, capsize=2)
