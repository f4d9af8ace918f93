"""What was found of the scale of each block of a model."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import pandas as pd


class ScaleKind(StrEnum):
    """What of a block can be rescaled: each of its rows, the block as a whole, nothing; or it is unused."""

    ROW = "row"
    WHOLE = "whole"
    NONE = "none"
    UNUSED = "unused"


@dataclass(frozen=True)
class ScaleInvariance:
    """What rescaling one block does to the outputs.

    Attributes:
        block: its label.
        kind: `row` if every row can be rescaled by itself, `whole` if only the block can, `none`, or
            `unused` if the outputs do not depend on it.
        deviation: the change of the outputs at `w -> 2.5 w` and `0.4 w` with every eps taken away, relative
            to the largest output. Parts of one block are tested together: the largest of them.
        tolerance: the rounding that it is judged against.
        breaking: the change with the model's own eps.
        cosine: of the block and the gradient of a random combination of the outputs, 0 for an invariant one.
        confirmed: whether the gradient says the same as the rescaling.
    """

    block: str
    kind: ScaleKind
    deviation: float
    tolerance: float
    breaking: float
    cosine: float
    confirmed: bool

    @property
    def holds(self) -> bool:
        """Whether the block as a whole can be rescaled and matters."""
        return self.kind in (ScaleKind.ROW, ScaleKind.WHOLE)


@dataclass(frozen=True)
class ScaleInvariances:
    """The blocks of a model with what rescaling does to each; `found["name"]` is one of them."""

    blocks: tuple[ScaleInvariance, ...]
    mode: str

    def __getitem__(self, label: str) -> ScaleInvariance:
        """Return what was found of one block."""
        for one in self.blocks:
            if one.block == label:
                return one
        raise KeyError(f"no block {label!r}; there are {', '.join(one.block for one in self.blocks)}")

    def __iter__(self) -> Iterator[ScaleInvariance]:
        """Iterate over the blocks."""
        return iter(self.blocks)

    def __len__(self) -> int:
        """Return the number of blocks."""
        return len(self.blocks)

    def to_frame(self) -> pd.DataFrame:
        """Return a row for every block."""
        return pd.DataFrame([{**vars(one), "kind": str(one.kind)} for one in self.blocks])

    def __repr__(self) -> str:
        """Return the table."""
        return f"{self.to_frame().to_string(index=False, float_format='{:.1e}'.format)}\nmode: {self.mode}"
