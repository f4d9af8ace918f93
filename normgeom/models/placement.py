"""Where a recurrent cell normalizes: an argument, so that an ablation is a loop."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Placement:
    """Which summed inputs of a recurrent cell are layer-normalized, and over which units.

    The defaults are those of the paper's LSTM: `LN(W_h h) + LN(W_x x)`, each over all 4H stacked summed
    inputs, and `LN(c)` before the output's tanh.

    Args:
        input: whether the products of the input are normalized.
        recurrent: whether the products of the hidden state are normalized.
        cell: whether the cell state is normalized where the output reads it; the carried state never is.
        joint: `LN(W_h h + W_x x)`, statistics of the sum, in place of one norm for each product.
        per_gate: statistics over the H units of each gate, in place of those that the paper stacks.

    Raises:
        ValueError: for joint statistics of products of which one is not normalized, or statistics per gate
            where no gate is.

    Source: Ba et al. 2016, eq. 4 (joint), 20 to 22, 26 to 28, 29 to 31.

    >>> ablation = [Placement(i, r, c) for i in (0, 1) for r in (0, 1) for c in (0, 1)]
    >>> len(set(ablation))
    8
    >>> Placement.none()
    Placement(input=False, recurrent=False, cell=False, joint=False, per_gate=False)
    """

    input: bool = True
    recurrent: bool = True
    cell: bool = True
    joint: bool = False
    per_gate: bool = False

    def __post_init__(self) -> None:
        """Raise an error for a combination that has no meaning."""
        for name, value in list(vars(self).items()):
            if value not in (0, 1):
                raise ValueError(f"{name} must be True or False; got {value!r}.")
            object.__setattr__(self, name, bool(value))
        if self.joint and not (self.input and self.recurrent):
            raise ValueError(
                "joint statistics are those of W_h h + W_x x and need input=True and recurrent=True; got "
                f"{self}. Leave joint=False to normalize one product alone."
            )
        if self.per_gate and not (self.input or self.recurrent):
            raise ValueError(
                f"per_gate=True needs a norm at the gates (input=True or recurrent=True); got {self}."
            )

    @classmethod
    def none(cls) -> "Placement":
        """Return the placement of the un-normalized cell."""
        return cls(input=False, recurrent=False, cell=False)
