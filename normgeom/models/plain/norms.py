"""A layer norm with gain and bias by torch's fused operations, of which only the first derivative is used."""

import torch

_BACKWARD = torch.ops.aten.native_layer_norm_backward.default


class StepNorm:
    """`gain * (a - mu) / sqrt(sigma^2 + eps) + bias` over the last axis, statistics apart by segment.

    Gain and bias are (units,), or (cases, units) where each case has its own.
    """

    def __init__(self, segments: tuple[int, ...], eps: float, gain: torch.Tensor, bias: torch.Tensor) -> None:
        self._segments, self._eps, self._gain, self._bias = segments, eps, gain, bias
        self._at_once = len(segments) == 1 and gain.ndim == bias.ndim == 1

    def forward(self, summed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the norm's output, the means and the inverse deviations (..., segments)."""
        if self._at_once:
            return torch.native_layer_norm(summed, self._segments, self._gain, self._bias, self._eps)
        z, mean, scale = self._normalized(summed)
        return torch.addcmul(self._bias, z, self._gain), mean, scale

    def _normalized(self, summed: torch.Tensor) -> tuple[torch.Tensor, ...]:
        parts = summed.split(self._segments, -1)
        each = [torch.native_layer_norm(p, p.shape[-1:], None, None, self._eps) for p in parts]
        return tuple(torch.cat(kind, -1) for kind in zip(*each, strict=True))

    def backward(
        self, grad: torch.Tensor, summed: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor
    ) -> torch.Tensor:
        """Return `(g - mean g - z mean(g z)) / sigma`, means by segment, with g = gain * grad."""
        if self._at_once:
            return self._fused(grad, summed, mean, scale, (True, False, False))[0]
        wide = (v.split(self._segments, -1) for v in (grad * self._gain, summed))
        # torch reads statistics as if they were contiguous
        narrow = (v.movedim(-1, 0).contiguous().unsqueeze(-1) for v in (mean, scale))
        only, parts = (True, False, False), zip(*wide, *narrow, strict=True)
        each = [_BACKWARD(g, a, a.shape[-1:], m, s, None, None, only)[0] for g, a, m, s in parts]
        return torch.cat(each, -1)

    def gain_and_bias(
        self, grads: torch.Tensor, summed: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return `sum grad z` and `sum grad`, those of gain and bias, from (steps, cases, units) each."""
        if self._at_once:
            return self._fused(grads, summed, mean, scale, (False, True, True))[1:]
        gain = grads * self._normalized(summed)[0]
        return summed_like(gain, self._gain), summed_like(grads, self._bias)

    def all_gradients(
        self, grads: torch.Tensor, summed: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the gradients of the summed inputs, of gain and of bias."""
        if self._at_once:
            return self._fused(grads, summed, mean, scale, (True, True, True))
        where = summed, mean, scale
        return self.backward(grads, *where), *self.gain_and_bias(grads, *where)

    def _fused(
        self,
        grad: torch.Tensor,
        summed: torch.Tensor,
        mean: torch.Tensor,
        scale: torch.Tensor,
        asked: tuple[bool, bool, bool],
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        found: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = _BACKWARD(
            grad, summed, self._segments, mean, scale, self._gain, self._bias, asked
        )
        return found


def summed_like(grads: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """Return the gradient of a vector added at every step: also summed over cases that it does not have."""
    return grads.flatten(0, grads.ndim - vector.ndim - 1).sum(0) if grads.ndim > vector.ndim else grads
