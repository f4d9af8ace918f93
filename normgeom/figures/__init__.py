"""Figures fit for a paper: rows in, Axes out. No global style is set and no LaTeX is needed."""

from normgeom.figures.bands import (
    Band,
    draw_seed_band,
    draw_seeds,
    seed_band,
)
from normgeom.figures.draw_curvature import draw_curvature
from normgeom.figures.draw_eps_law import draw_eps_law
from normgeom.figures.draw_eq13_gap import (
    draw_eq13_gap,
    draw_null_curvature,
)
from normgeom.figures.draw_fisher_blocks import draw_fisher_blocks
from normgeom.figures.draw_gain_init import (
    draw_gain_costs,
    draw_gain_curves,
)
from normgeom.figures.draw_gain_metric import (
    draw_gain_error,
    draw_gain_metric,
)
from normgeom.figures.draw_invariances import draw_invariances
from normgeom.figures.draw_kl import draw_kl
from normgeom.figures.draw_placement import (
    draw_placement_curves,
    draw_placement_effects,
)
from normgeom.figures.draw_spectrum import draw_spectrum
from normgeom.figures.draw_stability import (
    draw_gradients_over_distance,
    draw_growth_rates,
    draw_states_over_steps,
)
from normgeom.figures.draw_tracking import (
    draw_rate_against_norm,
    draw_tracking,
)
from normgeom.figures.draw_training import (
    draw_against_norm,
    draw_band,
    draw_power,
    name_ends,
)
from normgeom.figures.draw_zoo import (
    draw_zoo,
    zoo_key,
)
from normgeom.figures.labels import (
    label_ends,
    spread,
)
from normgeom.figures.log_axes import (
    Masked,
    draw_on_log,
    mask_for_log,
    plain_log_ticks,
)
from normgeom.figures.style import (
    COLOURS,
    MARKERS,
    SCALE_COLOURS,
    save_figure,
    style,
)

__all__ = [
    "Band",
    "COLOURS",
    "MARKERS",
    "Masked",
    "SCALE_COLOURS",
    "draw_against_norm",
    "draw_band",
    "draw_curvature",
    "draw_eps_law",
    "draw_eq13_gap",
    "draw_fisher_blocks",
    "draw_gain_costs",
    "draw_gain_curves",
    "draw_gain_error",
    "draw_gain_metric",
    "draw_gradients_over_distance",
    "draw_growth_rates",
    "draw_invariances",
    "draw_kl",
    "draw_null_curvature",
    "draw_on_log",
    "draw_placement_curves",
    "draw_placement_effects",
    "draw_power",
    "draw_rate_against_norm",
    "draw_seed_band",
    "draw_seeds",
    "draw_spectrum",
    "draw_states_over_steps",
    "draw_tracking",
    "draw_zoo",
    "label_ends",
    "mask_for_log",
    "name_ends",
    "plain_log_ticks",
    "save_figure",
    "seed_band",
    "spread",
    "style",
    "zoo_key",
]
