"""The eigenvalues of Fisher matrices, smallest first, with the null dimension marked."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from normgeom.figures.style import COLOURS

FLOOR = 1e-21
LOOKS = (("-", 1.4), ("--", 1.1), (":", 1.4))


def draw_spectrum(rows: Sequence[dict[str, Any]], ax: Axes) -> Axes:
    """Draw one spectrum a norm on log axes, by magnitude, smallest first; below 1e-21 at 1e-21.

    A vertical line with a label marks the null dimension that the symmetries make: the eigenvalues to the
    left of it are zero to rounding.

    Args:
        rows: dicts with `norm`, `eigenvalue`, `rank`, and `accuracy` (a share of 1), which the legend tells.
        ax: where to draw.
    """
    for k, norm in enumerate(dict.fromkeys(row["norm"] for row in rows)):
        mine = [row for row in rows if row["norm"] == norm]
        values = np.sort(np.maximum(np.abs([row["eigenvalue"] for row in mine]), FLOOR))
        null = len(values) - mine[0]["rank"]
        label = f"{norm}: {100 * mine[0]['accuracy']:.1f} % correct"
        look, width = LOOKS[k % len(LOOKS)]
        ax.plot(np.arange(1, len(values) + 1), values, look, lw=width, color=COLOURS[k], label=label)
        ax.axvline(null + 0.5, color=COLOURS[k], lw=0.7, ls=look)
        ax.text(
            null + 0.5, 10.0 ** (-9 - 2.5 * k), f"{null} null", ha="center", va="center", size=6.5,
            color=COLOURS[k], bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
        )  # fmt: skip
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(FLOOR / 3, 1e4)
    ax.legend(facecolor="white", edgecolor="none", framealpha=1, fontsize=7, loc="upper left")
    return ax
