"""How a tensor answers to an action: scaled, shifted, or unknown."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from normgeom.invariance.graph.abstract.axes import Along

DELTA, SHIFT = "delta", "shift"


@dataclass(frozen=True)
class Scaled:
    """`t' = s^power t`, with s the vector that `label` names, met through `along`.

    `s` is `|delta|`, times its sign where `odd`. Power 0 and not odd is unchanged.
    """

    power: Fraction = Fraction(0)
    odd: bool = False
    along: Along = ()
    label: Any = DELTA

    def to(self, power: Fraction, odd: bool) -> "Scaled":
        """Return the form with another power; unchanged has no axes."""
        return Scaled(power, odd, self.along, self.label) if power or odd else UNCHANGED


@dataclass(frozen=True)
class Shifted:
    """`t' = t + s`, with s the tensor that `label` names, met through `along`.

    Two shifts are equal if label and map are: the label says how the shift was computed.
    """

    label: Any
    along: Along


@dataclass(frozen=True)
class Offset:
    """What is scaled plus what is not, as a bias before a norm makes it; a mean takes the offset away.

    `label` and `along` name the offset and say where it varies, as of a shift.
    """

    scaled: Scaled
    label: Any
    along: Along


@dataclass(frozen=True)
class Unknown:
    """Nothing is known of the tensor; `why` says where that began."""

    why: str


Form = Scaled | Shifted | Offset | Unknown
UNCHANGED = Scaled()


class Lost(Exception):
    """A rule has nothing to say of these forms; the message says why."""
