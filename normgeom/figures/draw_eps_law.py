"""How far eps breaks an invariance, measured against the exact law, over the scale delta."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from normgeom.figures.style import COLOURS, MARKERS


def draw_eps_law(rows: Sequence[dict[str, Any]], ax: Axes) -> Axes:
    """Draw the deviation of the outputs under `W -> delta W` for several eps: points measured, lines the law.

    The law is `z'/z = delta sqrt(v + eps)/sqrt(delta^2 v + eps)`, v the variance; at eps = 0 only rounding
    is left.

    Args:
        rows: dicts with `eps`, `delta`, `measured`, `law` (relative to the largest output).
        ax: where to draw, on log axes.
    """
    for k, eps in enumerate(sorted({row["eps"] for row in rows})):
        mine = sorted((row for row in rows if row["eps"] == eps), key=lambda row: row["delta"])
        delta = np.array([row["delta"] for row in mine])
        measured = np.array([row["measured"] for row in mine])
        law = np.array([row["law"] for row in mine])
        colour = "#777777" if eps == 0 else COLOURS[k - 1]
        label = "eps = 0 (rounding)" if eps == 0 else f"eps = {eps:g}"
        seen = measured > 0
        ax.plot(
            delta[seen], measured[seen], MARKERS[k], ms=2.6, color=colour, mfc="none", mew=0.7, label=label
        )
        if eps:
            ax.plot(delta, law, "-", lw=1.0, color=colour)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(1e-17, 10)
    ax.set_xticks([1e-4, 1e-2, 1, 1e2, 1e4])
    ax.set_yticks([1e-16, 1e-12, 1e-8, 1e-4, 1])
    ax.minorticks_off()
    return ax
