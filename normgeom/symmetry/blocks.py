"""Parts of a model's parameters that are looked at as one vector each: a tensor, a row, a gate, a head."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


@dataclass(frozen=True)
class Block:
    """A parameter tensor, or a stretch of its rows, cut into equal parts.

    `Block("rnn.weight_hh_l0", rows=slice(0, 64))` is the first gate of an LSTM with 64 units. A *row* is a
    slice along `axis`: all that leads to one unit.

    Args:
        parameter: the name, as in `model.named_parameters()`.
        rows: which rows; default all.
        parts: into how many equal parts they are cut; None: every row is a part by itself.
        axis: the axis of the units. Default 0, and 1 for the weight of a transposed convolution.

    Raises:
        TypeError: if the name is not a string or the rows are not a slice.
        ValueError: if `parts` is less than 1.

    >>> model = nn.LSTM(3, 2)
    >>> [view.labels for view in resolve_blocks(model, [gates("weight_hh_l0", 4)])]
    [('weight_hh_l0[0:2]', 'weight_hh_l0[2:4]', 'weight_hh_l0[4:6]', 'weight_hh_l0[6:8]')]
    """

    parameter: str
    rows: slice | None = None
    parts: int | None = 1
    axis: int | None = None

    def __post_init__(self) -> None:
        """Raise an error for arguments of the wrong kind."""
        if not isinstance(self.parameter, str):
            raise TypeError(f"a block is named by its parameter, a string; got {self.parameter!r}.")
        if not isinstance(self.rows, slice | None):
            raise TypeError(f"rows must be a slice, such as slice(0, 64); got {self.rows!r}.")
        if self.parts is not None and self.parts < 1:
            raise ValueError(f"parts must be at least 1, or None for single rows; got {self.parts}.")


def rows(parameter: str, *, axis: int | None = None) -> Block:
    """Return every row of a parameter: a unit's weights, a convolution's filter, a token's vector."""
    return Block(parameter, parts=None, axis=axis)


def gates(parameter: str, count: int) -> Block:
    """Return the gates that are stacked in a parameter, in its order (i, f, g, o in `nn.LSTM`: 4)."""
    return Block(parameter, parts=count)


def heads(parameter: str, count: int, *, axis: int = 0, rows: slice | None = None) -> Block:
    """Return the attention heads in a projection: rows of the query, key and value, columns of the output.

    Args:
        parameter: the weight (or bias) of the projection.
        count: the number of heads.
        axis: 0 for query, key and value; 1 for the output projection.
        rows: which rows, where one tensor holds several projections.
    """
    return Block(parameter, rows=rows, parts=count, axis=axis)


@dataclass(frozen=True)
class BlockView:
    """A block of a model, found: where it lies and how many parts it has."""

    parameter: str
    shape: tuple[int, ...]
    axis: int
    start: int
    stop: int
    parts: int

    @property
    def rows(self) -> int:
        """The number of rows of one part."""
        return (self.stop - self.start) // self.parts

    @property
    def size(self) -> int:
        """The number of coordinates of one part."""
        return self.rows * (torch.Size(self.shape).numel() // (self.shape[self.axis] if self.shape else 1))

    @property
    def labels(self) -> tuple[str, ...]:
        """What each part is called, in Python's index notation."""
        if self.parts == 1 and self.rows == (self.shape[self.axis] if self.shape else 1):
            return (self.parameter,)
        before = ":, " * self.axis
        edges = [self.start + k * self.rows for k in range(self.parts + 1)]
        spans = [str(a) if self.rows == 1 else f"{a}:{b}" for a, b in pairwise(edges)]
        return tuple(f"{self.parameter}[{before}{span}]" for span in spans)

    def split(self, tensor: Tensor) -> Tensor:
        """Return a tensor of the parameter's shape as (parts, rows, what is in a row)."""
        if tensor.ndim == 0:
            return tensor.reshape(1, 1, 1)
        if self.axis:
            tensor = tensor.movedim(self.axis, 0)
        return tensor[self.start : self.stop].reshape(self.parts, self.rows, -1)

    def scaled(self, tensor: Tensor, factors: Tensor) -> Tensor:
        """Return the tensor with its rows multiplied by factors of shape (parts,) or (parts, rows)."""
        if tensor.ndim == 0:
            return tensor * factors.reshape(())
        along = tensor.new_ones(tensor.shape[self.axis])
        spread = factors[:, None].expand(-1, self.rows) if factors.ndim == 1 else factors
        along[self.start : self.stop] = spread.reshape(-1).to(along)
        return tensor * along.reshape(-1, *[1] * (tensor.ndim - self.axis - 1))


def resolve_blocks(model: nn.Module, blocks: Sequence[Block | str] | None) -> list[BlockView]:
    """Return the blocks of a model; a name stands for the whole tensor, None for all trainable tensors.

    Raises:
        TypeError: if `blocks` is not a sequence of blocks and names.
        ValueError: if a parameter, a stretch of rows or a number of parts does not exist; the model's do.
    """
    named = dict(model.named_parameters())
    if blocks is None:
        blocks = [Block(name) for name, value in named.items() if value.requires_grad]
    if isinstance(blocks, str | Block):
        raise TypeError(f"blocks must be a sequence; got {blocks!r}: write [{blocks!r}].")
    views = [_resolve(model, named, block if isinstance(block, Block) else Block(block)) for block in blocks]
    labels = [label for view in views for label in view.labels]
    if not labels:
        raise ValueError("blocks must name at least one trainable parameter; there is none.")
    if twice := sorted({label for label in labels if labels.count(label) > 1} if len(views) > 1 else ()):
        raise ValueError(f"every block must be given once; got {', '.join(twice[:3])} more than once.")
    return views


def _resolve(model: nn.Module, named: Mapping[str, Tensor], block: Block) -> BlockView:
    if block.parameter not in named:
        tied = dict(model.named_parameters(remove_duplicate=False))
        same = [name for name, value in named.items() if value is tied.get(block.parameter)]
        hint = f"it is tied to {same[0]!r}: use that name" if same else f"it has {', '.join(named)}"
        raise ValueError(f"the model has no parameter {block.parameter!r}; {hint}.")
    shape = tuple(named[block.parameter].shape)
    axis = _unit_axis(model, block) if block.axis is None else block.axis
    if not 0 <= axis < max(1, len(shape)):
        raise ValueError(f"{block.parameter} has shape {shape}: its axis cannot be {axis}.")
    length = shape[axis] if shape else 1
    start, stop, stride = (block.rows or slice(None)).indices(length)
    parts = stop - start if block.parts is None else block.parts
    if stride != 1 or stop <= start or (stop - start) % parts:
        raise ValueError(
            f"{block.parameter} has {length} rows along axis {axis}; {block.rows or 'all of them'} cannot be "
            f"cut into {parts} equal parts of at least one row."
        )
    return BlockView(block.parameter, shape, axis, start, stop, parts)


def _unit_axis(model: nn.Module, block: Block) -> int:
    """The axis of the units: 1 for the weight of a transposed convolution, else 0."""
    owner = block.parameter.split(".parametrizations.")[0].rpartition(".")[0]
    if ".parametrizations." in f".{block.parameter}":
        owner = f".{block.parameter}".split(".parametrizations.")[0].removeprefix(".")
    module = model.get_submodule(owner)
    if not isinstance(module, _TRANSPOSED) or not block.parameter.split(".")[-1].startswith(
        ("weight", "original")
    ):
        return 0
    whole = block.rows is None and block.parts == 1
    if module.groups > 1 and not whole:
        raise ValueError(
            f"{block.parameter} has {module.groups} groups, whose units lie along two axes; give axis=0 or 1."
        )
    return 1 if len(dict(model.named_parameters())[block.parameter].shape) > 1 else 0
