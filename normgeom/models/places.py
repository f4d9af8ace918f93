"""What stands where summed inputs are normalized: a layer norm with gain and bias, or a bias alone.

Written out in elementary operations: their derivatives are right at every order and in every mode, which
those of torch's fused `layer_norm` are not (nested forward mode from order 2, reverse mode from order 3).
The fused one serves in `normgeom.models.plain`, where no more than its first derivative is used.
"""

from collections.abc import Sequence

import torch
from torch import nn


def layer_norm(summed: torch.Tensor, eps: float) -> torch.Tensor:
    """Return `(a - mean a) / sqrt(var a + eps)` over the last axis, in float32 for the half types."""
    half = summed.dtype in (torch.float16, torch.bfloat16)
    work = summed.float() if half else summed
    centred = work - work.mean(-1, keepdim=True)
    normalized = centred * ((centred * centred).mean(-1, keepdim=True) + eps).rsqrt()
    return normalized.to(summed.dtype) if half else normalized


class GainBiasNorm(nn.Module):
    """Layer norm with gain and bias over stacked summed inputs, one pair of statistics a segment.

    `gain * (a - mu) / sqrt(sigma^2 + eps) + bias`, mu and sigma over the units of a segment.

    Args:
        segments: how many units share their statistics, for each part of the stack.
        eps: added to the variance.
        gain, bias: their initial values, one number for every unit.

    Source: Ba et al. 2016, eq. 15 and 16, with gain 1 and bias 0 (the text there swaps the two).

    >>> norm = GainBiasNorm((2, 2), eps=0.0)
    >>> norm(torch.tensor([[1.0, 3.0, 0.0, 10.0]])).tolist()
    [[-1.0, 1.0, -1.0, 1.0]]
    >>> norm.sigma(torch.tensor([[1.0, 3.0, 0.0, 10.0]])).tolist()
    [[1.0, 5.0]]
    """

    def __init__(
        self,
        segments: Sequence[int],
        *,
        eps: float = 1e-5,
        gain: float = 1.0,
        bias: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.segments, self.eps = tuple(segments), eps
        self.initial_gain, self.initial_bias = gain, bias
        self.gain = nn.Parameter(torch.empty(sum(segments), device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.empty(sum(segments), device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set gain and bias to their initial values."""
        nn.init.constant_(self.gain, self.initial_gain)
        nn.init.constant_(self.bias, self.initial_bias)

    def normalized(self, summed: torch.Tensor) -> torch.Tensor:
        """Return the normalized summed inputs, before gain and bias."""
        if len(self.segments) == 1:
            return layer_norm(summed, self.eps)
        if len(set(self.segments)) == 1:
            return layer_norm(summed.unflatten(-1, (len(self.segments), -1)), self.eps).flatten(-2)
        return torch.cat([layer_norm(part, self.eps) for part in summed.split(self.segments, -1)], -1)

    def sigma(self, summed: torch.Tensor) -> torch.Tensor:
        """Return `sqrt(var a + eps)` of every segment: (..., segments), in the units of the summed inputs."""
        parts = summed.split(self.segments, -1)
        return torch.stack([(p.var(-1, correction=0) + self.eps).sqrt() for p in parts], -1)

    def forward(self, summed: torch.Tensor) -> torch.Tensor:
        """Return `gain * z + bias`."""
        return self.normalized(summed) * self.gain + self.bias

    def extra_repr(self) -> str:
        """The segments, eps, and initial values other than 1 and 0."""
        gain = f", gain={self.initial_gain}" * (self.initial_gain != 1)
        bias = f", bias={self.initial_bias}" * (self.initial_bias != 0)
        return f"segments={self.segments}, eps={self.eps}{gain}{bias}"


class Shift(nn.Module):
    """A bias alone, where a placement has no norm."""

    def __init__(
        self, units: int, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(units, device=device, dtype=dtype))

    def forward(self, summed: torch.Tensor) -> torch.Tensor:
        """Return `a + bias`."""
        return summed + self.bias
