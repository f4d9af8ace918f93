"""Recurrent states over steps, gradients in them over the distance from the loss, and how fast these grow."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from normgeom.figures.bands import Band, draw_seed_band, seed_band
from normgeom.figures.labels import label_ends
from normgeom.figures.log_axes import Masked, mask_for_log
from normgeom.figures.style import COLOURS, MARKERS


def _shades(scales: Sequence[float]) -> dict[float, str]:
    """A colour for each scale, light to dark."""
    colours = sns.color_palette("flare", len(scales)).as_hex()
    return dict(zip(scales, colours, strict=True))


def _finish(bands: dict[float, Band], ax: Axes, limits: tuple[float, float]) -> None:
    ax.set_ylim(*limits)
    ax.margins(x=0.02)
    _name_scales(bands, ax)


def _by_scale(rows: Sequence[dict[str, Any]], x: str, y: str) -> dict[float, Band]:
    return {
        scale: seed_band([row for row in rows if row["scale"] == scale], x=x, y=y, geometric=True)
        for scale in sorted({row["scale"] for row in rows})
    }


def draw_states_over_steps(rows: Sequence[dict[str, Any]], ax: Axes, *, limits: tuple[float, float]) -> Axes:
    """Draw the size of a hidden unit against the step, on log axes, a band for each scale of the weight.

    Args:
        rows: dicts with `scale`, `seed`, `step` and `size`.
        ax: where to draw.
        limits: of the y-axis.
    """
    ax.set_xscale("log")
    ax.set_yscale("log")
    bands = _by_scale(rows, "step", "size")
    for scale, colour in _shades(list(bands)).items():
        draw_seed_band(bands[scale], ax, colour=colour)
    _finish(bands, ax, limits)
    ax.set_xlabel("step $t$")
    return ax


def draw_gradients_over_distance(
    rows: Sequence[dict[str, Any]], ax: Axes, *, limits: tuple[float, float]
) -> Masked:
    """Draw the gradient's norm against the distance, on a log axis; return what the axis cannot show.

    The number of these values is written into the panel, and a line ends with a triangle where the gradient
    becomes 0 in floating point.

    Args:
        rows: dicts with `scale`, `seed`, `distance` and `gradient`.
        ax: where to draw.
        limits: of the y-axis.
    """
    ax.set_yscale("log")
    ax.axhline(1, color="#999999", lw=0.6)
    bands = _by_scale(rows, "distance", "gradient")
    for scale, colour in _shades(list(bands)).items():
        band = bands[scale]
        draw_seed_band(band, ax, colour=colour)
        zero = np.flatnonzero(band.centre <= 0)
        if len(zero) and zero[0] > 0:
            last = max(band.centre[zero[0] - 1], limits[0])
            ax.plot(band.x[zero[0] - 1], last, "v", color=colour, ms=4, clip_on=False)
    _finish(bands, ax, limits)
    found = mask_for_log([row["gradient"] for row in rows])[1]
    if str(found):
        note = str(found).replace(": ", ":\n").replace(", ", ",\n").replace("non-", "non-\n")
        ax.text(0.04, 0.98, note, transform=ax.transAxes, size=4.8, va="top")
    ax.set_xlabel("distance $d$")
    return found


def _name_scales(bands: dict[float, Band], ax: Axes) -> None:
    """Write the scale next to the end of its line; lines that end within 4 % of the height share a name."""
    shades, groups = _shades(list(bands)), list[list[tuple[float, float]]]()
    low, high = np.log(ax.get_ylim())
    ends = [(scale, float(band.centre[-1])) for scale, band in bands.items() if band.centre[-1] > 0]
    for scale, value in sorted(ends, key=lambda end: end[1]):
        near = groups and np.log(value / groups[-1][-1][1]) < 0.04 * (high - low)
        groups[-1].append((scale, value)) if near else groups.append([(scale, value)])
    labels = []
    for group in groups:
        scales = sorted(scale for scale, _ in group)
        name = f"{scales[0]:g}" + (f"–{scales[-1]:g}" if len(group) > 1 else "")
        labels.append((f"δ {name}", group[len(group) // 2][1], shades[scales[len(group) // 2]]))
    label_ends(labels, ax, gap=0.07, indent=0.05, size=5.5)


def draw_growth_rates(rows: Sequence[dict[str, Any]], ax: Axes) -> Axes:
    """Draw the slope of each cell's gradient against the scale of the weight: means and ranges over seeds.

    Cells without a norm are open, those with one filled; theory, where there is one, is a line, else points
    are joined by dots. A scale at which a seed has no slope is left out.

    Args:
        rows: dicts with `cell`, `scale`, `seed`, `rate` and `theory` (None: there is none).
        ax: where to draw.
    """
    ax.set_xscale("log", base=2)
    ax.axhline(0, color="#999999", lw=0.8)
    ends = []
    for k, cell in enumerate(dict.fromkeys(row["cell"] for row in rows)):
        mine = [row for row in rows if row["cell"] == cell]
        band, theory = seed_band(mine, x="scale", y="rate"), {r["scale"]: r["theory"] for r in mine}
        error = [band.centre - band.low, band.high - band.centre]
        ax.errorbar(
            band.x, band.centre, yerr=error, fmt=MARKERS[k], ms=3.8, lw=0.8, color=COLOURS[k], mew=0.9,
            mfc=COLOURS[k] if cell.startswith("LN") else "white", capsize=1.5,
        )  # fmt: skip
        known = None not in theory.values()
        line = [theory[scale] for scale in sorted(theory)] if known else band.centre
        ax.plot(band.x, line, "-" if known else ":", lw=0.9, color=COLOURS[k])
        ends.append((cell.replace(", ", "\n"), float(band.centre[-1]), COLOURS[k]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if any(row["theory"] is not None for row in rows):
        ax.text(
            0.97,
            0.04,
            "points: measured\nlines: mean-field theory",
            transform=ax.transAxes,
            size=6,
            ha="right",
        )
    label_ends(ends, ax, gap=0.13, indent=0.04)
    return ax
