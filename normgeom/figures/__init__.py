"""Figures fit for a paper: rows in, Axes out. No global style is set and no LaTeX is needed."""

from normgeom.figures.draw_curvature import draw_curvature
from normgeom.figures.draw_eps_law import draw_eps_law
from normgeom.figures.draw_eq13_gap import draw_eq13_gap, draw_null_curvature
from normgeom.figures.draw_fisher_blocks import draw_fisher_blocks
from normgeom.figures.draw_gain_metric import draw_gain_error, draw_gain_metric
from normgeom.figures.draw_invariances import draw_invariances
from normgeom.figures.draw_kl import draw_kl
from normgeom.figures.draw_spectrum import draw_spectrum
from normgeom.figures.draw_training import draw_against_norm, draw_band, draw_power, name_ends
from normgeom.figures.style import COLOURS, MARKERS, SCALE_COLOURS, save_figure, style

__all__ = [
    "COLOURS",
    "MARKERS",
    "SCALE_COLOURS",
    "draw_against_norm",
    "draw_band",
    "draw_curvature",
    "draw_eps_law",
    "draw_eq13_gap",
    "draw_fisher_blocks",
    "draw_gain_error",
    "draw_gain_metric",
    "draw_invariances",
    "draw_kl",
    "draw_null_curvature",
    "draw_power",
    "draw_spectrum",
    "name_ends",
    "save_figure",
    "style",
]
