"""Names for linear fields that mix rows or columns: rotations, GL(n), SL(n) on one or several parameters."""

from collections.abc import Iterator

import torch
from torch import Tensor

from normgeom.symmetry.discovery.algebra import Algebra
from normgeom.symmetry.discovery.layout import Described, Layout, listed, symbol
from normgeom.symmetry.discovery.readable import Independent, readable

Entry = tuple[str, int, int, int, int]  # parameter, axis, to, of, value
Part = tuple[str, int, int]  # parameter, axis, 1 or -1 (the inverse transposed)
Key = tuple[str, tuple[Part, ...]]
_LETTER = {"GL": "M", "rotation": "R"}


def name_actions(layout: Layout, algebra: Algebra, picked: Independent) -> list[Described]:
    """Return the rotations and the actions of GL(n) in an algebra, of those that are new."""
    entries, fields = mixing_family(layout)
    groups = dict[Key, list[Tensor]]()
    for weights in _inside(algebra, fields):
        key = _key([(*e, int(w)) for e, w in zip(entries, weights.tolist(), strict=True) if w])
        if key is not None:
            groups.setdefault(key, []).append(torch.einsum("k,kij->ij", weights, fields))
    found = [_completed(layout, algebra, key, group) for key, group in groups.items()]
    return [described for one in found if (described := _new(one, algebra, picked)) is not None]


def name_block_actions(layout: Layout, algebra: Algebra, picked: Independent) -> list[Described]:
    """Return the same for blocks of rows of a parameter, such as queries above keys."""
    entries, fields = mixing_family(layout)
    mixed = [
        [(*e, int(w)) for e, w in zip(entries, ws.tolist(), strict=True) if w]
        for ws in _inside(algebra, fields)
    ]
    if all(_key(one) for one in mixed):
        return []
    return [one for split in layout.in_blocks() for one in name_actions(split, algebra, picked)]


def mixing_family(layout: Layout) -> tuple[list[tuple[str, int, int, int]], Tensor]:
    """Return all fields that add one index of an axis to another: what they are, and (k, p, p + 1)."""
    entries = [
        (name, axis, i, j)
        for name, axis in layout.axes()
        for i in range(layout.shapes[name][axis])
        for j in range(layout.shapes[name][axis])
        if i != j
    ]
    empty = torch.zeros(0, layout.size, layout.size + 1, dtype=torch.float64)
    return entries, torch.stack([layout.mixing(*entry) for entry in entries]) if entries else empty


def _inside(algebra: Algebra, fields: Tensor) -> Iterator[Tensor]:
    """The combinations of a family that lie in the algebra, in a readable basis."""
    if not len(fields):
        return
    _, values, basis = torch.linalg.svd(algebra.seen(fields).T)
    yield from readable(basis[int((values > algebra.loose).sum()) :])


def _key(entries: list[Entry]) -> Key | None:
    """Which action a combination of mixings is of, None if of none that has a name."""
    axes = {(name, axis) for name, axis, *_ in entries}
    pairs = {frozenset((to, of)) for *_, to, of, _ in entries}
    if len(pairs) != 1 or any(abs(entry[-1]) != 1 for entry in entries):
        return None
    first = entries[0]
    signs = {(name, axis, to == first[2]): value * first[-1] for name, axis, to, _, value in entries}
    if len(entries) == 2 * len(axes):
        skew = all(signs[n, a, True] == -signs[n, a, False] for n, a in axes)
        same = all(signs[n, a, True] == 1 for n, a in axes)
        return ("rotation", tuple((n, a, 1) for n, a in sorted(axes))) if skew and same else None
    if len(entries) != len(axes) or any(value != (1 if same else -1) for (*_, same), value in signs.items()):
        return None
    return "GL", tuple((n, a, 1 if same else -1) for n, a, same in signs)


def _completed(layout: Layout, algebra: Algebra, key: Key, fields: list[Tensor]) -> Described:
    """The action with its name; all mixings together have SL(n), and its trace may make it GL(n)."""
    kind, parts = key
    n = layout.shapes[parts[0][0]][parts[0][1]]
    text, formula = _written(layout, kind, parts)
    if kind == "rotation":
        turned = _turned(layout, parts[0], torch.stack(fields))
        m = len(turned)
        name = f"rotation SO({m})" if len(fields) == m * (m - 1) // 2 else "rotation of some"
        where = "" if m == n else f" for {listed(turned)}"
        return Described(name, text + where, formula, torch.stack(fields))
    if len(fields) < n * (n - 1):
        return Described("shear", text, formula, torch.stack(fields))
    scales = [layout.scaling(_signed(layout, parts, i)) for i in range(n)]
    general = bool(algebra.contains(torch.stack(scales)).all())
    diagonal = scales if general else [one - scales[0] for one in scales[1:]]
    return Described(f"GL({n})" if general else f"SL({n})", text, formula, torch.stack([*fields, *diagonal]))


def _turned(layout: Layout, part: Part, fields: Tensor) -> list[int]:
    """The indices of an axis that some of the fields move."""
    name, axis, _ = part
    moved = fields.abs().sum((0, 2))[layout.part(name)].reshape(layout.shapes[name]).movedim(axis, 0)
    return [int(i) for i in moved.flatten(1).any(1).nonzero()[:, 0]]


def _signed(layout: Layout, parts: tuple[Part, ...], index: int) -> Tensor:
    """The exponents that scale one index of every part, by its sign."""
    return torch.stack([sign * layout.direction(name, axis, index) for name, axis, sign in parts]).sum(0)


def _new(described: Described, algebra: Algebra, picked: Independent) -> Described | None:
    """The part of an action that is new, None if nothing is."""
    sizes = described.fields.flatten(1).norm(dim=1)[:, None]
    coordinates = algebra.coordinates(described.fields) / sizes
    inside = algebra.contains(described.fields).tolist()
    new = [ok and picked.adds(c) for ok, c in zip(inside, coordinates, strict=True)]
    if not any(new):
        return None
    return Described(described.name, described.action, described.latex, described.fields[torch.tensor(new)])


def _written(layout: Layout, kind: str, parts: tuple[Part, ...]) -> tuple[str, str]:
    """What the action does to every part, as text and as a formula."""
    letter = _LETTER[kind]
    texts, formulas = zip(*(_moved(layout, letter, *part) for part in parts), strict=True)
    return ", ".join(texts), r",\; ".join(formulas)


def _moved(layout: Layout, letter: str, name: str, axis: int, sign: int) -> tuple[str, str]:
    left = axis == 0
    power = {(True, 1): "", (False, 1): "ᵀ", (True, -1): "⁻ᵀ", (False, -1): "⁻¹"}[left, sign]
    tex = {"": "", "ᵀ": r"^\top", "⁻ᵀ": r"^{-\top}", "⁻¹": "^{-1}"}[power]
    where = "" if axis < 2 and len(layout.shapes[name]) < 3 else f" along axis {axis}"
    moved = f"{letter}{power} {name}" if left else f"{name} {letter}{power}"
    formula = f"{letter}{tex}{symbol(name)}" if left else f"{symbol(name)}{letter}{tex}"
    return f"{name} → {moved}{where}", rf"{symbol(name)} \to {formula}"
