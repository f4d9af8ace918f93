"""Curves of training runs: bands over seeds against the step, and rates against the length of the weights."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from normgeom.figures.style import SCALE_COLOURS


def draw_band(
    rows: Sequence[dict[str, Any]],
    ax: Axes,
    *,
    x: str,
    y: str,
    colour: str = SCALE_COLOURS[0],
    line: str = "-",
    label: str | None = None,
) -> Axes:
    """Draw the geometric mean over seeds as a line, from the least to the most of them as a band.

    Args:
        rows: dicts with `seed`, x and y; all seeds have the same x; y > 0.
        ax: where to draw, on log axes.
        x: name of the column along the axis.
        y: name of the column that is drawn.
        colour: of line and band.
        line: its style.
        label: of the line.
    """
    points = sorted({row[x] for row in rows})
    values = np.array([[row[y] for row in rows if row[x] == point] for point in points])
    middle = np.exp(np.log(values).mean(1))
    ax.fill_between(points, values.min(1), values.max(1), color=colour, alpha=0.25, lw=0)
    ax.plot(points, middle, line, color=colour, lw=1.1, label=label)
    ax.set_xscale("log")
    ax.set_yscale("log")
    return ax


def draw_against_norm(
    rows: Sequence[dict[str, Any]],
    ax: Axes,
    *,
    y: str,
    marker: str = "o",
    filled: bool = True,
    size: float = 2,
) -> Axes:
    """Draw a point for every row against the length of the weights, on log axes, a colour for each scale.

    Args:
        rows: dicts with `scale`, `norm` and y.
        ax: where to draw.
        y: name of the column that is drawn.
        marker: of the points.
        filled: whether points are filled.
        size: of the points.
    """
    for colour, scale in zip(SCALE_COLOURS, sorted({row["scale"] for row in rows}), strict=False):
        mine = [row for row in rows if row["scale"] == scale]
        ax.plot(
            [row["norm"] for row in mine],
            [row[y] for row in mine],
            marker,
            ms=size,
            mew=0.5,
            color=colour,
            mfc=colour if filled else "none",
            ls="none",
        )
    ax.set_xscale("log")
    ax.set_yscale("log")
    return ax


def draw_power(
    ax: Axes, *, through: tuple[float, float], exponent: float, ends: tuple[float, float], label: str = ""
) -> Axes:
    """Draw a line of theory, `y = y₀ (x/x₀)^exponent`, and name it at its right end.

    Args:
        ax: where to draw, on log axes.
        through: the point (x₀, y₀).
        exponent: the slope on log axes.
        ends: where along x the line begins and ends.
        label: its name.
    """
    x = np.array(ends)
    y = through[1] * (x / through[0]) ** exponent
    ax.plot(x, y, "--", color="black", lw=0.8, zorder=1)
    if label:
        ax.annotate(
            label, (x[-1], y[-1]), xytext=(-2, 4), textcoords="offset points", size=6, ha="right", va="bottom"
        )
    return ax


def name_ends(
    ax: Axes,
    x: float,
    heights: Sequence[float],
    names: Sequence[str],
    colours: Sequence[str],
    *,
    share: float = 0.45,
) -> Axes:
    """Name curves at their right ends; names that would overlap are moved apart.

    Args:
        ax: where the curves are, on log axes.
        x: where they end.
        heights: their values there.
        names: what they are called.
        colours: of the names.
        share: of the width of the axes, for the names.
    """
    low, high = np.log(ax.get_xlim()[0]), np.log(x)
    ax.set_xlim(right=np.exp(low + (high - low) / (1 - share)))
    bottom, top = np.log(ax.get_ylim())
    places = (np.log(np.array(heights, dtype=float)) - bottom) / (top - bottom)
    gap, order = 0.072, np.argsort(places, kind="stable")
    apart = places.copy()
    for below, above in itertools.pairwise(order):
        apart[above] = max(apart[above], apart[below] + gap)
    over = max(0.0, apart[order[-1]] - 1.0)
    for above, below in itertools.pairwise(order[::-1]):
        apart[above] = min(apart[above], 1.0) if over else apart[above]
        apart[below] = min(apart[below], apart[above] - gap)
    for place, name, colour in zip(apart, names, colours, strict=False):
        height = np.exp(bottom + place * (top - bottom))
        place = {"xytext": (5, 0), "textcoords": "offset points", "va": "center"}
        ax.annotate(name, (x, height), size=6, color=colour, **place)
    _end_axis(ax, x)
    return ax


def _end_axis(ax: Axes, x: float) -> None:
    """Let the axis end where the curves end."""
    ticks = [tick for tick in ax.get_xticks() if ax.get_xlim()[0] <= tick <= x]
    limits = ax.get_xlim()
    ax.set_xticks(ticks)
    ax.set_xticks([], minor=True)
    ax.set_xlim(limits)
    ax.spines["bottom"].set_bounds(limits[0], x)
