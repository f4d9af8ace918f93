"""What training does to blocks whose length does not matter: measured on any run, beside what theory says."""

from normgeom.dynamics.conservation import Conservation, conservation
from normgeom.dynamics.equilibrium import Equilibrium, equilibrium, norm_growth
from normgeom.dynamics.laws import LawCheck, LawReport, scale_equivalence
from normgeom.dynamics.on_request import find_summed_inputs
from normgeom.dynamics.track import Tracker, track
from normgeom.optimizers.angles import angular_update
from normgeom.optimizers.rates import effective_learning_rate
from normgeom.optimizers.rules import AdamRule, LionRule, NormalizedRule, SGDRule, UndefinedRule, rule_of

__all__ = [
    "AdamRule",
    "Conservation",
    "Equilibrium",
    "LawCheck",
    "LawReport",
    "LionRule",
    "NormalizedRule",
    "SGDRule",
    "Tracker",
    "UndefinedRule",
    "angular_update",
    "conservation",
    "effective_learning_rate",
    "equilibrium",
    "find_summed_inputs",
    "norm_growth",
    "rule_of",
    "scale_equivalence",
    "track",
]
