"""Table 1 as a picture: a cell for each layer and transform, its mark, and the deviation behind it."""

import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from normgeom.figures.style import COLOURS

LOOK = {
    "invariant": ("#9bd0c1", "✓", "Invariant"),
    "invariant up to eps": ("#d6ecc4", "≈", "up to eps"),
    "not invariant": ("#f6f3ee", "✗", "No"),
    "undecided": ("#ffffff", "?", "undecided"),
    "": ("#ffffff", "", "–"),
}


def draw_invariances(
    rows: Sequence[dict[str, Any]],
    ax: Axes,
    *,
    layers: Sequence[str] = (),
    titles: Sequence[str] = (),
    group: str = "",
) -> Axes:
    """Draw verdicts as a labelled matrix.

    Each cell shows the verdict and the largest deviation of an output relative to the largest output: for an
    invariance what rounding (or eps) left, for a *No* what the transform did.

    Args:
        rows: one dict a cell with `layer`, `title`, `kind`, `error`, `scaling` (`InvarianceTable.records()`).
        ax: where to draw.
        layers: the order of the rows; as they come if not given.
        titles: the order of the columns; as they come if not given.
        group: a key of the dicts; a line is drawn where its value changes from row to row.
    """
    layers = list(layers) or list(dict.fromkeys(row["layer"] for row in rows))
    titles = list(titles) or list(dict.fromkeys(row["title"] for row in rows))
    cells = {(row["layer"], row["title"]): row for row in rows}
    for y, layer in enumerate(layers):
        for x, title in enumerate(titles):
            _cell(ax, x, y, cells.get((layer, title), {"kind": "", "error": None, "scaling": ""}))
    ax.set_xlim(0, len(titles))
    ax.set_ylim(len(layers), 0)
    ax.set_xticks(
        [x + 0.5 for x in range(len(titles))],
        [_wrapped(t, 15 if len(titles) < 7 else 11) for t in titles],
        linespacing=1.1,
    )
    ax.set_yticks([y + 0.5 for y in range(len(layers))], layers)
    of = {row["layer"]: row.get(group) for row in rows}
    for y in range(1, len(layers)):
        if of[layers[y]] != of[layers[y - 1]]:
            ax.axhline(y, color="#333333", linewidth=0.8, xmin=-0.02, clip_on=False)
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    return ax


def _cell(ax: Axes, x: int, y: int, row: dict[str, Any]) -> None:
    """Fill one cell; a broken invariance is hatched, so that the picture reads in grey."""
    fill, mark, word = LOOK[row["kind"]]
    broken = row["kind"] == "not invariant"
    ax.add_patch(
        Rectangle(
            (x, y), 1, 1, facecolor=fill, edgecolor="white", linewidth=1.5, hatch="////" if broken else None
        )
    )
    if broken:
        ax.patches[-1].set_edgecolor("#e4ded4")
        ax.add_patch(Rectangle((x, y), 1, 1, fill=False, edgecolor="white", linewidth=1.5))
    size = float(ax.xaxis.get_ticklabels()[0].get_fontsize()) if ax.xaxis.get_ticklabels() else 7.0
    colour = COLOURS[3] if broken else "#0b3d2e"
    ax.text(x + 0.5, y + 0.36, f"{mark} {word}".strip(), ha="center", va="center", size=size, color=colour)
    below = ", ".join(filter(None, [_number(row.get("error")), _law(row.get("scaling", ""))]))
    ax.text(x + 0.5, y + 0.72, below, ha="center", va="center", size=size * 0.85, color="#444444")


def _law(scaling: str) -> str:
    """The scaling law in mathtext."""
    return scaling.replace("∝δ", r"$\propto\delta$") if scaling else ""


def _number(value: float | None) -> str:
    """A deviation to one digit: 4e-16 as a power of ten, others plainly."""
    if value is None:
        return ""
    if value == 0:
        return "0"
    if value < 1e-2 or value >= 1e3:
        digit, power = f"{value:.0e}".split("e")
        return rf"${digit}\cdot10^{{{int(power)}}}$"
    return f"{value:.2g}"


def _wrapped(title: str, width: int) -> str:
    """A heading in lines of at most `width` characters, never broken inside a word."""
    return "\n".join(textwrap.wrap(title, width, break_long_words=False, break_on_hyphens=False))
