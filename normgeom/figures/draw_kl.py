"""KL against its quadratic form over step sizes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from normgeom.figures.style import COLOURS, MARKERS


def draw_kl(rows: Sequence[dict[str, Any]], ax: Axes) -> Axes:
    """Draw the difference of KL and its quadratic form on log axes, a curve for each norm.

    The upper line is the quadratic form, slope 2; the dashed line has slope 3, for the eye. Markers without
    a line are rounding, which the lower right corner names.

    Args:
        rows: dicts with `norm`, `size`, `quadratic`, `difference` and `order` (None: rounding only).
        ax: where to draw.
    """
    sizes = np.array(sorted({row["size"] for row in rows}))
    first = sorted((row for row in rows if row["norm"] == rows[0]["norm"]), key=lambda row: row["size"])
    ax.plot(
        sizes,
        [row["quadratic"] for row in first],
        "-",
        color="black",
        lw=1.3,
        label="quadratic form (slope 2)",
    )
    ax.plot(sizes, 0.5 * sizes**3, "--", color="#666666", lw=0.9, label="slope 3, for the eye")
    for k, norm in enumerate(dict.fromkeys(row["norm"] for row in rows)):
        mine = sorted((row for row in rows if row["norm"] == norm), key=lambda row: row["size"])
        difference = np.array([row["difference"] for row in mine])
        seen = difference > 0
        line = "" if mine[0]["order"] is None else "-"
        ax.plot(
            sizes[seen], difference[seen], MARKERS[k] + line, ms=3.0, lw=0.7, color=COLOURS[k], mfc="white",
            mew=0.8, label=f"|KL − quadratic|, {norm}",
        )  # fmt: skip
    exact = dict.fromkeys(f"{row['norm']}: rounding" for row in rows if row["order"] is None)
    ax.text(0.97, 0.04, "\n".join(exact), transform=ax.transAxes, ha="right", size=6.5)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    return ax
