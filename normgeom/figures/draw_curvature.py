"""The size of every block of a Fisher matrix against the length of the weights."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from normgeom.figures.style import COLOURS, MARKERS

BLOCKS = ("ww", "wb", "wg", "bb", "bg", "gg")


def draw_curvature(rows: Sequence[dict[str, Any]], ax: Axes) -> Axes:
    """Draw the size of each block on log axes: points measured, lines with the slope of theory.

    A line passes through the point at delta = 1. Where theory has no power law, a dotted line joins the
    points. The fitted slopes stand in the lower left corner.

    Args:
        rows: dicts with `block`, `delta`, `length`, `size`, `theory` and `fitted` (None: no power law).
        ax: where to draw.
    """
    slopes: dict[str, list[str]] = {}
    for k, block in enumerate(BLOCKS):
        mine = sorted((row for row in rows if row["block"] == block), key=lambda row: row["delta"])
        if not mine:
            continue
        size, length = (np.array([row[key] for row in mine]) for key in ("size", "length"))
        ax.plot(
            length, size, MARKERS[k], ms=3.2, color=COLOURS[k], mfc="white", mew=0.8, label=block, zorder=3
        )
        middle, theory = min(mine, key=lambda row: abs(np.log(row["delta"]))), mine[0]["theory"]
        line = size if theory is None else middle["size"] * (length / middle["length"]) ** theory
        ax.plot(length, line, ":" if theory is None else "-", lw=0.9, color=COLOURS[k])
        fit = mine[0]["fitted"]
        text = "no power law" if fit is None else f"{round(fit, 3) + 0.0:.3f}"
        slopes.setdefault(text.replace("-", "−"), []).append(block)
    text = "\n".join(f"{', '.join(blocks)}: {slope}" for slope, blocks in slopes.items())
    ax.text(
        0.04, 0.04, f"fitted slopes\n{text}", transform=ax.transAxes, size=6, va="bottom", linespacing=1.25
    )
    ax.set_xscale("log")
    ax.set_yscale("log")
    return ax
