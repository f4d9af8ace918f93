"""The eigenvalues of Fisher matrices, largest first, with the null dimension marked."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from normgeom.figures.style import COLOURS

FLOOR = 1e-21
LOOKS = (("-", 1.4), ("--", 1.1), (":", 1.4))


def draw_spectrum(rows: Sequence[dict[str, Any]], ax: Axes) -> Axes:
    """Draw one spectrum a norm on a log axis; magnitudes below 1e-21 are drawn there.

    A vertical line with a label marks the rank that the symmetries leave: the eigenvalues to the right of
    it are zero to rounding.

    Args:
        rows: dicts with `norm`, `index` (from 1), `eigenvalue` and `rank`.
        ax: where to draw.
    """
    for k, norm in enumerate(dict.fromkeys(row["norm"] for row in rows)):
        mine = sorted((row for row in rows if row["norm"] == norm), key=lambda row: row["index"])
        values, rank = np.array([row["eigenvalue"] for row in mine]), mine[0]["rank"]
        look, width = LOOKS[k % len(LOOKS)]
        index = np.arange(1, len(values) + 1)
        ax.plot(index, np.maximum(np.abs(values), FLOOR), look, lw=width, color=COLOURS[k], label=norm)
        ax.axvline(rank + 0.5, color=COLOURS[k], lw=0.8, ls=look)
        ax.text(
            rank - 6, 10.0 ** (-12.5 - 3 * k), f"{norm}: {len(values) - rank} null", ha="right", va="center",
            size=6.5, color=COLOURS[k],
        )  # fmt: skip
    ax.set_yscale("log")
    ax.set_ylim(FLOOR / 3, 10)
    ax.legend(frameon=False, fontsize=7, loc="lower left")
    return ax
