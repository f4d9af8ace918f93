"""What an engine, or several together, say of one layer under one transform."""

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

MAY_BE_NOTHING = ", by an amount that may be 0"  # what is said until a witness shows that it is not
SHOWN = 3  # entries along an axis of an array that is too large to print
NOT_A_FUNCTION = "so it is not a function of weight and data"


class Kind(StrEnum):
    """The four verdicts."""

    INVARIANT = "invariant"
    UP_TO_EPS = "invariant up to eps"
    NOT_INVARIANT = "not invariant"
    UNDECIDED = "undecided"


HOLDS = (Kind.INVARIANT, Kind.UP_TO_EPS)


@dataclass(frozen=True, eq=False)
class Witness:
    """A point where an output changes: rational and small from the exact engine, floating from the numeric.

    `before` and `after` are the values of `quantity` (`output`, or `z` before gain and bias) at one case and
    unit (0-based); `detail` says how to check it by hand.
    """

    weight: Any
    data: Any
    transform: Any
    case: int
    unit: int
    before: Any
    after: Any
    quantity: str = "output"
    detail: str = ""

    @property
    def deviation(self) -> float:
        """The size of the change of this output."""
        return abs(float(self.after) - float(self.before))

    def __str__(self) -> str:
        """Everything that is needed to check it by hand."""
        lines = [
            f"weight = {_matrix(self.weight)}",
            f"data   = {_matrix(self.data)}",
            f"action = {describe(self.transform)}",
            f"{self.quantity} of case {self.case + 1}, unit {self.unit + 1}: "
            f"{float(self.before):.6g} becomes {float(self.after):.6g}",
        ]
        return "\n".join([*lines, self.detail] if self.detail else lines)


@dataclass(frozen=True)
class Proof:
    """An identity that settles a cell, as text and as LaTeX, and the sizes it was checked at (0: any).

    `how` says over what: free symbols, 50 digits at random points, or rules for every size.
    """

    text: str
    latex: str
    instance: str
    units: int
    inputs: int
    cases: int
    how: str = "free symbols"

    def __str__(self) -> str:
        """The identity with its sizes."""
        if not self.units:
            return f"{self.text}\n({self.how})"
        return f"{self.text}\n({self.how}, {self.units} units, {self.inputs} inputs, {self.cases} cases)"


@dataclass(frozen=True, eq=False)
class Verdict:
    """One cell of the table.

    Attributes:
        layer, transform, title: whose cell it is; the title is the heading of Table 1.
        kind: invariant, invariant up to eps, not invariant, or undecided.
        error: the largest deviation, relative to the largest output, at the point that says most.
        tolerance: what rounding alone can explain there, in the same unit.
        predicted: the deviation that the layer's eps should cause, in the same unit.
        degree: k where scaling by delta multiplies the outputs by |delta|^k, if there is such a k.
        flips: whether the outputs change sign.
        witness: for *not invariant*, a point that shows it.
        proof: for *invariant*, the identity.
        engines: which engines decided.
        mode: `train` or `eval`.
        reason: why it is undecided, or what else to know.
    """

    layer: str
    transform: str
    kind: Kind
    title: str = ""
    error: float | None = None
    tolerance: float | None = None
    predicted: float | None = None
    degree: int | float | None = None
    flips: bool = False
    witness: Witness | None = None
    proof: Proof | None = None
    engines: tuple[str, ...] = ()
    mode: str = "train"
    reason: str = ""

    @property
    def holds(self) -> bool:
        """Whether the layer has the invariance, exactly or up to its eps."""
        return self.kind in HOLDS

    @property
    def exactly(self) -> bool:
        """Whether it has it exactly, whatever its eps."""
        return self.kind is Kind.INVARIANT

    @property
    def label(self) -> str:
        """The cell as the paper prints it, with what the paper leaves out."""
        if self.kind is Kind.NOT_INVARIANT:
            return "No"
        return {Kind.INVARIANT: "Invariant", Kind.UP_TO_EPS: "Up to eps"}.get(self.kind, "Undecided")

    @property
    def scaling(self) -> str:
        """How the outputs answer to a scale, where there is a law: `∝δ`, `∝δ^2`, `sign flips`."""
        if self.degree is None or self.kind is not Kind.NOT_INVARIANT:
            return ""
        return law(self.degree, self.flips)

    def as_row(self) -> dict[str, Any]:
        """The verdict as plain numbers and strings."""
        row = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        proof = row.pop("proof")
        row |= {"kind": str(self.kind), "label": self.label, "holds": self.holds, "scaling": self.scaling}
        row |= {"engines": list(self.engines), "witness": str(self.witness) if self.witness else None}
        row["witness_deviation"] = self.witness.deviation if self.witness else None
        row |= {"proof": str(proof) if proof else None, "proof_latex": proof.latex if proof else None}
        return row

    def __str__(self) -> str:
        """The verdict in a few lines, with its evidence."""
        lines = [f"{self.layer}, {self.title or self.transform}: {self.kind}"]
        numbers = [
            f"{name} {value:.2g}"
            for name, value in (
                ("largest deviation", self.error),
                ("tolerance", self.tolerance),
                ("predicted from eps", self.predicted),
            )
            if value is not None
        ]
        lines += ["; ".join(numbers)] if numbers else []
        lines += [f"outputs {self.scaling}"] if self.scaling else []
        lines += [str(part) for part in (self.proof, self.witness, self.reason) if part]
        return "\n  ".join("\n".join(lines).splitlines())


def law(degree: int | float, flips: bool) -> str:
    """Return how outputs of a degree answer to a scale: `∝δ`, `∝δ^2`, `∝δ^-0.5`, `sign flips`."""
    power = f"∝δ^{degree}" if degree not in (0, 1) else "∝δ" * int(degree)
    odd = degree % 2 == 1  # then the power of delta carries the sign
    return ", ".join(filter(None, [power, "sign flips" if flips and not odd else ""]))


def subject(layer: Any, transform: Any, engine: str) -> dict[str, Any]:
    """Return the fields of a verdict that say whose it is."""
    kind = transform if isinstance(transform, type) else type(transform)
    return {
        "layer": layer.name,
        "transform": kind.__name__,
        "title": getattr(transform, "title", ""),
        "engines": (engine,) if engine else (),
        "mode": layer.mode,
    }


def describe(transform: Any) -> str:
    """A transform with its parameter, numbers in short form."""
    if hasattr(transform, "steps"):
        return ", then ".join(describe(step) for step in transform.steps)
    if not hasattr(transform, "parameter"):
        return str(transform)
    return f"{type(transform).__name__}({_matrix(transform.parameter)})"


def _matrix(array: Any) -> str:
    """An array as nested lists of short numbers; of a large one its corner, and its shape."""
    if hasattr(array, "detach"):
        array = array.detach().cpu().double().numpy()
    if isinstance(array, np.ndarray) and array.size > 64:
        return f"{_corner(array)} (shape {array.shape})"
    if isinstance(array, np.ndarray) and array.ndim:
        return "[" + ", ".join(_matrix(row) for row in array) + "]"
    return f"{float(array):.4g}" if isinstance(array, float | np.ndarray) else str(array)


def _corner(array: np.ndarray) -> str:
    """The first entries along every axis, and dots for those left out."""
    if not array.ndim:
        return _matrix(array)
    shown = SHOWN if array.ndim <= 2 else 1
    parts = [_corner(np.asarray(part)) for part in array[:shown]]
    return "[" + ", ".join([*parts, *(["..."] if len(array) > shown else [])]) + "]"
