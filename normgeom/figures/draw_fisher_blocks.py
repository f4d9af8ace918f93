"""A Fisher matrix as a heat map, with its blocks labelled by letter and unit."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import SymLogNorm

DECADES = 3


def draw_fisher_blocks(rows: Sequence[dict[str, Any]], ax: Axes, *, limit: float = 0.0) -> Axes:
    """Draw one Fisher matrix: colour on a signed log scale, a minus sign on negative entries.

    The colours are linear within `limit / 10^3` of 0. The minus sign keeps the sign readable in grey.
    Thick lines part the units, thin ones the blocks of a unit.

    Args:
        rows: one dict a row of the matrix, with `letter` (w, b or g), `unit` and `values`.
        ax: where to draw; the image is `ax.images[0]`, for a colour bar.
        limit: the largest magnitude of the scale, shared by several panels; default: of this matrix.
    """
    matrix = np.array([row["values"] for row in rows])
    limit = limit or float(np.abs(matrix).max())
    scale = SymLogNorm(limit / 10**DECADES, vmin=-limit, vmax=limit)
    image = ax.imshow(matrix, cmap="RdBu_r", norm=scale, aspect="equal", interpolation="nearest")
    for y, x in np.argwhere(matrix < -limit / 10**DECADES):
        red, green, blue, _ = image.cmap(scale(matrix[y, x]))
        dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.48
        ax.text(x, y, "−", ha="center", va="center_baseline", size=5, color="white" if dark else "black")
    labels, places, start = [], [], 0
    for (unit, letter), group in itertools.groupby(rows, key=lambda row: (row["unit"], row["letter"])):
        size = len(list(group))
        labels.append(rf"${letter}_{unit}$")
        places.append(start + (size - 1) / 2)
        start += size
        if start < len(rows):
            last = rows[start]["unit"] != unit
            for line in (ax.axhline, ax.axvline):
                line(start - 0.5, color="#222222" if last else "#999999", lw=0.9 if last else 0.35)
    ax.set_xticks(places, labels)
    ax.set_yticks(places, labels)
    ax.xaxis.tick_top()
    ax.tick_params(length=0, pad=1.5)
    for spine in ax.spines.values():
        spine.set_visible(True)
    return ax
