"""What the symmetries of a model conserve: a law for each, of its norms or of its sums."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from torch import nn

from normgeom.dynamics.laws import ConservedSums, NormGrowth
from normgeom.dynamics.laws.terms import Term
from normgeom.symmetry import BlockSymmetry, BlockView, JointSymmetry, Move, PartSymmetry, SymmetryMap
from normgeom.symmetry.partitions import SHIFTS, Partition, natural_parts, whole_blocks

Law = NormGrowth | ConservedSums

_SUMS = {Move.SHIFT_UNITS: "column sums", Move.SHIFT_INPUTS: "row sums", Move.ANY: "dead block"}
_ABSORBED = "how much the biases take away changes with the weights, so that no sum of them stays"


def laws_of_views(views: Sequence[BlockView]) -> Iterator[Law]:
    """Yield the two laws of blocks whose scale, or shifts of all units, the function may not see."""
    for view in views:
        block = Partition(view, "block", view.axis)
        yield NormGrowth([Term(block)], view.labels)
        if view.rows > 1 and len(view.shape) > 1:
            yield ConservedSums([Term(block, move=Move.SHIFT_UNITS)], view.labels)


def laws_of_map(
    found: SymmetryMap, model: nn.Module, trained: Collection[str]
) -> tuple[list[Law], tuple[str, ...]]:
    """Return a law for every symmetry of a map, single, of parts, joint or dead; and which have none, why.

    Args:
        found: the map.
        model: the model it is of, or one with the same parameters.
        trained: the names of the parameters that are trained.

    Raises:
        ValueError: if the map is of another model, or nothing is conserved.
    """
    blocks = {block.view.labels[0]: block for block in whole_blocks(model, dict(model.named_parameters()))}
    if missing := [one.block for one in found.blocks if one.block not in blocks]:
        raise ValueError(
            f"the map must be of this model; it has {missing[0]!r}, and the model has {', '.join(blocks)}."
        )
    laws: list[Law] = []
    for one in found.blocks:
        if one.parameter in trained:
            laws += _of_block(one, blocks[one.block])
            for part in natural_parts(model, blocks[one.block]):
                laws += [law for record in one.parts if (law := _of_part(record, part, found)) is not None]
    left_out = []
    for joint in (*found.joint, *found.joint_shifts):
        own, why = _of_joint(joint, blocks, trained)
        laws += own
        left_out += [f"{joint.label}: {why}"] if why else []
    left_out += [f"{one.label}: {_ABSORBED}" for one in found.absorbed_shifts]
    if not laws:
        raise ValueError("the map must have a symmetry of what is trained: without, nothing is conserved.")
    return laws, tuple(left_out)


def _of_block(one: BlockSymmetry, block: Partition) -> Iterator[Law]:
    labels = block.view.labels
    if one.dead:
        yield ConservedSums([Term(block, move=Move.ANY)], labels, name=_SUMS[Move.ANY])
        return
    if one.scale.holds:
        eps = one.scale.breaking > one.scale.tolerance
        yield NormGrowth([Term(block)], labels, known=True, up_to_eps=eps)
    for move in SHIFTS:
        if move in one.moves and one.moves[move].holds:
            yield ConservedSums([Term(block, move=move)], labels, name=_SUMS[move])


def _of_part(record: PartSymmetry, part: Partition, found: SymmetryMap) -> Law | None:
    """The law of the free parts of a block, None if the record is of another partition."""
    if record.kind != part.kind or record.labels != part.view.labels or not record.free:
        return None
    term = Term(part, move=record.move, free=record.free)
    if record.move is Move.SCALE:
        return NormGrowth([term], term.labels, known=True, up_to_eps=_has_eps(found))
    return ConservedSums([term], term.labels, name=_SUMS[record.move])


def _of_joint(
    joint: JointSymmetry, blocks: Mapping[str, Partition], trained: Collection[str]
) -> tuple[list[Law], str]:
    """The law of a joint symmetry, or none and why."""
    powers = {blocks[name]: power for name, power in joint.exponents.items()}
    if still := [block.view.labels[0] for block in powers if block.view.parameter not in trained]:
        return [], f"{still[0]} is not trained, so that the others conserve nothing"
    if joint.move is Move.SCALE:
        terms = [Term(block, power) for block, power in powers.items()]
        eps = joint.breaking > joint.tolerance
        return [NormGrowth(terms, [joint.label], known=True, up_to_eps=eps, name="joint norms")], ""
    moves = _moves_of(list(powers), joint.move)
    if not moves:
        return [], "a square block, of which the map does not say along which axis it is shifted"
    terms = [Term(block, power, move) for (block, power), move in zip(powers.items(), moves, strict=True)]
    return [ConservedSums(terms, [joint.label], name="joint sums")], ""


def _moves_of(blocks: Sequence[Partition], first: Move) -> list[Move]:
    """Along which axes each block of a joint shift is moved by a vector of the first one's length.

    A record holds the move of the first block alone; a square block that could be meant both ways is left
    out, and the law with it: then nothing is returned.
    """
    length = math.prod(blocks[0].shape(first))
    moves = [first]
    for block in blocks[1:]:
        shifts = [move for move in (*SHIFTS, Move.ANY) if _is_shift(block, move)]
        fitting = [move for move in shifts if math.prod(block.shape(move)) == length]
        if len(fitting) != 1:
            return []
        moves += fitting
    return moves


def _is_shift(block: Partition, move: Move) -> bool:
    """Whether a joint shift may move a block so: a vector may be shifted by any vector."""
    return len(block.view.shape) == 1 if move is Move.ANY else bool(block.constant_axes(move))


def _has_eps(found: SymmetryMap) -> bool:
    """Whether an eps breaks any symmetry of a model."""
    broken = [(one.scale.breaking, one.scale.tolerance) for one in found.single]
    broken += [(one.breaking, one.tolerance) for one in found.joint]
    return any(breaking > tolerance for breaking, tolerance in broken)
