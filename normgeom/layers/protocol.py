"""What the engines ask of a layer: a map from (weight, data) to outputs that is the same at every call."""

from typing import Protocol, runtime_checkable

import torch

from normgeom._types import AnyData, AnyWeight
from normgeom.layers.convolution import DENSE, Convolution


@runtime_checkable
class Layer(Protocol):
    """What the engines ask of a layer."""

    @property
    def name(self) -> str:
        """A short name for tables."""

    @property
    def eps(self) -> float:
        """The eps that the layer adds to its variance, 0 if it has none or none is known."""

    @property
    def mode(self) -> str:
        """`train` if the statistics come from the data, `eval` if they are frozen."""

    @property
    def units(self) -> int | None:
        """The number of units that the layer's own parameters fix, or None."""

    def with_eps(self, eps: float) -> "Layer":
        """Return the same layer with another eps."""

    def __call__(self, weight: AnyWeight, data: AnyData, /) -> torch.Tensor:
        """Return the outputs, cases along the first axis."""


def convolution_of(layer: Layer) -> Convolution:
    """Return how a layer sums its inputs: what it says in `convolution`, dense if it says nothing."""
    return getattr(layer, "convolution", DENSE)
