"""An argument of an operator, with how it answers to the action."""

from dataclasses import dataclass
from typing import Any

from normgeom.invariance.graph.abstract.forms import Form


@dataclass(frozen=True)
class Operand:
    """A tensor or a number.

    Attributes:
        form: how it answers.
        shape: its shape, () for a number.
        key: what it is computed from; two operands with equal keys are equal.
        is_zero: whether it is the number 0.
    """

    form: Form
    shape: tuple[int, ...]
    key: Any
    is_zero: bool = False
