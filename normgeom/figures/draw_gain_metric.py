"""The metric of the gains over the scale of the data, and the printed equations against the exact ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from normgeom.figures.style import COLOURS, MARKERS

FLOOR = 1e-17
LINES = ("-", "--", "-", "--")


def draw_gain_metric(rows: Sequence[dict[str, Any]], ax: Axes) -> Axes:
    """Draw the gain metric over the scale of the data, relative to scale 1, a curve for each method.

    Methods that coincide stay visible: every second one has smaller, open markers.

    Args:
        rows: dicts with `method`, `delta` and `ratio`.
        ax: where to draw, on log axes.
    """
    for k, method in enumerate(dict.fromkeys(row["method"] for row in rows)):
        mine = sorted((row for row in rows if row["method"] == method), key=lambda row: row["delta"])
        deltas, ratios = (np.array([row[key] for row in mine]) for key in ("delta", "ratio"))
        ax.plot(
            deltas, ratios, MARKERS[k] + LINES[k % 4], ms=5.5 - 2.5 * (k % 2), lw=1.6 - 0.7 * (k % 2),
            color=COLOURS[k], mfc="white" if k % 2 else COLOURS[k], mew=0.8, label=method, zorder=2 + k % 2,
        )  # fmt: skip
    ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}" if value >= 1 else f"1/{1 / value:g}")
    return ax


def draw_gain_error(rows: Sequence[dict[str, Any]], ax: Axes) -> Axes:
    """Draw the relative error of each printed equation, a mark for each family; 0 is drawn at 1e-17.

    Args:
        rows: dicts with `method`, `equation`, `family` and `error`.
        ax: where to draw, on a log axis.
    """
    equations = sorted({(row["equation"], row["method"]) for row in rows})
    families = list(dict.fromkeys(row["family"] for row in rows))
    for k, family in enumerate(families):
        mine = {row["equation"]: max(row["error"], FLOOR) for row in rows if row["family"] == family}
        at = np.arange(len(equations)) + 0.15 * (k - (len(families) - 1) / 2)
        ax.plot(
            at, [mine[equation] for equation, _ in equations], MARKERS[k + 2], ms=3.8,
            color=COLOURS[(0, 3, 2, 4)[k % 4]], mfc="white", mew=0.9, label=family,
        )  # fmt: skip
    ax.axhspan(FLOOR / 10, 1e-14, color="#eeeeee", lw=0)
    ax.text(len(equations) - 0.55, 1.4e-14, "rounding", ha="right", va="bottom", size=6, color="#555555")
    ax.set_yscale("log")
    ax.set_ylim(FLOOR / 10, 1e2)
    ax.set_xlim(-0.5, len(equations) - 0.5)
    ax.set_xticks(
        range(len(equations)), [f"eq. {e}\n{method.replace(' ', chr(10))}" for e, method in equations]
    )
    ax.legend(frameon=False, fontsize=6, loc="center right", handletextpad=0.2)
    return ax
