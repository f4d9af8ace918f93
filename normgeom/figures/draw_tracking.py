"""What a tracker saw: a quantity against the step, and the effective learning rate against the norm."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from normgeom.figures.style import COLOURS, MARKERS

Rows = Sequence[dict[str, Any]] | pd.DataFrame
LOOKS = ("-", "--", "-.", ":")
NAMES = {
    "norm": "‖w‖",
    "gradient_norm": "‖∇‖",
    "cosine": "cosine of weight and gradient",
    "update_norm": "‖Δw‖",
    "relative_update": "‖Δw‖ / ‖w‖",
    "angular_update": "angular update (rad)",
    "effective_learning_rate": "effective learning rate",
    "column_sum": "‖1ᵀW‖",
    "column_drift": "‖1ᵀW − 1ᵀW₀‖",
    "sigma": "σ of the summed inputs",
    "nats": "nats moved by a step",
    "curvature": "ΔwᵀFΔw",
}


def draw_tracking(
    rows: Rows,
    ax: Axes | None = None,
    *,
    quantity: str = "norm",
    theory: Rows = (),
    log: bool = True,
) -> Axes:
    """Draw a quantity of every block against the step; a line has a colour and a look of its own.

    Args:
        rows: the frame of a tracker, or dicts with `step`, `block` and the quantity; NaN leaves a gap. With
            `low` and `high`, a band.
        ax: where to draw; default a new figure, whose blocks a legend names.
        quantity: the column.
        theory: dicts with `block`, `step` and the quantity, drawn as a thin black line beside the block's.
        log: whether the vertical axis is logarithmic.
    """
    ax, is_new = (ax, False) if ax is not None else (_new_axes(), True)
    for k, (block, mine) in enumerate(_by_block(rows).items()):
        steps, values = _column(mine, "step"), _column(mine, quantity)
        colour = COLOURS[k % len(COLOURS)]
        ax.plot(steps, values, LOOKS[k % len(LOOKS)], lw=1.1, label=block, color=colour)
        if {"low", "high"} <= mine[0].keys():
            band = _column(mine, "low"), _column(mine, "high")
            ax.fill_between(steps, *band, color=colour, alpha=0.2, lw=0)
    for place, (_, mine) in enumerate(_by_block(theory).items()):
        label = "theory" if place == 0 else None
        ax.plot(_column(mine, "step"), _column(mine, quantity), color="black", lw=0.7, label=label)
    ax.set_xlabel("step")
    ax.set_ylabel(NAMES.get(quantity, quantity))
    if log:
        ax.set_yscale("log")
    if is_new:
        ax.legend()
    return ax


def draw_rate_against_norm(
    rows: Rows,
    ax: Axes | None = None,
    *,
    power: float | int | None = None,
    quantity: str = "angular_update",
) -> Axes:
    """Draw the angular update (or another rate) against the norm on log axes, points of every block.

    Args:
        rows: the frame of a tracker, or dicts with `block`, `norm` and the quantity; rows in which either is
            NaN or 0 are left out.
        ax: where to draw; default a new figure with a legend.
        power: the slope that theory gives, −2 for SGD and −1 for Adam: a black line through each block's
            geometric mean; the slope fitted to each block stands in the legend.
        quantity: the column.
    """
    ax, is_new = (ax, False) if ax is not None else (_new_axes(), True)
    for k, (block, mine) in enumerate(_by_block(rows).items()):
        norms, values = _column(mine, "norm"), _column(mine, quantity)
        known = (norms > 0) & (values > 0)
        norms, values = norms[known], values[known]
        if not len(norms):
            continue
        marker, colour = MARKERS[k % len(MARKERS)], COLOURS[k % len(COLOURS)]
        label = _fitted(block, norms, values)
        ax.plot(norms, values, marker, ms=2.6, mfc="white", mew=0.7, color=colour, label=label)
        if power is not None:
            middle, ends = np.exp(np.log(norms).mean()), np.array([norms.min(), norms.max()])
            line = np.exp(np.log(values).mean()) * (ends / middle) ** power
            text = f"theory: slope {power:g}".replace("-", "−")
            once = None if text in ax.get_legend_handles_labels()[1] else text
            ax.plot(ends, line, color="black", lw=0.9, label=once, zorder=3)
    ax.set_xlabel(NAMES["norm"])
    ax.set_ylabel(NAMES.get(quantity, quantity))
    ax.set_xscale("log")
    ax.set_yscale("log")
    if is_new:
        ax.legend()
    return ax


def _new_axes() -> Axes:
    return plt.subplots(layout="constrained")[1]


def _fitted(block: str, norms: np.ndarray, values: np.ndarray) -> str:
    """The block with the slope of its points, if they are apart enough to have one."""
    if np.ptp(np.log(norms)) < 0.01:
        return block
    slope = np.polyfit(np.log(norms), np.log(values), 1)[0]
    return f"{block}: {slope:.2f}".replace(": -", ": −")


def _by_block(rows: Rows) -> dict[str, list[dict[str, Any]]]:
    """Rows by block, in the order in which blocks come first, each by its step if it has one."""
    found: dict[str, list[dict[str, Any]]] = {}
    each: Any = rows.to_dict("records") if isinstance(rows, pd.DataFrame) else rows
    for row in each:
        found.setdefault(str(row["block"]), []).append(row)
    return {block: sorted(mine, key=lambda row: row.get("step", 0)) for block, mine in found.items()}


def _column(rows: Sequence[dict[str, Any]], name: str) -> np.ndarray:
    return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=float)
