"""The blocks of a model that a scan looks at: whole tensors, stacked pieces, and their natural parts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor, nn

from normgeom.symmetry.blocks import BlockView

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead", "heads", "h")
_WIDTHS = ("head_dim", "attention_head_size", "key_value_proj_dim")
_STACKED = ("in_proj", "c_attn", "qkv")


class Move(StrEnum):
    """How a block is moved: multiplied, shifted by what is constant along the units or the inputs, at will.

    `ABSORBED` moves the bias of a layer by its weight times a vector: what a shift of its input adds.
    """

    SCALE = "scale"
    SHIFT_UNITS = "shift along units"
    SHIFT_INPUTS = "shift along inputs"
    ANY = "any change"
    ABSORBED = "absorbed shift"


SHIFTS = (Move.SHIFT_UNITS, Move.SHIFT_INPUTS)


@dataclass(frozen=True)
class Partition:
    """A stretch of a tensor cut into parts, and which axis of the tensor its units lie on.

    Attributes:
        view: where the parts lie.
        kind: what a part is: `tensor`, `row`, `column`, `filter`, `channel`, `head`, `gate`.
        units: the axis of the units.
    """

    view: BlockView
    kind: str
    units: int

    def fold(self, tensor: Tensor) -> Tensor:
        """Return a tensor of the parameter's shape as (parts, rows of a part, other axes in order)."""
        if tensor.ndim == 0:
            return tensor.reshape(1, 1)
        cut = self.cut(tensor)
        return cut.reshape(self.view.parts, self.view.rows, *cut.shape[1:])

    @property
    def shape_of_block(self) -> tuple[int, ...]:
        """The tensor's shape, as far as the partition goes."""
        size = self.view.stop - self.view.start
        return tuple(size if k == self.view.axis else n for k, n in enumerate(self.view.shape))

    @property
    def widths(self) -> tuple[int, int]:
        """The number of units, and of inputs along the other of the first two axes, 0 for a vector."""
        shape = self.shape_of_block or (1,)
        inputs = shape[1 - self.units] if len(shape) > 1 else 0
        return shape[self.units], inputs

    def stretch(self, tensor: Tensor) -> Tensor:
        """Return the stretch of a tensor that the partition covers, its axes in their own order."""
        if tensor.ndim == 0:
            return tensor
        return tensor.narrow(self.view.axis, self.view.start, self.view.stop - self.view.start)

    def cut(self, tensor: Tensor) -> Tensor:
        """Return the stretch of a tensor that the partition covers, its axis first."""
        if tensor.ndim == 0:
            return tensor.reshape(1)
        return tensor.movedim(self.view.axis, 0)[self.view.start : self.view.stop]

    def put(self, tensor: Tensor, folded: Tensor) -> Tensor:
        """Return the tensor with its parts replaced."""
        if tensor.ndim == 0:
            return folded.reshape(())
        result = tensor.clone()
        target = result.movedim(self.view.axis, 0)[self.view.start : self.view.stop]
        target.copy_(folded.reshape(target.shape))
        return result

    def constant_axes(self, move: Move) -> tuple[int, ...]:
        """Return along which axes of the folded tensor a move is constant; () if it says nothing new."""
        shape = self.view.shape or (1,)
        axes = range(1, len(shape) + 1)
        if move is Move.SCALE:
            return tuple(axes)
        if move is Move.ANY:
            return ()
        sizes = {1: self.view.rows}
        others = [k for k in range(len(shape)) if k != self.view.axis]
        sizes |= {place + 2: shape[k] for place, k in enumerate(others)}
        unit = 1 if self.units == self.view.axis else 2 + others.index(self.units)
        chosen = (unit,) if move is Move.SHIFT_UNITS else tuple(k for k in axes if k != unit)
        rest = [k for k in axes if k not in chosen]
        moves_something = any(sizes[k] > 1 for k in chosen)
        of_a_vector = len(shape) == 1 and move is Move.SHIFT_INPUTS
        return chosen if moves_something and not of_a_vector and (rest or len(shape) == 1) else ()

    def moved(self, tensor: Tensor, move: Move, free: Tensor, draw: Tensor) -> Tensor:
        """Return the tensor with its free parts moved; `draw` has one entry for every independent number."""
        folded = self.fold(tensor)
        chosen = free.to(tensor.device).reshape(-1, *[1] * (folded.ndim - 1))
        draw = draw.to(tensor)
        if move is Move.SCALE:
            return self.put(tensor, folded * torch.where(chosen, draw, 1.0))
        return self.put(tensor, folded + torch.where(chosen, draw, 0.0))

    def shape(self, move: Move) -> tuple[int, ...]:
        """Return the shape of the independent numbers of a move, broadcastable to the folded tensor."""
        shape = list(self.view.shape)
        if shape:
            del shape[self.view.axis]
        full = [self.view.parts, self.view.rows, *shape]
        constant = self.constant_axes(move)
        return tuple(1 if k in constant else size for k, size in enumerate(full))


def whole_blocks(model: nn.Module, named: Mapping[str, Tensor]) -> list[Partition]:
    """Return one block for every tensor, or for each of query, key and value where they are stacked."""
    found = []
    for name, value in named.items():
        owner, leaf = _owner(model, name)
        axis = unit_axis(owner, leaf, value)
        shape = tuple(value.shape)
        length = shape[axis] if shape else 1
        pieces = 3 if _is_stacked(model, name, owner, leaf) and length % 3 == 0 else 1
        for k in range(pieces):
            edges = k * length // pieces, (k + 1) * length // pieces
            found.append(Partition(BlockView(name, shape, axis, *edges, 1), "tensor", axis))
    return found


def natural_parts(model: nn.Module, block: Partition) -> Iterator[Partition]:
    """Yield the ways in which a block is cut into natural parts, by the module that owns it."""
    view, shape = block.view, block.view.shape
    if not shape or max(shape) < 2:
        return
    owner, leaf = _owner(model, view.parameter)
    is_filter = isinstance(owner, _CONVOLUTIONS + _TRANSPOSED) and len(shape) > 2
    row, column = ("filter", "channel") if is_filter else ("row", "column")
    if isinstance(owner, (nn.Embedding, nn.EmbeddingBag)):
        row, column = "coordinate", "token"
    is_whole = view.stop - view.start == shape[view.axis]
    if view.stop - view.start > 1:
        yield _cut(block, block.units, view.stop - view.start, row)
    for axis in range(min(len(shape), 2)):
        if is_whole and axis != block.units and shape[axis] > 1:
            yield _cut(block, axis, shape[axis], column)
    if not isinstance(owner, (nn.Embedding, nn.EmbeddingBag)):
        yield from _heads(model, block)
    gates = _gates(owner, leaf, shape)
    if gates:
        yield _cut(block, 0, gates, "gate")


def unit_axis(owner: nn.Module, leaf: str, value: Tensor) -> int:
    """Return the axis of the units: 1 for embeddings and for weights stored as (inputs, units), else 0."""
    # Transformers' Conv1D stores (inputs, units) and is no subclass of a torch module that says so.
    on_the_second = isinstance(owner, (nn.Embedding, nn.EmbeddingBag, *_TRANSPOSED)) or (
        type(owner).__name__ == "Conv1D" and leaf == "weight"
    )
    return 1 if on_the_second and value.ndim > 1 else 0


def _owner(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The module that a parameter belongs to; for a parametrized one, the module that is parametrized."""
    if "parametrizations." in name:
        path, _, rest = f".{name}".partition(".parametrizations.")
        return model.get_submodule(path.removeprefix(".")), rest.split(".")[0]
    path, _, leaf = name.rpartition(".")
    return model.get_submodule(path), leaf


def _is_stacked(model: nn.Module, name: str, owner: nn.Module, leaf: str) -> bool:
    """Whether a tensor holds query, key and value: by the names in use, and a head count above it."""
    own = leaf if isinstance(owner, nn.MultiheadAttention) else name.split(".")[-2] if "." in name else ""
    return own.startswith(_STACKED) and head_count(model, name) > 0


def head_count(model: nn.Module, name: str) -> int:
    """How many heads the nearest module above a parameter says that it has, 0 if none does."""
    return _told(model, name, _HEADS)


def _told(model: nn.Module, name: str, words: Sequence[str]) -> int:
    """The number that the nearest module above a parameter, or its configuration, gives for one of words."""
    path = name.rpartition(".")[0]
    while path:
        module = model.get_submodule(path)
        for word in words:
            for holder in (module, getattr(module, "config", None)):
                count = getattr(holder, word, None)
                if isinstance(count, int) and count > 1:
                    return count
        path = path.rpartition(".")[0]
        if isinstance(module, nn.ModuleList):
            break
    return 0


def _heads(model: nn.Module, block: Partition) -> Iterator[Partition]:
    """The heads in a projection: units of query, key and value, inputs of the output projection."""
    view = block.view
    if len(view.shape) > 2:
        return
    count = _heads_along(model, block, view.stop - view.start)
    if count > 1:
        yield _cut(block, block.units, count, "head")
    is_whole = view.stop - view.start == view.shape[view.axis]
    for axis, size in enumerate(view.shape):
        count = _heads_along(model, block, size)
        if is_whole and axis != block.units and count > 1:
            yield _cut(block, axis, count, "head of inputs")


def _heads_along(model: nn.Module, block: Partition, size: int) -> int:
    """How many heads an axis holds: fewer than the module says where queries share keys and values."""
    count = head_count(model, block.view.parameter)
    width = _told(model, block.view.parameter, _WIDTHS)
    if count < 2 or size <= count:
        return 0
    if width > 1:
        return size // width if size % width == 0 else 0
    return count if size % count == 0 else 0


def _gates(owner: nn.Module, leaf: str, shape: tuple[int, ...]) -> int:
    """How many gates are stacked in a recurrent weight, 0 if none."""
    width = getattr(owner, "hidden_size", None)
    stacked = leaf.startswith(("weight_", "bias"))
    count = shape[0] // width if isinstance(width, int) and width > 1 and shape[0] % width == 0 else 0
    return count if stacked and count in (3, 4) else 0


def _cut(block: Partition, axis: int, parts: int, kind: str) -> Partition:
    view = block.view
    own = axis == view.axis
    edges = (view.start, view.stop) if own else (0, view.shape[axis])
    return Partition(BlockView(view.parameter, view.shape, axis, *edges, parts), kind, block.units)
