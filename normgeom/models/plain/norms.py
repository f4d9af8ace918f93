"""A layer norm with gain and bias by torch's fused operations, of which only the first derivative is used."""

from dataclasses import dataclass

import torch

_BACKWARD = torch.ops.aten.native_layer_norm_backward.default


@dataclass(frozen=True, eq=False)
class StepNorm:
    """`gain * (a - mu) / sqrt(sigma^2 + eps) + bias` over the last axis, statistics apart by segment.

    Gain and bias are (units,), or (cases, units) where each case has its own.
    """

    segments: tuple[int, ...]
    eps: float
    gain: torch.Tensor
    bias: torch.Tensor

    @property
    def _at_once(self) -> bool:
        return len(self.segments) == 1 and self.gain.ndim == self.bias.ndim == 1

    def forward(self, summed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the norm's output, the means and the inverse deviations (..., segments)."""
        if self._at_once:
            return torch.native_layer_norm(summed, self.segments, self.gain, self.bias, self.eps)
        z, mean, scale = self._normalized(summed)
        return torch.addcmul(self.bias, z, self.gain), mean, scale

    def _normalized(self, summed: torch.Tensor) -> tuple[torch.Tensor, ...]:
        parts = summed.split(self.segments, -1)
        each = [torch.native_layer_norm(p, p.shape[-1:], None, None, self.eps) for p in parts]
        return tuple(torch.cat(kind, -1) for kind in zip(*each, strict=True))

    def backward(
        self, grad: torch.Tensor, summed: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor
    ) -> torch.Tensor:
        """Return the gradient of the summed inputs from that of the output."""
        only = (True, False, False)
        if self._at_once:
            return _BACKWARD(grad, summed, self.segments, mean, scale, self.gain, self.bias, only)[0]
        wide = (v.split(self.segments, -1) for v in (grad * self.gain, summed))
        # torch reads statistics as if they were contiguous
        narrow = (v.movedim(-1, 0).contiguous().unsqueeze(-1) for v in (mean, scale))
        parts = zip(*wide, *narrow, strict=True)
        each = [_BACKWARD(g, a, a.shape[-1:], m, s, None, None, only)[0] for g, a, m, s in parts]
        return torch.cat(each, -1)

    def gain_gradient(
        self, grads: torch.Tensor, summed: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor
    ) -> torch.Tensor:
        """Return the gradient of the gain over all steps, from (steps, cases, units) each."""
        if self._at_once:
            only = (False, True, False)
            return _BACKWARD(grads, summed, self.segments, mean, scale, self.gain, self.bias, only)[1]
        return over_steps(grads * self._normalized(summed)[0], self.gain)


def over_steps(grads: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return the sum over steps, and over cases unless a vector has each case's own."""
    return grads.sum(0) if like.ndim == 2 else grads.sum((0, 1))
