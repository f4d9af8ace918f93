"""Fields on named parameters: which entry of the flat vector is which, and how a field is written."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from normgeom.symmetry.discovery.subject import Shapes

_TERMS = 4  # of a field that are written out


@dataclass(frozen=True, eq=False)
class Described:
    """Fields of one kind, with what they do.

    Attributes:
        name: the kind, such as `whole scale`.
        action: the transformation, as text.
        latex: the same as a formula.
        fields: independent fields (A, b) of `V(w) = A w + b`, (directions, p, p + 1).
        coefficients: how many independent fields there are of each direction: 1, or p + 1 if any affine
            function of the parameters times the direction is one.
        named: whether the kind is a known one.
    """

    name: str
    action: str
    latex: str
    fields: Tensor
    coefficients: int = 1
    named: bool = True


@dataclass(frozen=True)
class Layout:
    """The parameters in the flat vector."""

    shapes: Shapes

    @property
    def size(self) -> int:
        """The length p of the vector."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def part(self, name: str) -> slice:
        """Return where a parameter lies."""
        start = 0
        for other, shape in self.shapes.items():
            if other == name:
                return slice(start, start + math.prod(shape))
            start += math.prod(shape)
        raise KeyError(name)

    def in_blocks(self) -> Iterator["Layout"]:
        """Yield layouts of the same vector with the rows of one parameter in blocks of 2 or more."""
        for name, shape in self.shapes.items():
            rows = shape[0] if shape else 0
            for count in (n for n in range(2, rows // 2 + 1) if rows % n == 0):
                each = rows // count
                blocks = {
                    f"{name}[{listed(range(k * each, (k + 1) * each))}]": (each, *shape[1:])
                    for k in range(count)
                }
                pairs = [(blocks if other == name else {other: own}) for other, own in self.shapes.items()]
                yield Layout({other: own for part in pairs for other, own in part.items()})

    def direction(self, name: str, axis: int | None = None, index: int = 0) -> Tensor:
        """Return ones at the entries of a parameter, or at one index along an axis, and zeros elsewhere."""
        vector = torch.zeros(self.size, dtype=torch.float64)
        inside = torch.zeros(self.shapes[name], dtype=torch.float64)
        (inside if axis is None else inside.select(axis, index)).fill_(1)
        vector[self.part(name)] = inside.reshape(-1)
        return vector

    def same_along(self, name: str, axis: int) -> Iterator[Tensor]:
        """Yield the directions that are one entry, the same at all indices of an axis."""
        shape = self.shapes[name]
        others = [*shape[:axis], 1, *shape[axis + 1 :]]
        for one in torch.eye(math.prod(others), dtype=torch.float64):
            vector = torch.zeros(self.size, dtype=torch.float64)
            vector[self.part(name)] = one.reshape(others).expand(shape).reshape(-1)
            yield vector

    def scaling(self, exponents: Tensor) -> Tensor:
        """Return the field that multiplies every entry by its exponent, (p, p + 1)."""
        return torch.cat([torch.diag(exponents), exponents.new_zeros(self.size, 1)], dim=1)

    def constant(self, direction: Tensor) -> Tensor:
        """Return the field that is the same everywhere, (p, p + 1)."""
        return torch.cat([direction.new_zeros(self.size, self.size), direction[:, None]], dim=1)

    def mixing(self, name: str, axis: int, to: int, of: int) -> Tensor:
        """Return the field that adds what is at one index of an axis to another, (p, p + 1)."""
        positions = torch.arange(self.size)[self.part(name)].reshape(self.shapes[name])
        field = torch.zeros(self.size, self.size + 1, dtype=torch.float64)
        field[positions.select(axis, to).reshape(-1), positions.select(axis, of).reshape(-1)] = 1
        return field

    def axes(self) -> list[tuple[str, int]]:
        """Return the parameters' axes of more than one index."""
        return [(name, axis) for name, shape in self.shapes.items() for axis, n in enumerate(shape) if n > 1]

    def entry(self, position: int) -> tuple[str, tuple[int, ...]]:
        """Return the parameter that an entry of the vector is of, and its index in it."""
        for name, shape in self.shapes.items():
            if position < math.prod(shape):
                index = torch.unravel_index(torch.tensor(position), shape) if shape else ()
                return name, tuple(int(i) for i in index)
            position -= math.prod(shape)
        raise IndexError(position)

    def written(self, field: Tensor) -> tuple[str, str]:
        """Return a field in the entries' names, as text and as a formula: `(2 w[1,2] + 1) ∂w[1,1]`."""
        parts = [
            (*_affine(self, row), *self._symbols(k))
            for k, row in enumerate(field)
            if bool((row.abs() > 1e-9).any())
        ]
        more = len(parts) > _TERMS
        text = " + ".join(f"({value}) ∂{symbol}" for value, _, symbol, _ in parts[:_TERMS])
        tex = " + ".join(rf"({value})\,\partial_{{{symbol}}}" for _, value, _, symbol in parts[:_TERMS])
        return text + " + …" * more, tex + r" + \cdots" * more

    def _symbols(self, position: int) -> tuple[str, str]:
        name, index = self.entry(position)
        joined = ",".join(str(i + 1) for i in index)
        return (f"{name}[{joined}]", f"{symbol(name)}_{{{joined}}}") if index else (name, symbol(name))


def symbol(name: str) -> str:
    """Return a parameter's name as a formula has it."""
    name, bracket, rows = name.partition("[")
    letters = name if len(name) == 1 else rf"\mathrm{{{name}}}".replace("_", r"\_")
    return f"{letters}_{{{rows.rstrip(']').replace('–', '--')}}}" if bracket else letters


def listed(indices: Sequence[int]) -> str:
    """Return 0-based indices as people count, stretches in short.

    >>> listed([0, 1, 2, 4])
    '1–3, 5'
    """
    runs: list[list[int]] = []
    for i in indices:
        if runs and i == runs[-1][-1] + 1:
            runs[-1].append(i)
        else:
            runs.append([i])
    return ", ".join(f"{r[0] + 1}–{r[-1] + 1}" if len(r) > 1 else str(r[0] + 1) for r in runs)


def _affine(layout: Layout, row: Tensor) -> tuple[str, str]:
    """An affine function of the entries, as text and as a formula."""
    terms = [(float(c), *layout._symbols(k)) for k, c in enumerate(row[:-1]) if abs(float(c)) > 1e-9]
    terms += [(float(row[-1]), "", "")] if abs(float(row[-1])) > 1e-9 else []
    more = len(terms) > _TERMS
    text = " + ".join(_term(c, name) for c, name, _ in terms[:_TERMS]).replace("+ -", "- ")
    tex = " + ".join(_term(c, name) for c, _, name in terms[:_TERMS]).replace("+ -", "- ")
    return text + " + …" * more, tex + r" + \cdots" * more


def _term(coefficient: float, name: str) -> str:
    number = f"{coefficient:.3g}"
    return number if not name else {"1": name, "-1": f"-{name}"}.get(number, f"{number} {name}")
