"""How weights meet data: `data @ weight.T`, or a convolution where the weight has a kernel."""

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from normgeom._types import AnyData, AnyWeight
from normgeom.norms import summed_inputs

CONVOLUTIONS: dict[int, Any] = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
KERNEL, POSITIONS = 2, 4  # along each axis, where nothing says how many


@dataclass(frozen=True)
class Convolution:
    """The axes beyond (units, inputs) of a weight and (cases, inputs) of data, and how they are summed over.

    Attributes:
        kernel: sizes of the weight's further axes; none for a dense layer.
        spatial: sizes of the data's further axes.
        padding: zeros around the data.
        groups: groups of inputs that do not mix; a weight has inputs/groups.
    """

    kernel: tuple[int, ...] = ()
    spatial: tuple[int, ...] = ()
    padding: int = 0
    groups: int = 1

    def __post_init__(self) -> None:
        """Raise an error for kernels and images that do not fit each other."""
        fits = len(self.kernel) in (0, len(self.spatial)) and len(self.kernel) <= 3
        if not fits or any(k > s + 2 * self.padding for k, s in zip(self.kernel, self.spatial, strict=False)):
            raise ValueError(
                "a convolution needs a kernel of 1 to 3 axes and data with as many, none shorter than the "
                f"kernel's; got kernel {self.kernel}, spatial {self.spatial}, padding {self.padding}."
            )

    @classmethod
    def of(
        cls, kernel: tuple[int, ...], spatial: tuple[int, ...] = (), padding: int = 0, groups: int = 1
    ) -> "Convolution":
        """Return a convolution; where no `spatial` is given, images 2 larger than the kernel."""
        spatial = tuple(spatial) or tuple(k + POSITIONS - KERNEL for k in kernel)
        return cls(tuple(kernel), spatial, padding, groups)

    def shapes(self, units: int, inputs: int, cases: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of weight and data."""
        return (units, inputs // self.groups, *self.kernel), (cases, inputs, *self.spatial)

    def __call__(self, weight: AnyWeight, data: AnyData) -> torch.Tensor:
        """Return the summed inputs, (cases, units) or (cases, units, *positions)."""
        if weight.ndim == 2:
            return summed_inputs(weight, data)
        return CONVOLUTIONS[weight.ndim - 2](data, weight, padding=self.padding, groups=self.groups)


DENSE = Convolution()
