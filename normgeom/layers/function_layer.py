"""A plain function of (weight, data) as a layer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from normgeom._types import AnyData, AnyWeight
from normgeom.layers.convolution import DENSE, Convolution
from normgeom.layers.weights import of_same_shape


@dataclass(frozen=True, eq=False)
class FunctionLayer:
    """A function of (weight, data). An eps inside it is its own affair: only its graph shows it."""

    function: Callable[[Any, Any], Any]
    label: str = ""
    convolution: Convolution = DENSE
    units: int | None = None
    inputs: int | None = None
    eps: ClassVar[float] = 0.0
    mode: ClassVar[str] = "train"

    @property
    def name(self) -> str:
        """The label, or the function's name."""
        return self.label or getattr(self.function, "__name__", type(self.function).__name__)

    def with_eps(self, eps: float) -> "FunctionLayer":
        """Raise an error: the eps inside a function cannot be changed from outside."""
        raise ValueError(f"the eps inside {self.name} cannot be changed: it is a plain function.")

    def __call__(self, weight: AnyWeight, data: AnyData, /) -> torch.Tensor:
        """Return the function's outputs."""
        return self.function(weight, data)


@dataclass(frozen=True, eq=False)
class WithNewWeight:
    """The function of (weight, data) that sums the inputs with `function(weight)` in the weight's place."""

    function: Callable[[Any], Any]
    convolution: Convolution = DENSE

    @property
    def __name__(self) -> str:
        """The name of the function."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def __call__(self, weight: AnyWeight, data: AnyData, /) -> torch.Tensor:
        """Return the summed inputs."""
        return self.convolution(of_same_shape(self.function(weight), weight, self.__name__), data)
