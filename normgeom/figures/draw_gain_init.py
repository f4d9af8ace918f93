"""Initial gains of 1.0 and 0.1: curves of the held-out bits, and what the small gain costs at their end."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from normgeom.figures.bands import draw_seed_band, draw_seeds, seed_band
from normgeom.figures.labels import label_ends
from normgeom.figures.log_axes import plain_log_ticks
from normgeom.figures.style import COLOURS

NAMES = {"none": "1.0", "all": "0.1", "input": "I", "recurrent": "R", "cell": "C"}
INK = {"none": COLOURS[0], "all": COLOURS[3], "input": "#666666", "recurrent": "#666666", "cell": "#666666"}
LINES = {"none": "-", "all": (0, (4, 1.5))}


def draw_gain_curves(rows: Sequence[dict[str, Any]], ax: Axes) -> Axes:
    """Draw held-out bits against the step: all gains at 1.0, all at 0.1, and one alone at 0.1 (dotted).

    Args:
        rows: dicts with `small` (`none`, `all` or the place of a norm), `seed`, `step` and `bits`.
        ax: where to draw, the bits on a log axis.
    """
    ax.set_yscale("log")
    ends = []
    for small in [name for name in reversed(NAMES) if name in {row["small"] for row in rows}]:
        band = seed_band([r for r in rows if r["small"] == small and r["step"] > 0], x="step", y="bits")
        if small in LINES:
            draw_seed_band(band, ax, colour=INK[small], line=LINES[small])
        else:
            ax.plot(band.x, band.centre, ":", color=INK[small], lw=0.8)
        ends.append((NAMES[small], float(band.centre[-1]), INK[small]))
    plain_log_ticks(ax)
    label_ends(ends, ax, gap=0.075)
    return ax


def draw_gain_costs(rows: Sequence[dict[str, Any]], ax: Axes) -> Axes:
    """Draw what each choice of small gains costs: seeds as dots, their mean, a bar of two standard errors.

    Args:
        rows: dicts with `small`, `seed` and `cost` (bits).
        ax: where to draw.
    """
    ax.axhline(0, color="#999999", lw=0.8)
    there = [small for small in NAMES if small in {row["small"] for row in rows}]
    for k, small in enumerate(there):
        values = [row["cost"] for row in rows if row["small"] == small]
        draw_seeds(values, k, ax, colour=INK[small], across=False)
    ax.set_xticks(range(len(there)), ["all" if small == "all" else NAMES[small] for small in there])
    ax.set_xlim(-0.5, len(there) - 0.3)
    return ax
