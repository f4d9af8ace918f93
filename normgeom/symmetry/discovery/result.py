"""What was discovered: generators with their evidence, and the table of them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from normgeom.report import to_latex, to_markdown
from normgeom.symmetry.discovery.algebra import CLEAR
from normgeom.symmetry.discovery.subject import Shapes

_SHOWN = 12


@dataclass(frozen=True, eq=False)
class SymmetryGenerator:
    """Infinitesimal symmetries of one kind, `V(w) = A w + b`.

    Attributes:
        name: the kind, such as `whole scale` or `re-centering`.
        action: the transformation, as text.
        latex: the same as a formula, without dollar signs.
        fields: independent fields (A, b) on the flat parameters, (directions, p, p + 1).
        coefficients: how many independent fields each direction stands for: 1, or p + 1 where the direction
            times any affine function of the parameters is a symmetry too.
        deviation: the change of the outputs along finite transforms, relative to the largest output.
        tolerance: the rounding that it is judged against.
        breaking: the change that the layer's own eps makes, None if it has none that is known.
        in_gradient: whether the derivative that autograd gives vanishes along them.
        named: whether the kind is a known one.
    """

    name: str
    action: str
    latex: str
    fields: Tensor
    coefficients: int
    deviation: float
    tolerance: float
    breaking: float | None
    in_gradient: bool
    named: bool

    @property
    def directions(self) -> int:
        """The number of independent fields up to coefficients."""
        return len(self.fields)

    @property
    def multiplicity(self) -> int:
        """The dimensions that it adds to the Lie algebra."""
        return self.directions * self.coefficients

    @property
    def confirmed(self) -> bool:
        """Whether finite transforms leave the outputs unchanged."""
        return self.deviation <= self.tolerance

    @property
    def evidence(self) -> str:
        """Which of the function and its gradient has the symmetry."""
        if not self.confirmed:
            return "gradient only"
        return "function and gradient" if self.in_gradient else "function only"

    def __str__(self) -> str:
        """Name, action and dimensions."""
        return f"{self.name}: {self.action} ({self.count})"

    @property
    def count(self) -> str:
        """The multiplicity as it comes about: `3 × 13 = 39` or `1`."""
        several = self.coefficients > 1
        return (
            f"{self.directions} × {self.coefficients} = {self.multiplicity}"
            if several
            else str(self.directions)
        )

    def as_row(self) -> dict[str, Any]:
        """Return plain values; the fields as nested lists."""
        plain = {k: v for k, v in vars(self).items() if k != "fields"}
        counts = {"directions": self.directions, "multiplicity": self.multiplicity}
        said = {"confirmed": self.confirmed, "evidence": self.evidence}
        return plain | counts | said | {"fields": self.fields.tolist()}


@dataclass(frozen=True, eq=False, repr=False)
class Discovery:
    """The Lie algebra of affine symmetries of one layer's parameters.

    Attributes:
        layer: its name.
        shapes: the parameters, in the order of the flat vector of length p.
        found: all generators, confirmed or not, named ones first.
        up_to_eps: scales that hold but for a constant in the layer that matters less for larger weights;
            they are in no dimension.
        gap: the smallest singular value kept over the largest dropped, of the Jacobians and the system.
        threshold: what counted as zero, relative to the largest singular value.
        eps: the layer's own, taken away before (0 if it has none or none is known).
    """

    layer: str
    shapes: Shapes
    found: tuple[SymmetryGenerator, ...]
    up_to_eps: tuple[SymmetryGenerator, ...]
    gap: float
    threshold: float
    eps: float

    @property
    def size(self) -> int:
        """The number p of parameters."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    @property
    def dimension(self) -> int:
        """The dimension of the Lie algebra of the function: of what finite transforms confirm."""
        return sum(one.multiplicity for one in self.confirmed)

    @property
    def generators(self) -> tuple[SymmetryGenerator, ...]:
        """Those of a known kind."""
        return tuple(one for one in self.found if one.named)

    @property
    def unnamed(self) -> tuple[SymmetryGenerator, ...]:
        """Those of no known kind."""
        return tuple(one for one in self.found if not one.named)

    @property
    def confirmed(self) -> tuple[SymmetryGenerator, ...]:
        """Those along which finite transforms leave the outputs unchanged."""
        return tuple(one for one in self.found if one.confirmed)

    @property
    def gradient_only(self) -> tuple[SymmetryGenerator, ...]:
        """Those along which the gradient vanishes although the outputs change."""
        return tuple(one for one in self.found if not one.confirmed)

    @property
    def function_only(self) -> tuple[SymmetryGenerator, ...]:
        """Those that the function has and its gradient lacks, as where statistics are detached."""
        return tuple(one for one in self.found if one.confirmed and not one.in_gradient)

    @property
    def clear(self) -> bool:
        """Whether the gap is wide enough, 1000, for the dimension to be read off without doubt."""
        return self.gap >= CLEAR

    def __getitem__(self, name: str) -> SymmetryGenerator:
        """Return the first generator of a kind."""
        for one in self.found:
            if one.name == name:
                return one
        raise KeyError(f"no {name!r}; there are {', '.join(one.name for one in self.found) or 'none'}.")

    def __iter__(self) -> Iterator[SymmetryGenerator]:
        """Iterate over the generators found."""
        return iter(self.found)

    def __len__(self) -> int:
        """Return the number of kinds found."""
        return len(self.found)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, with every field."""
        rows = [one.as_row() for one in self.found]
        return {
            "layer": self.layer,
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "dimension": self.dimension,
            "generators": rows,
            "up_to_eps": [one.as_row() for one in self.up_to_eps],
            "gap": self.gap,
            "threshold": self.threshold,
            "clear": self.clear,
            "eps": self.eps,
        }

    def to_markdown(self) -> str:
        """Return a row for each generator."""
        return to_markdown(self._header(), self._rows())

    def to_latex(self, *, caption: str = "", label: str = "tab:symmetries") -> str:
        """Return the same as LaTeX; it needs the package booktabs."""
        header = ["symmetry", "action", "dimension", "holds in"]
        rows = [[one.name, f"${one.latex}$", f"${one.count}$", one.evidence] for one in self.found]
        caption = caption or f"Affine symmetries of {self.layer}: {self.dimension} dimensions."
        return to_latex(
            header, [[c.replace("×", r"\times") for c in row] for row in rows], caption=caption, label=label
        )

    def _header(self) -> list[str]:
        header = ["symmetry", "action", "dimension", "holds in", "finite change"]
        return [*header, *(["with own eps"] if self.eps else [])]

    def _rows(self) -> list[list[str]]:
        rows = []
        for one in self.found:
            breaking = [] if one.breaking is None else [f"{one.breaking:.0e}"]
            rows.append([one.name, one.action, one.count, one.evidence, f"{one.deviation:.0e}", *breaking])
        return rows

    def __repr__(self) -> str:
        """Return the dimension, the table, and how sure it is."""
        shapes = ", ".join(f"{name} {shape}" for name, shape in self.shapes.items())
        head = f"{self.layer}: {self.dimension} affine symmetries of {shapes}, p = {self.size}"
        notes = [f"× {self.size + 1}: each direction times any affine function of the parameters"]
        notes = notes if any(one.coefficients > 1 for one in self.found) else []
        notes += [
            f"gap {self.gap:.0e} at a threshold of {self.threshold:.0e}{'' if self.clear else ' (unclear)'}"
        ]
        if self.eps:
            notes.append(f"eps = {self.eps:g} was taken away")
        notes += [
            f"up to eps: {one.action} (changes the outputs by {one.deviation:.0e}, less for larger weights)"
            for one in self.up_to_eps
        ]
        table = [to_markdown(self._header(), self._rows()[:_SHOWN])] if self.found else []
        more = [f"and {len(self) - _SHOWN} more: see to_markdown()"] if len(self) > _SHOWN else []
        return "\n".join([head, *table, *more, *notes])
