"""What of a map is shown: every block and joint symmetry, or those of layers that repeat as one."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from normgeom.symmetry.folding import FoldedJoint, Folding, fold
from normgeom.symmetry.partitions import Move
from normgeom.symmetry.records import BlockSymmetry, PartSymmetry

if TYPE_CHECKING:
    from normgeom.symmetry.map import SymmetryMap

_WORDS = {"✓": "yes", "✗": "no", "≈ eps": "up to eps"}
_FORMULAS = {"W + 1γᵀ": r"$W + 1\gamma^T$", "W + c1ᵀ": r"$W + c1^T$"}


def blocks_shown(found: "SymmetryMap", folded: bool) -> Iterator[tuple[str, list[BlockSymmetry]]]:
    """Yield the name of each block that is shown, and the blocks that it stands for, itself first."""
    folding, own = _folding(found, folded), {one.block: one for one in found.blocks}
    for block, name in folding.names.items():
        yield name, [own[member] for member in folding.members[block]]


def joint_shown(found: "SymmetryMap", folded: bool) -> list[tuple[str, FoldedJoint]]:
    """Return the rule of each joint symmetry that is shown, with how many there are, and its exponents."""
    rules = [one.rule for one in found.together]
    shown = []
    for each in _folding(found, folded).joint:
        head, colon, rest = rules[each.place].partition(":")
        times = f" ×{each.count}" if each.count > 1 else ""
        shown.append((f"{head}{times}{colon}{rest}", each))
    return shown


def _folding(found: "SymmetryMap", folded: bool) -> Folding:
    """The folding of layers that repeat, or one that folds nothing."""
    looks = {one.block: _look(one) if folded else one.block for one in found.blocks}
    return fold(looks, [one.exponents for one in found.together])


def _look(one: BlockSymmetry) -> tuple[object, ...]:
    """What blocks that are told as one have in common."""
    symbols = (verdict.symbol for verdict in one.moves.values())
    return one.shape, one.dead, *symbols, *map(_kind, one.parts)


def _kind(part: PartSymmetry) -> tuple[str, Move, int, int]:
    return part.kind, part.move, len(part.free), len(part.unused)


def text_of(members: Sequence[BlockSymmetry], move: Move) -> str:
    """Return the verdict on a move, of the block in which an eps breaks it most; "" if it has no sense."""
    verdicts = [one.moves[move] for one in members if move in one.moves]
    return max(verdicts, key=lambda verdict: np.nan_to_num(verdict.breaking)).text if verdicts else ""


def module_of(block: str) -> str:
    """Return the name of the module that a block, or a folded one, is in."""
    return block.partition("[")[0].rpartition(".")[0]


def for_latex(cell: str) -> str:
    """Return a cell of the table without signs that need further packages."""
    for sign, word in _WORDS.items():
        cell = cell.replace(sign, word)
    return _FORMULAS.get(cell, cell)
