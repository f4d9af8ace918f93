"""What a map says of the lengths of tracked blocks: which are free, alone or together with others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import nn

from normgeom.symmetry import BlockSymmetry, Move, ScaleKind, SymmetryMap
from normgeom.symmetry.param_groups import free_together
from normgeom.symmetry.partitions import Partition, natural_parts, whole_blocks

JOINT = "joint"


@dataclass(frozen=True)
class Length:
    """The length on which the effective learning rate of a block depends.

    Attributes:
        kind: a `ScaleKind`, `joint` for a block that is free together with others, None if the map does not
            say.
        blocks: the tracked blocks whose common length it is; none if no length is free.
    """

    kind: str | None
    blocks: tuple[str, ...] = ()


def lengths_of(found: SymmetryMap, model: nn.Module, labels: Sequence[str]) -> dict[str, Length]:
    """Return the length of every block that is tracked.

    Raises:
        ValueError: if the map is of another model.
    """
    pieces: dict[str, list[BlockSymmetry]] = {}
    known: dict[str, Length] = {}
    blocks = {block.view.labels[0]: block for block in whole_blocks(model, dict(model.named_parameters()))}
    for one in found.blocks:
        if one.block not in blocks:
            raise ValueError(f"the map must be of this model, which has no block {one.block!r}.")
        pieces.setdefault(one.parameter, []).append(one)
        known |= _of_parts(one, blocks[one.block], model)
    known |= {name: _of_tensor(found, name, own) for name, own in pieces.items() if len(own) > 1}
    known |= {one.block: _of_block(one) for one in found.blocks}
    for names in free_together(found):
        if len(names) > 1 and set(names) <= set(labels):
            known |= {name: Length(JOINT, tuple(names)) for name in names}
    return {label: known.get(label, Length(None)) for label in labels}


def common_norms(lengths: Mapping[str, Length], labels: Sequence[str], norms: np.ndarray) -> np.ndarray:
    """Return the norms (logs, blocks) of what each block is free with, NaN for a block that is not free."""
    places = {label: place for place, label in enumerate(labels)}
    common = np.full_like(norms, np.nan, dtype=float)
    for place, label in enumerate(labels):
        own = [places[name] for name in lengths[label].blocks]
        if own:
            common[:, place] = np.sqrt(np.square(norms[:, own].astype(float)).sum(1))
    return common


def _of_block(one: BlockSymmetry) -> Length:
    if one.dead:
        return Length(ScaleKind.UNUSED.value)
    if not one.scale.holds:
        return Length(ScaleKind.NONE.value)
    by_row = any(p.move is Move.SCALE and p.kind in _ROWS and len(p.free) == p.count for p in one.parts)
    return Length((ScaleKind.ROW if by_row else ScaleKind.WHOLE).value, (one.block,))


def _of_tensor(found: SymmetryMap, name: str, pieces: Sequence[BlockSymmetry]) -> Length:
    """Of a tensor that the map looks at in pieces: it is free if scaling all of them is a symmetry."""
    if all(one.dead for one in pieces):
        return Length(ScaleKind.UNUSED.value)
    names = [one.block for one in found.blocks]
    single = [[float(name == one.block) for name in names] for one in found.single]
    joint = [[float(one.exponents.get(name, 0)) for name in names] for one in found.joint]
    basis = np.array([*single, *joint]).reshape(-1, len(names)).T
    wanted = np.array([float(block.parameter == name) for block in found.blocks])
    distance = np.linalg.norm(basis @ np.linalg.lstsq(basis, wanted, rcond=None)[0] - wanted)
    return Length(ScaleKind.WHOLE.value, (name,)) if distance < _SPAN else Length(ScaleKind.NONE.value)


def _of_parts(one: BlockSymmetry, block: Partition, model: nn.Module) -> dict[str, Length]:
    """Of the natural parts of a block."""
    labels = [label for part in natural_parts(model, block) for label in part.view.labels]
    known = dict.fromkeys(labels, Length((ScaleKind.UNUSED if one.dead else ScaleKind.NONE).value))
    for record in one.parts:
        if record.move is Move.SCALE:
            known |= {record.labels[k]: Length(ScaleKind.UNUSED.value) for k in record.unused}
            free = [record.labels[k] for k in record.free]
            known |= {label: Length(ScaleKind.WHOLE.value, (label,)) for label in free}
    return known


_ROWS = ("row", "filter", "coordinate")
_SPAN = 1e-8
