"""How far eq. 13 as printed is from the exact Fisher matrix, over the number of units."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from normgeom.figures.style import COLOURS, MARKERS

FLOOR = 1e-18


def draw_eq13_gap(rows: Sequence[dict[str, Any]], ax: Axes) -> Axes:
    """Draw the relative Frobenius error of the weights' part against the number of units.

    Args:
        rows: dicts with `norm`, `units`, `error` (mean over cases), `one case`, `law` (the error of one
            case for many units) and `law name`.
        ax: where to draw, on log axes.
    """
    for k, norm in enumerate(dict.fromkeys(row["norm"] for row in rows)):
        mine = sorted((row for row in rows if row["norm"] == norm), key=lambda row: row["units"])
        units = np.array([row["units"] for row in mine])
        law = mine[0]["law name"]
        ax.plot(units, [r["law"] for r in mine], "-", lw=0.9, color=COLOURS[k], label=f"{norm}: {law}")
        for key, marker, fill in (("one case", MARKERS[2 * k], "white"), ("error", MARKERS[2 * k + 1], None)):
            label = f"{norm}, {'F of one case' if key == 'one case' else 'F, mean over cases'}"
            ax.plot(
                units, [r[key] for r in mine], marker, ms=3.4, color=COLOURS[k], mfc=fill or COLOURS[k],
                mew=0.8, label=label,
            )  # fmt: skip
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    return ax


def draw_null_curvature(rows: Sequence[dict[str, Any]], ax: Axes) -> Axes:
    """Draw the curvature along directions that leave the outputs unchanged, printed and exact.

    Args:
        rows: dicts with `norm`, `units`, `direction`, `printed` and `exact`, over the mean eigenvalue of the
            printed weights' part; magnitudes below 1e-18 are drawn there.
        ax: where to draw, on log axes.
    """
    names = list(dict.fromkeys((row["norm"], row["direction"]) for row in rows))
    for k, (norm, direction) in enumerate(names):
        mine = sorted(
            (row for row in rows if (row["norm"], row["direction"]) == (norm, direction)),
            key=lambda row: row["units"],
        )
        units = [row["units"] for row in mine]
        for key, fill in (("printed", COLOURS[k]), ("exact", "white")):
            values = [max(abs(row[key]), FLOOR) for row in mine]
            ax.plot(
                units, values, MARKERS[k] + "-", ms=3.4, lw=0.7, color=COLOURS[k], mfc=fill, mew=0.8,
                label=f"{norm}, along {direction}" if key == "printed" else None,
            )  # fmt: skip
    middle = sorted(row["units"] for row in rows)[len(rows) // 2]
    ax.text(middle, 8, "eq. 13 as printed (filled)", ha="center", va="bottom", size=6.5)
    ax.text(middle, 4e-15, "exact (open): zero to rounding", ha="center", va="bottom", size=6.5)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    return ax
