"""The one style of all figures: a venue's width and font sizes, colours that survive colour blindness."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import seaborn as sns
from cycler import cycler
from matplotlib.figure import Figure
from tueplots import bundles

from normgeom.report import atomic

COLOURS: list[str] = list(sns.color_palette("colorblind").as_hex())
SCALE_COLOURS = ("#1a2e5a", "#2a9d8f", "#e9a93c")
"""Small, middle and large: in order of lightness too, so that they read in grey."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def style(
    *, rows: int = 1, columns: int = 1, height: float | None = None, **overrides: Any
) -> AbstractContextManager[None]:
    """Return a context with the style of a NeurIPS figure of full width.

    Args:
        rows: rows of panels, which set the height.
        columns: columns of panels.
        height: the height in inches instead.
        overrides: rcParams, dots written as `__`.
    """
    settings = bundles.neurips2024(usetex=False, nrows=rows, ncols=columns, family="sans-serif")
    settings |= {
        "pdf.fonttype": 42,
        "ps.fonttype": 42,
        "font.family": "DejaVu Sans",
        "mathtext.fontset": "dejavusans",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.dpi": 200,
        "axes.prop_cycle": cycler(color=COLOURS),
    }
    settings |= {key.replace("__", "."): value for key, value in overrides.items()}
    if height is not None:
        settings["figure.figsize"] = (settings["figure.figsize"][0], height)
    return mpl.rc_context(settings)


def save_figure(figure: Figure, stem: str | Path) -> list[Path]:
    """Write a figure as .pdf (TrueType fonts) and .png, each atomically, close it, return the files."""
    files = []
    for kind in ("pdf", "png"):
        path = Path(f"{stem}.{kind}")
        with atomic(path, "wb") as file, mpl.rc_context({"pdf.fonttype": 42}):
            figure.savefig(file, format=kind, metadata={"CreationDate": None} if kind == "pdf" else None)
        files.append(path)
    plt.close(figure)
    return files
