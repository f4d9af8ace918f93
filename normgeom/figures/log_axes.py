"""What a log axis cannot show is masked, counted and said; ticks that read as plain numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes


@dataclass(frozen=True)
class Masked:
    """How many values a log axis cannot show, by kind."""

    nonpositive: int
    nan: int
    infinite: int

    def __str__(self) -> str:
        """Say it in words; empty if there is none.

        >>> str(Masked(2, 1, 0))
        '3 masked: 2 non-positive, 1 NaN'
        """
        kinds = {"non-positive": self.nonpositive, "NaN": self.nan, "infinite": self.infinite}
        named = ", ".join(f"{number} {kind}" for kind, number in kinds.items() if number)
        return f"{sum(kinds.values())} masked: {named}" if named else ""


def mask_for_log(values: Sequence[float | int | None]) -> tuple[np.ndarray, Masked]:
    """Return values with NaN in place of what a log axis cannot show, and how many of each kind that is.

    >>> mask_for_log([1e-3, 0.0, -1e-4, None, 1e-5])
    (array([1.e-03,    nan,    nan,    nan, 1.e-05]), Masked(nonpositive=2, nan=1, infinite=0))
    """
    given = np.array([np.nan if value is None else value for value in values], dtype=float)
    drawable = np.isfinite(given) & (given > 0)
    found = Masked(int((given <= 0).sum()), int(np.isnan(given).sum()), int((given == np.inf).sum()))
    return np.where(drawable, given, np.nan), found


def draw_on_log(x: Sequence[float | int], y: Sequence[float | int | None], ax: Axes, **look: Any) -> Masked:
    """Draw a line on a log y-axis, broken where it cannot be shown, with a note of how many values are not.

    Args:
        x: places of the points.
        y: values; None is NaN.
        ax: where to draw; its y-axis is made logarithmic.
        look: of the line, as in matplotlib.
    """
    shown, found = mask_for_log(y)
    ax.set_yscale("log")
    ax.plot(x, shown, **look)
    if str(found):
        ax.text(0.98, 0.02, str(found), transform=ax.transAxes, size=6, ha="right", va="bottom")
    return found


def plain_log_ticks(ax: Axes) -> None:
    """Write the ticks of a log y-axis as plain numbers, at most about six of them."""
    low, high = ax.get_ylim()
    for steps in ((1, 1.2, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8), (1, 1.5, 2, 3, 4, 5, 7), (1, 2, 5), (1,)):
        wanted = [m * 10.0**e for e in range(-12, 12) for m in steps if low <= m * 10.0**e <= high]
        if len(wanted) <= 6:
            break
    ax.set_yticks(wanted, [f"{value:g}" for value in wanted])
    ax.set_yticks([], minor=True)
