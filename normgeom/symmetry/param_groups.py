"""Groups of an optimizer in which weight decay is set by what the symmetries leave of a block's length."""

from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from normgeom.symmetry.map import SymmetryMap


class LengthKind(StrEnum):
    """What the length of a tensor means to the function."""

    FREE = "scale-free"
    SHARED = "shared"
    DETERMINED = "determined"
    DEAD = "dead"


WHY = {
    LengthKind.FREE: "the function does not see this length, alone or with the rest of this group: "
    "weight decay only sets the effective learning rate",
    LengthKind.SHARED: "only products of these lengths matter: weight decay balances the blocks that share "
    "one, and shrinks the product",
    LengthKind.DETERMINED: "no scale symmetry moves these: weight decay shrinks the function itself",
    LengthKind.DEAD: "the outputs do not depend on these: weight decay would only move them",
}


def kinds(found: "SymmetryMap") -> dict[str, LengthKind]:
    """Return what the length of every trainable tensor means.

    Free are the blocks of single symmetries and of joint ones without a negative exponent, as long as all of
    them together can be scaled by one number: that is what decay at one rate does.
    """
    pieces: dict[str, list[str]] = {}
    for one in found.blocks:
        pieces.setdefault(one.parameter, []).append(one.block)
    free = _commonly_free(found)
    shared = {name for one in found.joint for name in one.exponents}
    dead = {one.block for one in found.dead}
    result = {}
    for name, blocks in pieces.items():
        if not found.parameters[name].requires_grad:
            continue
        if all(block in dead for block in blocks):
            result[name] = LengthKind.DEAD
        elif all(block in free or block in dead for block in blocks):
            result[name] = LengthKind.FREE
        elif any(block in shared or block in free for block in blocks):
            result[name] = LengthKind.SHARED
        else:
            result[name] = LengthKind.DETERMINED
    return result


def _commonly_free(found: "SymmetryMap") -> set[str]:
    """The blocks that one factor for all of them leaves the function with."""
    single = {one.block for one in found.single if not one.dead}
    one_way = [set(one.exponents) for one in found.joint if min(one.exponents.values()) > 0]
    names = [one.block for one in found.blocks]
    basis = np.array([[one.exponents.get(name, 0) for name in names] for one in found.joint], dtype=float)
    free = set(single)
    for blocks in one_way:
        together = np.array([float(name in (free | blocks) - single) for name in names])
        if np.linalg.norm(basis.T @ np.linalg.lstsq(basis.T, together, rcond=None)[0] - together) < 1e-8:
            free |= blocks
    return free


def free_together(found: "SymmetryMap") -> list[list[str]]:
    """Return the blocks that one factor can scale: those of a joint scaling by c, and single ones."""
    single = [[one.block] for one in found.single if not one.dead]
    joint = [list(one.exponents) for one in found.joint if set(one.exponents.values()) == {1}]
    return joint + single


def grouped(found: "SymmetryMap", weight_decay: float, determined: float) -> list[dict[str, Any]]:
    """Return the groups, in the order of `LengthKind`; empty ones are left out."""
    for name, value in (("weight_decay", weight_decay), ("determined", determined)):
        if not value >= 0:
            raise ValueError(f"{name} must be at least 0; got {value}.")
    decay = {
        LengthKind.FREE: weight_decay,
        LengthKind.SHARED: weight_decay,
        LengthKind.DETERMINED: determined,
        LengthKind.DEAD: 0.0,
    }
    by_kind = kinds(found)
    groups = []
    for kind in LengthKind:
        names = [name for name, own in by_kind.items() if own is kind]
        if names:
            params = [found.parameters[name] for name in names]
            group = {"params": params, "weight_decay": decay[kind], "names": names}
            groups.append({**group, "kind": str(kind), "why": WHY[kind]})
    return groups


def reason_for(found: "SymmetryMap", parameter: str) -> str:
    """Return the kind of a tensor's length, why, and the symmetries that it takes part in."""
    by_kind = kinds(found)
    if parameter not in by_kind:
        raise KeyError(f"no trainable parameter {parameter!r}; there are {', '.join(by_kind)}")
    blocks = {one.block for one in found.blocks if one.parameter == parameter}
    own = [one.why for one in found.blocks if one.block in blocks and one.why]
    joint = [one.why for one in found.joint if blocks & set(one.exponents)]
    kind = by_kind[parameter]
    return "; ".join([f"{kind}: {WHY[kind]}", *dict.fromkeys(own + joint)])
