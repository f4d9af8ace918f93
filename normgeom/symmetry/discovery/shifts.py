"""Names for constant directions that the outputs do not see: re-centering, per-row shifts, unused entries."""

from collections.abc import Iterator

import torch
from torch import Tensor

from normgeom.symmetry.discovery.algebra import Algebra
from normgeom.symmetry.discovery.layout import Described, Layout, listed, symbol
from normgeom.symmetry.discovery.readable import Independent, readable

Key = tuple[str, str]


def name_shifts(layout: Layout, algebra: Algebra) -> list[Described]:
    """Return the constant directions of an algebra by kind; each has p + 1 affine coefficients."""
    picked, groups = Independent(layout.size), dict[Key, list[Tensor]]()
    left = [(_kind(layout, row), row) for row in readable(algebra.shifts.T)]
    by_group = [(key, direction) for key, direction in left if key[0].startswith("re-centering")]
    for key, direction in [*_unused(layout), *by_group, *_candidates(layout), *left]:
        if _inside(algebra, direction) and picked.adds(direction):
            groups.setdefault(key, []).append(direction)
    return [_described(layout, key, directions) for key, directions in groups.items()]


def _inside(algebra: Algebra, direction: Tensor) -> bool:
    outside = direction @ algebra.across
    return bool(outside.norm() <= algebra.loose * direction.norm())


def _unused(layout: Layout) -> Iterator[tuple[Key, Tensor]]:
    """Every entry by itself."""
    for position, direction in enumerate(torch.eye(layout.size, dtype=torch.float64)):
        yield ("unused", layout.entry(position)[0]), direction


def _candidates(layout: Layout) -> Iterator[tuple[Key, Tensor]]:
    """The same at all rows, or at all that is in a row."""
    for name, shape in layout.shapes.items():
        if len(shape) > 1:
            yield from ((("re-centering", name), u) for u in layout.same_along(name, 0))
            yield from ((("per-row shift", name), layout.direction(name, 0, i)) for i in range(shape[0]))
        elif shape:
            yield ("common shift", name), layout.direction(name)


def _kind(layout: Layout, direction: Tensor) -> Key:
    """What a direction is that is no candidate: the same for some rows, or for some inputs of a row."""
    names = [name for name in layout.shapes if bool(direction[layout.part(name)].any())]
    if len(names) == 1 and len(layout.shapes[names[0]]) > 1 and len(direction.unique()) == 2:
        rows, columns = _support(layout, names[0], direction)
        if len(columns) == 1:
            full = len(rows) == layout.shapes[names[0]][0]
            return "re-centering" if full else "re-centering by group", names[0]
        if len(rows) == 1:
            return "per-row shift by group", names[0]
    return "shift", ", ".join(names)


def _support(layout: Layout, name: str, direction: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The rows at which a direction is not zero, and the places in a row."""
    moved = direction[layout.part(name)].reshape(layout.shapes[name][0], -1) != 0
    rows, columns = (tuple(moved.any(axis).nonzero()[:, 0].tolist()) for axis in (1, 0))
    return rows, columns


def _groups(layout: Layout, name: str, directions: list[Tensor], which: int) -> str:
    """The different sets of rows (or of places in a row) that are shifted alike."""
    sets = dict.fromkeys(_support(layout, name, direction)[which] for direction in directions)
    return "; ".join(listed(some) for some in sorted(sets))


def _described(layout: Layout, key: Key, directions: list[Tensor]) -> Described:
    fields = torch.stack([layout.constant(direction) for direction in directions])
    return Described(key[0], *_written(layout, key, directions), fields, layout.size + 1)


def _written(layout: Layout, key: Key, directions: list[Tensor]) -> tuple[str, str]:
    """What shifts of a kind do, as text and as a formula."""
    kind, name = key
    tex = symbol(name)
    if kind == "unused":
        full = len(directions) == layout.direction(name).sum()
        entries = name if full else ", ".join(_entry(layout, u) for u in directions)
        return f"outputs do not depend on {entries}", rf"\partial f / \partial {tex} = 0"
    if kind.startswith("re-centering"):
        where = f" for rows {_groups(layout, name, directions, 0)}" if "group" in kind else ""
        return f"{name} → {name} + 1γᵀ{where}", rf"{tex} \to {tex} + 1\gamma^\top"
    if kind.startswith("per-row shift"):
        where = f" at inputs {_groups(layout, name, directions, 1)}" if "group" in kind else ""
        return f"{name} → {name} + γ1ᵀ{where}", rf"{tex} \to {tex} + \gamma 1^\top"
    if kind == "common shift":
        return f"{name} → {name} + γ", rf"{tex} \to {tex} + \gamma"
    return layout.written(layout.constant(directions[0]))


def _entry(layout: Layout, direction: Tensor) -> str:
    name, index = layout.entry(int(direction.argmax()))
    return f"{name}[{','.join(str(i + 1) for i in index)}]"
