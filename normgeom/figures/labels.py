"""Names at the ends of lines, moved apart where they would overlap."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import blended_transform_factory


def label_ends(
    ends: Sequence[tuple[str, float, str]],
    ax: Axes,
    *,
    gap: float,
    indent: float = 0.07,
    size: float = 6,
    heading: str = "",
) -> None:
    """Write a name to the right of the axes for each line, joined to the line's end.

    Names stand in the order of the values. A line that has no finite value at its end gets none. The limits
    of the y-axis must be set before.

    Args:
        ends: name, last value and colour of each line.
        ax: with lines that end at the right edge.
        gap: least distance of two names, as a part of the height of the axes.
        indent: distance of names from the axes, as a part of the width.
        size: of the font.
        heading: what stands above the names.
    """
    scale = np.log if ax.get_yscale() == "log" else np.asarray
    low, high = scale(ax.get_ylim())
    shown = [end for end in ends if np.isfinite(end[1])]
    heights = [float((scale(value) - low) / (high - low)) for _, value, _ in shown]
    places = spread(heights, gap)
    places = places - min(0.0, places.min(initial=0.0))
    drawn = [np.asarray(line.get_xdata()) for line in ax.lines]
    right = max((x.max() for x in drawn if len(x) > 2), default=1.0)
    edge = blended_transform_factory(ax.transData, ax.transAxes)
    for (name, _, colour), height, place in zip(shown, heights, places, strict=True):
        ax.annotate(
            name, (right, height), xycoords=edge, xytext=(1 + indent, place), textcoords=ax.transAxes,
            va="center", size=size, color=colour, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "lw": 0.4, "color": colour, "shrinkA": 0.5, "shrinkB": 1},
        )  # fmt: skip
    ax.text(
        1 + indent, places.max(initial=0.0) + gap, heading, transform=ax.transAxes, size=size, va="center"
    )


def spread(values: Sequence[float], gap: float) -> np.ndarray:
    """Return places for labels next to values, in their order, at least a gap apart.

    >>> spread([0.0, 0.1, 5.0], 1.0).tolist()
    [-0.45, 0.55, 5.0]
    """
    if not len(values):
        return np.zeros(0)
    order = np.argsort(values, kind="stable")
    wanted = np.asarray(values, dtype=float)[order]
    groups: list[tuple[float, int]] = []  # centre and size of labels that touch
    for value in wanted:
        groups.append((float(value), 1))
        while len(groups) > 1 and groups[-1][0] - groups[-2][0] < gap * (groups[-1][1] + groups[-2][1]) / 2:
            (upper, many), (lower, few) = groups.pop(), groups.pop()
            groups.append(((upper * many + lower * few) / (many + few), many + few))
    places = np.concatenate([centre + gap * (np.arange(size) - (size - 1) / 2) for centre, size in groups])
    result = np.empty_like(places)
    result[order] = places
    return result
