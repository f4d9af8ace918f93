"""What a scan found of one block, of one of its partitions, and of several blocks together."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from normgeom.symmetry.partitions import Move


@dataclass(frozen=True)
class MoveVerdict:
    """What one move of one block does to the outputs.

    Attributes:
        holds: whether it leaves them unchanged.
        deviation: the change of the outputs with every eps taken away, relative to the largest; NaN where a
            slope that is not zero settled it, since the gradients are those of the function.
        tolerance: the rounding that it is judged against.
        breaking: the change at the model's own parameters with its own eps; NaN if it does not hold.
        slope: the largest slope along the move, relative to its gradient.
        confirmed: whether slope and finite transform agree.
        degree: k if `f(c θ_p) = c^k f(θ_p)`, else None.
        fading: p if the deviation falls as `c^-p` when the block is scaled up by c: an eps in the code.
    """

    holds: bool
    deviation: float
    tolerance: float
    breaking: float
    slope: float
    confirmed: bool
    degree: float | None = None
    fading: float | None = None

    @property
    def symbol(self) -> str:
        """A sign for tables: ✓ free, ≈ up to an eps, ✗ not."""
        if self.holds:
            return "≈" if self.breaking > self.tolerance else "✓"
        return "≈" if self.fading else "✗"

    @property
    def text(self) -> str:
        """The sign with the size of the breaking or the degree."""
        if self.holds and self.breaking > self.tolerance:
            return f"≈ eps {self.breaking:.0e}"
        if self.fading:
            return f"≈ eps {self.deviation:.0e}"
        return f"{self.symbol} ∝c^{self.degree:g}" if self.degree else self.symbol


@dataclass(frozen=True)
class PartSymmetry:
    """Which parts of a block (its rows, heads, gates, …) can be moved, each by numbers of its own.

    Attributes:
        kind: what a part is.
        move: the move.
        free: the indices of the parts.
        unused: the indices of parts that the outputs do not depend on, which are in no other list.
        count: the number of parts.
        labels: the parts in index notation.
        deviation: the change of the outputs when all free parts are moved.
    """

    kind: str
    move: Move
    free: tuple[int, ...]
    unused: tuple[int, ...]
    count: int
    labels: tuple[str, ...]
    deviation: float

    @property
    def text(self) -> str:
        """For example `row scale 8/8`."""
        parts = [f"{self.kind} {self.move} {len(self.free)}/{self.count}"] if self.free else []
        parts += [f"{self.kind} unused {len(self.unused)}/{self.count}"] if self.unused else []
        return ", ".join(parts)


@dataclass(frozen=True)
class BlockSymmetry:
    """A parameter tensor, or one of the pieces stacked in it, with what can be done to it.

    Attributes:
        block: its label.
        parameter: the tensor's name.
        shape: of the block.
        dead: whether the outputs do not depend on it.
        moves: the verdict of each move that has a meaning.
        parts: the partitions in which something is free.
        why: in words, if something is free.
        shut: whether the block has no slope on the batch though the outputs depend on it, as behind a
            rectifier that is shut: nothing is claimed of it.
    """

    block: str
    parameter: str
    shape: tuple[int, ...]
    dead: bool
    moves: Mapping[Move, MoveVerdict]
    parts: tuple[PartSymmetry, ...]
    why: str = ""
    shut: bool = False

    @property
    def scale(self) -> MoveVerdict:
        """The verdict of the scale."""
        return self.moves[Move.SCALE]

    @property
    def module(self) -> str:
        """The name of the module that the parameter belongs to."""
        return self.parameter.rpartition(".")[0]


@dataclass(frozen=True)
class JointSymmetry:
    """Blocks that can be moved together: multiplied by `c ** k`, or shifted by k times one vector.

    Attributes:
        move: `scale`, or a shift.
        exponents: k of each block.
        deviation: the change of the outputs at a finite transform.
        tolerance: the rounding that it is judged against.
        breaking: the change at the model's own parameters with its own eps.
        by: what can have a c of its own: every `unit`, every `head`, or only the tensors as a `whole`.
        rule: which symmetry it is, in a few words.
        why: in a sentence.
        companions: the exponents of blocks, each free as a whole, that have to go along unit by unit.
        through: for a bias that is shifted by its weight times the vector, that weight.
    """

    move: Move
    exponents: Mapping[str, int]
    deviation: float
    tolerance: float
    breaking: float
    by: str
    rule: str
    why: str
    companions: Mapping[str, int] = field(default_factory=dict)
    through: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """For example `norm.weight^+1 head.weight^-1`; shifts with `·`, and a W if a weight carries them."""
        sign = "^" if self.move is Move.SCALE else "·"
        return " ".join(
            f"{name}{sign}{power:+d}{'W' * (name in self.through)}" for name, power in self.exponents.items()
        )
