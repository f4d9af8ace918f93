"""Points of the parameters near a model's own: gains that are not 1 and biases that are not 0."""

import torch
from torch import Tensor

from normgeom.symmetry.probe import Probe

_VECTOR, _MATRIX, _SMALL = 0.3, 0.1, 0.1


class Points:
    """Moves a probe's parameters to random points, and back to the model's own."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.own = {name: value.clone() for name, value in probe.parameters.items()}

    def move_to(self, point: int) -> None:
        """Draw new parameters: 10 % off for weights, 30 % and at least 0.1 for gains and biases."""
        for name, value in self.probe.parameters.items():
            value.copy_(self.own[name] + self._noise(self.own[name]))

    def move_back(self) -> None:
        """Restore the model's own parameters (zeros excepted, which are random)."""
        for name, value in self.probe.parameters.items():
            value.copy_(self.own[name])

    def _noise(self, own: Tensor) -> Tensor:
        draw = torch.randn(own.shape, generator=self.probe.generator, dtype=torch.float64).to(own)
        size = own.square().mean().sqrt()
        return draw * ((_VECTOR * size).clamp_min(_SMALL) if own.ndim < 2 else _MATRIX * size)
