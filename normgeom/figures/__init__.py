"""Figures fit for a paper: rows in, Axes out. No global style is set and no LaTeX is needed."""

from normgeom.figures.draw_eps_law import draw_eps_law
from normgeom.figures.draw_invariances import draw_invariances
from normgeom.figures.style import COLOURS, save_figure, style

__all__ = ["COLOURS", "draw_eps_law", "draw_invariances", "save_figure", "style"]
