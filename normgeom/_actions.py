"""What all actions on (weight, data) share: a parameter, how it acts, how elements compose and are drawn.

The first axis of a weight is the units, that of data the cases; all others are inputs. A convolution has
weights (units, inputs, *kernel) and data (cases, inputs, *positions).
"""

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import torch

from normgeom._types import AnyData, AnyWeight, Array

Axis = Literal["units", "inputs", "cases"]
Moves = Literal["weight", "data"]


@runtime_checkable
class Transform(Protocol):
    """What an action must offer: to be called on (weight, data)."""

    def __call__(self, weight: AnyWeight, data: AnyData, /) -> tuple[AnyWeight, AnyData]:
        """Return the transformed weight and data."""


@dataclass(frozen=True, eq=False)
class Action:
    """An action with one parameter. `axis` is None for a number; `moves` is what it acts on.

    Along inputs the parameter has one number for each entry of a unit's weight or of a case; with
    `constant_over_positions`, one for each input alone.
    """

    title: ClassVar[str]
    formula: ClassVar[str]
    moves: ClassVar[Moves]
    axis: ClassVar[Axis | None]
    sign: ClassVar[Literal[-1, 1] | None]
    constant_over_positions: ClassVar[bool] = False

    def __call__(self, weight: AnyWeight, data: AnyData, /) -> tuple[AnyWeight, AnyData]:
        """Return (weight, data) with one of them moved."""
        if self.moves == "weight":
            return self._act(weight), data
        return weight, self._act(data)

    @property
    def parameter(self) -> Any:
        """The one field: delta for scales, gamma for shifts along inputs, shift for others."""
        return getattr(self, fields(self)[0].name)

    def _check_parameter(self) -> None:
        """Make a list an array, and raise an error for a parameter of the wrong rank or not finite."""
        name = fields(self)[0].name
        if isinstance(self.parameter, list | tuple):
            object.__setattr__(self, name, torch.tensor(self.parameter, dtype=torch.float64))
        elif isinstance(self.parameter, torch.Tensor):
            object.__setattr__(self, name, self.parameter.detach().to(torch.float64))
        elif isinstance(self.parameter, str | complex | bool):
            raise TypeError(f"{type(self).__name__}: {name} must be real; got {self.parameter!r}.")
        rank = 0 if self.axis is None else 1
        more = self.axis == "inputs" and not self.constant_over_positions  # a shift of a kernel or an image
        if np.ndim(self.parameter) != rank and not (more and np.ndim(self.parameter) > 1):
            wanted = "a number" if rank == 0 else f"one number for each of the {self.axis}"
            shape = tuple(np.shape(self.parameter))
            raise ValueError(f"{type(self).__name__}: {name} must be {wanted}; got shape {shape}.")
        numbers = _numbers(self.parameter)
        if numbers is not None and not np.isfinite(numbers).all():
            raise ValueError(f"{type(self).__name__}: {name} must be finite; got {self.parameter}.")

    @classmethod
    def shape(cls, weight: AnyWeight, data: AnyData) -> tuple[int, ...]:
        """Return the shape of the parameter for this weight and data."""
        moved = weight if cls.moves == "weight" else data
        inputs = moved.shape[1:2] if cls.constant_over_positions else moved.shape[1:]
        sizes = {"units": weight.shape[:1], "inputs": inputs, "cases": data.shape[:1]}
        return () if cls.axis is None else tuple(sizes[cls.axis])

    def then(self, other: "Action | Composition") -> "Action | Composition":
        """Return the action of `self` followed by `other`: one element if they are of one group."""
        if isinstance(other, Action) and self.group is other.group:
            if np.shape(self.parameter) != np.shape(other.parameter):
                sizes = f"{np.shape(self.parameter)} and {np.shape(other.parameter)}"
                raise ValueError(f"elements that compose must have parameters of one shape; got {sizes}.")
            return self.group(self._compose(other))  # type: ignore[call-arg]
        return Composition((self,)).then(other)

    @property
    def group(self) -> "type[Action]":
        """The group the element is of: a negative scale is of its positive scales' group."""
        kind = type(self)
        return kind.__mro__[1] if self.sign == -1 else kind

    def __eq__(self, other: object) -> bool:
        """Equal class and equal parameter."""
        if type(other) is not type(self):
            return NotImplemented
        mine, theirs = _numbers(self.parameter), _numbers(other.parameter)
        return mine is not None and theirs is not None and np.array_equal(mine, theirs)

    __hash__ = None  # type: ignore[assignment]

    def _act(self, array: Array) -> Array:
        """Move the array that the action is on."""
        raise NotImplementedError

    def _compose(self, other: "Action") -> Any:
        """Return the parameter of `self` followed by `other`."""
        raise NotImplementedError

    def _along(self, array: Array) -> Any:
        """Return the parameter with the axes of `array`, of length 1 where it is constant."""
        values = self.parameter
        if isinstance(array, torch.Tensor):
            if not array.is_floating_point():
                raise TypeError(f"{type(self).__name__} moves floating-point tensors; got {array.dtype}.")
            if self.axis is None:
                return float(values)
            values = torch.as_tensor(values, dtype=array.dtype, device=array.device)
        elif isinstance(values, torch.Tensor):
            values = values.cpu().numpy()
        if self.axis is None:
            return values
        values = values if isinstance(values, torch.Tensor) else np.asarray(values)
        fits = type(self).shape(array, array)
        if tuple(values.shape) != fits:
            size = " x ".join(map(str, fits))
            raise ValueError(
                f"{type(self).__name__} needs one number for each of the {size} {self.axis}; "
                f"got shape {tuple(values.shape)}."
            )
        before = (1,) if self.axis == "inputs" else ()
        return values.reshape(before + fits + (1,) * (array.ndim - len(before) - len(fits)))


@dataclass(frozen=True, eq=False)
class Rescale(Action):
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

    def inverse(self) -> "Rescale":
        """Return the element that undoes this one."""
        return type(self)(1 / self.delta)

    def _act(self, array: Array) -> Array:
        return array * self._along(array)

    def _compose(self, other: Any) -> Any:
        return self.delta * other.delta

    @classmethod
    def sample(cls, weight: AnyWeight, data: AnyData, *, generator: torch.Generator) -> "Rescale":
        """Draw scales between 2^-2 and 2^2, none within a factor of sqrt(2) of 1 and none a power of two."""
        shape = cls.shape(weight, data)
        size = torch.rand(shape, generator=generator, dtype=torch.float64) * 1.5 + 0.5
        up = torch.randint(0, 2, shape, generator=generator) * 2 - 1
        values = 2.0 ** (size * up) * (cls.sign or 1)
        return cls(values if shape else values.item())


@dataclass(frozen=True, eq=False)
class Recenter(Action):
    """Add a shift that is constant along one axis."""

    sign = None

    def __post_init__(self) -> None:
        """Raise an error for a shift that is not finite."""
        self._check_parameter()

    def inverse(self) -> "Recenter":
        """Return the element that undoes this one."""
        return type(self)(-self.parameter)  # type: ignore[call-arg]

    def _act(self, array: Array) -> Array:
        return array + self._along(array)

    def _compose(self, other: Any) -> Any:
        return self.parameter + other.parameter

    @classmethod
    def sample(cls, weight: AnyWeight, data: AnyData, *, generator: torch.Generator) -> "Recenter":
        """Draw shifts of the size of the array that they move (its root mean square)."""
        moved = weight if cls.moves == "weight" else data
        size = float(torch.as_tensor(moved, dtype=torch.float64).square().mean().sqrt()) or 1.0
        draw = torch.randn(cls.shape(weight, data), generator=generator, dtype=torch.float64)
        return cls(draw * size)  # type: ignore[call-arg]


@dataclass(frozen=True)
class Composition:
    """Actions applied one after another, as in eq. 6: `W -> delta W + 1 gamma^T`.

    >>> from normgeom.transforms import WeightMatrixRecenter, WeightMatrixRescale
    >>> eq6 = WeightMatrixRescale(2.0).then(WeightMatrixRecenter(torch.tensor([1.0, 2.0])))
    >>> eq6(torch.ones(3, 2), torch.ones(3, 2))[0][0]
    tensor([3., 4.])
    """

    steps: tuple[Any, ...]

    @property
    def title(self) -> str:
        """The titles of the steps."""
        return ", then ".join(getattr(step, "title", type(step).__name__) for step in self.steps)

    def __call__(self, weight: AnyWeight, data: AnyData, /) -> tuple[AnyWeight, AnyData]:
        """Apply the steps in order."""
        for step in self.steps:
            weight, data = step(weight, data)
        return weight, data

    def then(self, other: "Action | Composition") -> "Composition":
        """Return the action of `self` followed by `other`."""
        if not callable(other):
            raise TypeError(f"a transform can be followed by a transform; got {other!r}.")
        return Composition((*self.steps, *(other.steps if isinstance(other, Composition) else (other,))))

    def inverse(self) -> "Composition":
        """Return the inverses in the opposite order."""
        return Composition(tuple(step.inverse() for step in reversed(self.steps)))


def _numbers(values: Any) -> np.ndarray | None:
    """The parameter as floats, or None if it holds symbols."""
    if isinstance(values, torch.Tensor):
        return values.detach().to("cpu", torch.float64).numpy()
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return None
