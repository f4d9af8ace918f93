"""How optimizers move: their update rules, the angle of a step, the effective learning rate."""

from normgeom.optimizers.angles import angular_update
from normgeom.optimizers.rates import effective_learning_rate
from normgeom.optimizers.rules import (
    AdamRule,
    LionRule,
    NormalizedRule,
    Rule,
    SGDRule,
    UndefinedRule,
    group_of,
    rule_of,
)

__all__ = [
    "AdamRule",
    "LionRule",
    "NormalizedRule",
    "Rule",
    "SGDRule",
    "UndefinedRule",
    "angular_update",
    "effective_learning_rate",
    "group_of",
    "rule_of",
]
