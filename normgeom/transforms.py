"""The transforms of Table 1 as group actions on (weight, data).

An element is a frozen dataclass with one parameter; calling it acts: `transform(weight, data) -> (weight,
data)`. A class says along which axis its parameter runs and from which set it is drawn, so that every
engine can draw its own: `sample` draws floating-point elements near a given weight and data, the exact
engine draws rationals, the symbolic one uses free symbols.

The first axis of a weight is the units, that of data the cases; a convolution's weight is (units, inputs,
*kernel), its data (cases, inputs, *positions). There a shift of the data is one number an input
(`DatasetRecenter`) or anything (`DatasetShift`); for matrices the two are the same.

Scales compose by multiplication and shifts by addition; `then` composes, `inverse` undoes:

>>> double = WeightMatrixRescale(2.0)
>>> double.then(double.inverse())
WeightMatrixRescale(delta=1.0)
"""

from dataclasses import dataclass
from typing import Any

from normgeom._actions import Action, Composition, Recenter, Rescale, Transform

__all__ = [
    "NEGATIVE_SCALES",
    "TABLE_1",
    "CaseNegativeRescale",
    "CaseRecenter",
    "CaseRescale",
    "Composition",
    "DatasetNegativeRescale",
    "DatasetRecenter",
    "DatasetRescale",
    "DatasetShift",
    "Transform",
    "WeightMatrixNegativeRescale",
    "WeightMatrixRecenter",
    "WeightMatrixRescale",
    "WeightVectorNegativeRescale",
    "WeightVectorRecenter",
    "WeightVectorRescale",
]


class WeightMatrixRescale(Rescale):
    """Weight matrix re-scaling, `W -> delta W`, `delta > 0` in Table 1 (a negative one flips the output)."""

    title, formula, moves, axis = "weight matrix re-scaling", r"W \to \delta W", "weight", None


@dataclass(frozen=True, eq=False)
class WeightMatrixRecenter(Recenter):
    """Weight matrix re-centering, `W -> W + 1 gamma^T`: one arbitrary vector added to every row.

    For a convolution gamma is one arbitrary filter (inputs, *kernel).
    """

    gamma: Any
    title, formula, moves, axis = (
        "weight matrix re-centering", r"W \to W + \mathbf{1}\gamma^\top", "weight", "inputs",
    )  # fmt: skip


class WeightVectorRescale(Rescale):
    """Weight vector re-scaling, `w_i -> delta_i w_i`, each `delta_i > 0`; shape (units,)."""

    title, formula, moves, axis = "weight vector re-scaling", r"w_i \to \delta_i w_i", "weight", "units"


class DatasetRescale(Rescale):
    """Dataset re-scaling, `X -> delta X`, `delta > 0`."""

    title, formula, moves, axis = "dataset re-scaling", r"X \to \delta X", "data", None


@dataclass(frozen=True, eq=False)
class DatasetRecenter(Recenter):
    """Dataset re-centering, `X -> X + 1 gamma^T`: one arbitrary vector added to every case.

    For images gamma is one number a channel, added at every position.
    """

    gamma: Any
    title, formula, moves, axis = (
        "dataset re-centering", r"X \to X + \mathbf{1}\gamma^\top", "data", "inputs",
    )  # fmt: skip
    constant_over_positions = True


@dataclass(frozen=True, eq=False)
class DatasetShift(Recenter):
    """Dataset re-centering by any image (inputs, *positions), added to all cases. Not in Table 1."""

    gamma: Any
    title, formula, moves, axis = (
        "dataset re-centering, any shift", r"x_n \to x_n + \Gamma", "data", "inputs",
    )  # fmt: skip


class CaseRescale(Rescale):
    """Single training case re-scaling, `x_n -> delta_n x_n`, each `delta_n > 0`; shape (cases,)."""

    title, formula, moves, axis = "single training case re-scaling", r"x_n \to \delta_n x_n", "data", "cases"


@dataclass(frozen=True, eq=False)
class WeightVectorRecenter(Recenter):
    """Weight vector re-centering, `w_i -> w_i + c_i 1`; shape (units,). Not in Table 1."""

    shift: Any
    title, formula, moves, axis = (
        "weight vector re-centering", r"w_i \to w_i + c_i\mathbf{1}", "weight", "units",
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class CaseRecenter(Recenter):
    """Single training case re-centering, `x_n -> x_n + c_n 1`; shape (cases,). Not in Table 1."""

    shift: Any
    title, formula, moves, axis = (
        "single training case re-centering", r"x_n \to x_n + c_n\mathbf{1}", "data", "cases",
    )  # fmt: skip


class WeightMatrixNegativeRescale(WeightMatrixRescale):
    """Weight matrix re-scaling by a negative number. Not in Table 1."""

    title, sign = "weight matrix re-scaling, negative", -1


class WeightVectorNegativeRescale(WeightVectorRescale):
    """Weight vector re-scaling by negative numbers. Not in Table 1."""

    title, sign = "weight vector re-scaling, negative", -1


class DatasetNegativeRescale(DatasetRescale):
    """Dataset re-scaling by a negative number. Not in Table 1."""

    title, sign = "dataset re-scaling, negative", -1


class CaseNegativeRescale(CaseRescale):
    """Single training case re-scaling by negative numbers. Not in Table 1."""

    title, sign = "single training case re-scaling, negative", -1


TABLE_1: tuple[type[Action], ...] = (
    WeightMatrixRescale,
    WeightMatrixRecenter,
    WeightVectorRescale,
    DatasetRescale,
    DatasetRecenter,
    CaseRescale,
)

NEGATIVE_SCALES: tuple[type[Action], ...] = (
    WeightMatrixNegativeRescale,
    WeightVectorNegativeRescale,
    DatasetNegativeRescale,
    CaseNegativeRescale,
)
