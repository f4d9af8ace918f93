"""The transforms of Table 1 as group actions on (weight, data).

An element is a frozen dataclass with one parameter; calling it acts: `transform(weight, data) -> (weight,
data)`. A class says along which axis its parameter runs and from which set it is drawn, so that every
engine can draw its own: `sample` draws floating-point elements near a given weight and data, the exact
engine draws rationals, the symbolic one uses free symbols.

Scales compose by multiplication and shifts by addition; `then` composes, `inverse` undoes:

>>> double = WeightMatrixRescale(2.0)
>>> double.then(double.inverse())
WeightMatrixRescale(delta=1.0)
"""

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import torch

from normgeom._types import Array, Data, Weight

Axis = Literal["units", "inputs", "cases"]
Moves = Literal["weight", "data"]


@runtime_checkable
class Transform(Protocol):
    """What an action must offer: to be called on (weight, data)."""

    def __call__(self, weight: Weight, data: Data, /) -> tuple[Weight, Data]:
        """Return the transformed weight and data."""


@dataclass(frozen=True, eq=False)
class _Action:
    """An action with one parameter. `axis` is None for a number; `moves` is what it acts on."""

    title: ClassVar[str]
    formula: ClassVar[str]
    moves: ClassVar[Moves]
    axis: ClassVar[Axis | None]
    sign: ClassVar[Literal[-1, 1] | None]

    @property
    def parameter(self) -> Any:
        """The one field: delta for scales, gamma for shifts along inputs, shift for others."""
        return getattr(self, fields(self)[0].name)

    def _check_parameter(self) -> None:
        """Make a list an array, and raise an error for a parameter of the wrong rank or not finite."""
        name = fields(self)[0].name
        if isinstance(self.parameter, list | tuple):
            object.__setattr__(self, name, torch.tensor(self.parameter, dtype=torch.float64))
        rank = 0 if self.axis is None else 1
        if np.ndim(self.parameter) != rank:
            wanted = "a number" if rank == 0 else f"one number for each of the {self.axis}"
            shape = tuple(np.shape(self.parameter))
            raise ValueError(f"{type(self).__name__}: {name} must be {wanted}; got shape {shape}.")
        numbers = _numbers(self.parameter)
        if numbers is not None and not np.isfinite(numbers).all():
            raise ValueError(f"{type(self).__name__}: {name} must be finite; got {self.parameter}.")

    @classmethod
    def shape(cls, weight: Weight, data: Data) -> tuple[int, ...]:
        """Return the shape of the parameter for this weight and data."""
        sizes = {"units": weight.shape[0], "inputs": weight.shape[1], "cases": data.shape[0]}
        return () if cls.axis is None else (sizes[cls.axis],)

    def then(self, other: "_Action | Composition") -> "_Action | Composition":
        """Return the action of `self` followed by `other`."""
        if type(other) is type(self):
            return type(self)(self._compose(other))  # type: ignore[call-arg]
        return Composition((self,)).then(other)

    def __eq__(self, other: object) -> bool:
        """Equal class and equal parameter."""
        if type(other) is not type(self):
            return NotImplemented
        mine, theirs = np.asarray(self.parameter), np.asarray(other.parameter)
        return mine.shape == theirs.shape and bool((mine == theirs).all())

    __hash__ = None  # type: ignore[assignment]

    def _compose(self, other: "_Action") -> Any:
        raise NotImplementedError

    def _along(self, array: Array) -> Any:
        """Return the parameter as a column (units or cases) or a row (inputs) that fits `array`."""
        if self.axis is None:
            return self.parameter
        values = self.parameter
        if isinstance(array, torch.Tensor):
            values = torch.as_tensor(values, dtype=array.dtype, device=array.device)
        elif not isinstance(values, np.ndarray):
            values = np.asarray(values)
        along = 1 if self.axis == "inputs" else 0
        if values.ndim != 1 or values.shape[0] != array.shape[along]:
            raise ValueError(
                f"{type(self).__name__} needs one number for each of the {array.shape[along]} {self.axis}; "
                f"got shape {tuple(values.shape)}."
            )
        return values[None, :] if self.axis == "inputs" else values[:, None]


@dataclass(frozen=True, eq=False)
class _Rescale(_Action):
    """Multiply by `delta`: a number, or one number a unit or case. Zero is no group element."""

    delta: Any
    sign: ClassVar[Literal[-1, 1] | None] = 1

    def __post_init__(self) -> None:
        """Raise an error for a scale that is 0, not finite, or positive where the name says negative."""
        self._check_parameter()
        numbers = _numbers(self.delta)
        if numbers is not None and not numbers.all():
            raise ValueError(f"{type(self).__name__}: every delta must differ from 0; got {self.delta}.")
        if numbers is not None and self.sign == -1 and (numbers > 0).any():
            raise ValueError(f"{type(self).__name__}: every delta must be negative; got {self.delta}.")

    def __call__(self, weight: Weight, data: Data, /) -> tuple[Weight, Data]:
        """Return (weight, data) with one of them re-scaled."""
        if self.moves == "weight":
            return weight * self._along(weight), data
        return weight, data * self._along(data)

    def inverse(self) -> "_Rescale":
        """Return the element that undoes this one."""
        return type(self)(1 / self.delta)

    def _compose(self, other: Any) -> Any:
        return self.delta * other.delta

    @classmethod
    def sample(cls, weight: Weight, data: Data, *, generator: torch.Generator) -> "_Rescale":
        """Draw scales between 2^-2 and 2^2, none within a factor of sqrt(2) of 1 and none a power of two."""
        shape = cls.shape(weight, data)
        size = torch.rand(shape, generator=generator, dtype=torch.float64) * 1.5 + 0.5
        up = torch.randint(0, 2, shape, generator=generator) * 2 - 1
        values = 2.0 ** (size * up) * (cls.sign or 1)
        return cls(values if shape else values.item())


@dataclass(frozen=True, eq=False)
class _Recenter(_Action):
    """Add a shift that is constant along one axis."""

    sign = None

    def __post_init__(self) -> None:
        """Raise an error for a shift that is not finite."""
        self._check_parameter()

    def __call__(self, weight: Weight, data: Data, /) -> tuple[Weight, Data]:
        """Return (weight, data) with one of them shifted."""
        if self.moves == "weight":
            return weight + self._along(weight), data
        return weight, data + self._along(data)

    def inverse(self) -> "_Recenter":
        """Return the element that undoes this one."""
        return type(self)(-self.parameter)  # type: ignore[call-arg]

    def _compose(self, other: Any) -> Any:
        return self.parameter + other.parameter

    @classmethod
    def sample(cls, weight: Weight, data: Data, *, generator: torch.Generator) -> "_Recenter":
        """Draw shifts of the size of the array that they move (its root mean square)."""
        moved = weight if cls.moves == "weight" else data
        size = float(torch.as_tensor(moved, dtype=torch.float64).square().mean().sqrt()) or 1.0
        draw = torch.randn(cls.shape(weight, data), generator=generator, dtype=torch.float64)
        return cls(draw * size)  # type: ignore[call-arg]


class WeightMatrixRescale(_Rescale):
    """Weight matrix re-scaling, `W -> delta W`, `delta > 0` in Table 1 (a negative one flips the output)."""

    title, formula, moves, axis = "weight matrix re-scaling", r"W \to \delta W", "weight", None


@dataclass(frozen=True, eq=False)
class WeightMatrixRecenter(_Recenter):
    """Weight matrix re-centering, `W -> W + 1 gamma^T`: one arbitrary vector added to every row."""

    gamma: Any
    title, formula, moves, axis = (
        "weight matrix re-centering", r"W \to W + \mathbf{1}\gamma^\top", "weight", "inputs",
    )  # fmt: skip


class WeightVectorRescale(_Rescale):
    """Weight vector re-scaling, `w_i -> delta_i w_i`, each `delta_i > 0`; shape (units,)."""

    title, formula, moves, axis = "weight vector re-scaling", r"w_i \to \delta_i w_i", "weight", "units"


class DatasetRescale(_Rescale):
    """Dataset re-scaling, `X -> delta X`, `delta > 0`."""

    title, formula, moves, axis = "dataset re-scaling", r"X \to \delta X", "data", None


@dataclass(frozen=True, eq=False)
class DatasetRecenter(_Recenter):
    """Dataset re-centering, `X -> X + 1 gamma^T`: one arbitrary vector added to every case."""

    gamma: Any
    title, formula, moves, axis = (
        "dataset re-centering", r"X \to X + \mathbf{1}\gamma^\top", "data", "inputs",
    )  # fmt: skip


class CaseRescale(_Rescale):
    """Single training case re-scaling, `x_n -> delta_n x_n`, each `delta_n > 0`; shape (cases,)."""

    title, formula, moves, axis = "single training case re-scaling", r"x_n \to \delta_n x_n", "data", "cases"


@dataclass(frozen=True, eq=False)
class WeightVectorRecenter(_Recenter):
    """Weight vector re-centering, `w_i -> w_i + c_i 1`; shape (units,). Not in Table 1."""

    shift: Any
    title, formula, moves, axis = (
        "weight vector re-centering", r"w_i \to w_i + c_i\mathbf{1}", "weight", "units",
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class CaseRecenter(_Recenter):
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


@dataclass(frozen=True)
class Composition:
    """Actions applied one after another, as in eq. 6: `W -> delta W + 1 gamma^T`.

    >>> eq6 = WeightMatrixRescale(2.0).then(WeightMatrixRecenter(torch.tensor([1.0, 2.0])))
    >>> eq6(torch.ones(3, 2), torch.ones(3, 2))[0][0]
    tensor([3., 4.])
    """

    steps: tuple[Any, ...]

    def __call__(self, weight: Weight, data: Data, /) -> tuple[Weight, Data]:
        """Apply the steps in order."""
        for step in self.steps:
            weight, data = step(weight, data)
        return weight, data

    def then(self, other: "_Action | Composition") -> "Composition":
        """Return the action of `self` followed by `other`."""
        return Composition((*self.steps, *(other.steps if isinstance(other, Composition) else (other,))))

    def inverse(self) -> "Composition":
        """Return the inverses in the opposite order."""
        return Composition(tuple(step.inverse() for step in reversed(self.steps)))


TABLE_1: tuple[type[_Action], ...] = (
    WeightMatrixRescale,
    WeightMatrixRecenter,
    WeightVectorRescale,
    DatasetRescale,
    DatasetRecenter,
    CaseRescale,
)

NEGATIVE_SCALES: tuple[type[_Action], ...] = (
    WeightMatrixNegativeRescale,
    WeightVectorNegativeRescale,
    DatasetNegativeRescale,
    CaseNegativeRescale,
)


def _numbers(values: Any) -> np.ndarray | None:
    """The parameter as floats, or None if it holds symbols."""
    if isinstance(values, torch.Tensor):
        return values.detach().to("cpu", torch.float64).numpy()
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return None
