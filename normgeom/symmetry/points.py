"""Points of the parameters near a model's own: gains that are not 1 and biases that are not 0."""

import torch
from torch import Tensor, nn

from normgeom.symmetry.probe import Probe

_VECTOR, _MATRIX, _SMALL = 0.3, 0.1, 0.1


class Points:
    """Moves a probe's parameters to random points, and back to the model's own."""

    def __init__(self, probe: Probe, model: nn.Module) -> None:
        self.probe = probe
        # The model's own tensors, and copies of those alone that the probe filled: a copy of all is large.
        self.own = {name: value.detach() for name, value in model.named_parameters()}
        self.own |= {name: probe.parameters[name].clone() for name in probe.filled}

    def move_to(self, point: int) -> None:
        """Draw new parameters: 10 % off for weights, 30 % and at least 0.1 for gains and biases."""
        for name, value in self.probe.parameters.items():
            own = self.own[name].to(value)
            value.copy_(own).add_(self._noise(own))

    def move_back(self) -> None:
        """Restore the model's own parameters (zeros excepted, which are random)."""
        for name, value in self.probe.parameters.items():
            value.copy_(self.own[name])

    def _noise(self, own: Tensor) -> Tensor:
        draw = torch.randn(own.shape, generator=self.probe.generator, dtype=torch.float64).to(own)
        size = own.square().mean().sqrt()
        return draw.mul_((_VECTOR * size).clamp_min(_SMALL) if own.ndim < 2 else _MATRIX * size)
