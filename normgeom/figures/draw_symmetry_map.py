"""The symmetries of a model as a matrix: a row for every block, a column for every symmetry."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from normgeom.figures.style import COLOURS

LOOKS = {"single": (COLOURS[2], "✓"), "dead": ("0.6", "†"), "up": (COLOURS[0], ""), "down": (COLOURS[3], "")}


def new_axes(rows: Sequence[dict[str, Any]]) -> Axes:
    """Return axes of a new figure, large enough for the labels of these rows."""
    blocks, symmetries = _names(rows, "block"), _names(rows, "symmetry")
    width = 1.0 + 0.09 * max(map(len, blocks)) + 0.26 * len(symmetries)
    _, ax = plt.subplots(figsize=(width, 2.4 + 0.17 * len(blocks)), layout="constrained")
    return ax


def draw_symmetry_map(rows: Sequence[dict[str, Any]], ax: Axes) -> Axes:
    """Draw blocks against symmetries; a cell holds the exponent, or says that the block is free by itself.

    Args:
        rows: dicts with `block`, `module`, `symmetry`, `kind` (`single`, `dead` or `joint`) and `power`, as
            `SymmetryMap.rows` gives them.
        ax: where to draw.
    """
    blocks, symmetries = _names(rows, "block"), _names(rows, "symmetry")
    modules = {row["block"]: row["module"] for row in rows}
    for row in rows:
        if row["power"]:
            _cell(ax, symmetries.index(row["symmetry"]), blocks.index(row["block"]), row)
    singles = len({row["symmetry"] for row in rows if row["kind"] != "joint"})
    ax.axvline(singles - 0.5, color="black", lw=0.8)
    for k in range(1, len(blocks)):
        edge = modules[blocks[k]] != modules[blocks[k - 1]]
        ax.axhline(k - 0.5, color="0.6" if edge else "0.9", lw=0.5, zorder=0)
    for k in range(1, len(symmetries)):
        ax.axvline(k - 0.5, color="0.9", lw=0.5, zorder=0)
    ax.set_xticks(range(len(symmetries)), [_short(name) for name in symmetries], rotation=90, fontsize=6)
    ax.set_yticks(range(len(blocks)), blocks, fontsize=6)
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.set_xlim(-0.5, len(symmetries) - 0.5)
    ax.set_ylim(len(blocks) - 0.5, -0.5)
    ax.set_title("✓ free by itself   † no influence   ±k: scaled by c^±k, or shifted by ±k v", fontsize=6)
    return ax


def _cell(ax: Axes, x: int, y: int, row: dict[str, Any]) -> None:
    power = int(row["power"])
    look = row["kind"] if row["kind"] != "joint" else "up" if power > 0 else "down"
    colour, sign = LOOKS[look]
    hatch = "////" if look == "down" else None
    patch = Rectangle((x - 0.45, y - 0.45), 0.9, 0.9, fc=colour, alpha=0.45, ec="white", hatch=hatch, lw=0)
    ax.add_patch(patch)
    ax.text(x, y, sign or f"{power:+d}".replace("-", "−"), ha="center", va="center", fontsize=6)


def _names(rows: Sequence[dict[str, Any]], key: str) -> list[str]:
    return list(dict.fromkeys(str(row[key]) for row in rows))


def _short(name: str) -> str:
    """The rule without what follows its colon, cut where it would crowd out the matrix."""
    name = name.partition(":")[0]
    return name if len(name) <= 34 else name[:33] + "…"
