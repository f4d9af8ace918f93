"""The zoo as a picture: layers clustered by their pattern of invariances."""

import itertools
import textwrap
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from scipy.cluster.hierarchy import dendrogram, leaves_list, linkage, optimal_leaf_ordering

from normgeom.figures.style import COLOURS

# Fill, ink and mark: dark to light in grey, and a mark of its own each.
LOOK = {
    "invariant": ("#0a5c4a", "#ffffff", "✓"),
    "invariant up to eps": ("#7fbfb0", "#08352b", "≈"),
    "power": ("#f3e3bd", "#5c4300", ""),
    "not invariant": ("#ffffff", "#8a8a8a", "✗"),
    "undecided": ("#ffffff", "#8a8a8a", "?"),
}
GAP = "#333333"


def draw_zoo(rows: Sequence[dict[str, Any]], ax: Axes, tree: Axes | None = None) -> Axes:
    """Draw one line a layer and one cell a transform, layers of one pattern together.

    Layers are clustered by their `distance` (average linkage); a line is drawn where the pattern changes.
    Beside the cells, ⇄ marks a joint symmetry and ∇ a gradient identity that disagrees with the function.

    Args:
        rows: one dict a layer with `layer`, `mode`, `cells` (dicts with `title`, `kind`, `degree`), `joint`,
            `gradient_only` and `gradient_broken` (lists).
        ax: where to draw.
        tree: where to draw the clustering, if given; it shares the lines of `ax`.
    """
    links = clustering(rows)
    ordered = [rows[int(k)] for k in leaves_list(links)]
    titles = [cell["title"] for cell in rows[0]["cells"]]
    for y, row in enumerate(ordered):
        for x, cell in enumerate(row["cells"]):
            _cell(ax, x, y, cell)
        _notes(ax, len(titles), y, row)
        if y and pattern(row) != pattern(ordered[y - 1]):
            ax.plot([0, len(titles)], [y, y], color=GAP, linewidth=0.6, zorder=3)
    ax.set_xlim(0, len(titles) + 1.1)
    ax.set_ylim(len(rows), 0)
    ax.set_xticks([x + 0.5 for x in range(len(titles))], [_wrapped(t) for t in titles], linespacing=1.1)
    ax.set_yticks([y + 0.5 for y in range(len(rows))], [_name(row) for row in ordered])
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    if tree is not None:
        _draw_tree(tree, links, len(rows))
    return ax


def zoo_key() -> list[Patch]:
    """Return the handles of the picture's legend."""
    words = {
        "invariant": "✓ invariant", "invariant up to eps": "≈ invariant up to eps",
        "power": "outputs scale", "not invariant": "✗ no law",
    }  # fmt: skip
    fills = [Patch(facecolor=LOOK[kind][0], edgecolor="#8a8a8a", label=word) for kind, word in words.items()]
    notes = ("⇄ joint symmetry", "∇ gradient identity differs")
    return [*fills, *(Patch(alpha=0, label=word) for word in notes)]


def pattern(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what two layers must share to have one pattern: kind and degree of every cell."""
    return tuple((cell["kind"], cell["degree"]) for cell in row["cells"])


def distance(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Return in how many columns two layers differ.

    A column counts 1/4 if eps alone makes the difference, 1/2 if neither is invariant and they scale apart.
    """
    total = 0.0
    for a, b in zip(one["cells"], other["cells"], strict=True):
        kinds = {a["kind"], b["kind"]}
        if len(kinds) == 1:
            total += 0.0 if a["degree"] == b["degree"] else 0.5
        else:
            total += 0.25 if kinds == {"invariant", "invariant up to eps"} else 1.0
    return total


def clustering(rows: Sequence[dict[str, Any]]) -> np.ndarray:
    """Return SciPy's linkage of the layers by their distance."""
    distances = np.array([distance(a, b) for a, b in itertools.combinations(rows, 2)])
    return np.asarray(optimal_leaf_ordering(linkage(distances, "average"), distances))


def power(degree: int | float) -> str:
    r"""Return a power of delta in mathtext: 1, 2 or a fraction.

    >>> print(power(-0.5))
    $\delta^{-1/2}$
    """
    exponent = Fraction(degree).limit_denominator(8)
    return r"$\delta$" if exponent == 1 else rf"$\delta^{{{exponent}}}$"


def _cell(ax: Axes, x: int, y: int, cell: dict[str, Any]) -> None:
    scales = cell["kind"] == "not invariant" and cell["degree"] is not None
    fill, ink, mark = LOOK["power" if scales else cell["kind"]]
    ax.add_patch(Rectangle((x, y), 1, 1, facecolor=fill, edgecolor="#cfcfcf", linewidth=0.4))
    text = power(cell["degree"]) if scales else mark
    ax.text(x + 0.5, y + 0.54, text, ha="center", va="center", size=_size(ax), color=ink)


def _notes(ax: Axes, x: int, y: int, row: dict[str, Any]) -> None:
    """Mark what a yes or no hides, to the right of the cells."""
    marks = [
        ("⇄", COLOURS[0], row["joint"]),
        ("∇", COLOURS[3], row["gradient_only"] + row["gradient_broken"]),
    ]
    for k, (mark, colour, there) in enumerate(marks):
        if there:
            ax.text(x + 0.3 + 0.5 * k, y + 0.54, mark, ha="center", va="center", size=_size(ax), color=colour)


def _draw_tree(tree: Axes, links: np.ndarray, count: int) -> None:
    """Draw the clustering with its leaves at the rows' middles, which SciPy puts at 5, 15, 25, ..."""
    drawn = dendrogram(links, no_plot=True)
    for heights, places in zip(drawn["dcoord"], drawn["icoord"], strict=True):
        tree.plot(heights, np.array(places) / 10, color=GAP, linewidth=0.6, clip_on=False)
    tree.set_ylim(count, 0)
    tree.set_xlim(-0.02, max(map(max, drawn["dcoord"])) * 1.02)
    tree.set_yticks([])
    tree.set_xticks([0, 1, 2, 3])
    tree.set_xlabel("columns\nthat differ")
    tree.spines[["left", "right", "top"]].set_visible(False)


def _name(row: dict[str, Any]) -> str:
    """The layer's name, and its mode where its statistics are frozen and the name does not say so."""
    frozen = row["mode"] == "eval" and "eval" not in row["layer"] and "running" not in row["layer"]
    return f"{row['layer']} (eval)" if frozen else str(row["layer"])


def _wrapped(title: str) -> str:
    """A heading in lines of at most 11 characters, never broken inside a word."""
    return "\n".join(textwrap.wrap(title, 11, break_long_words=False, break_on_hyphens=False))


def _size(ax: Axes) -> float:
    labels = ax.yaxis.get_ticklabels()
    return float(labels[0].get_fontsize()) if labels else 6.0
