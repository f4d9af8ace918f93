"""A norm with what surrounds it: eps, gain, and biases before and after."""

import dataclasses
import inspect
from dataclasses import dataclass

import torch

from normgeom._types import Data, NumberOrPerUnit, Weight
from normgeom.norms import FrozenBatchNorm, Norm, normalize


@dataclass(frozen=True, eq=False)
class NormLayer:
    """A norm with what surrounds it: `outputs = gain * (a + bias_before - mu)/sqrt(sigma^2 + eps) + bias`.

    `gain`, `bias` and `bias_before` are numbers or have shape (units,). Source: Ba et al. 2016, eq. 2 to 5;
    the paper has no eps and no bias before.
    """

    norm: Norm
    eps: float = 0.0
    gain: NumberOrPerUnit = 1.0
    bias: NumberOrPerUnit = 0.0
    bias_before: NumberOrPerUnit = 0.0
    label: str = ""

    def __post_init__(self) -> None:
        """Raise an error for parameters that do not fit each other, or a norm that takes no bias before."""
        if len(set(self._sizes())) > 1:
            raise ValueError(
                f"{self.name} must be for one number of units; got parameters for {self._sizes()}."
            )
        if self.has_bias_before and len(inspect.signature(self.norm.statistics).parameters) < 3:
            raise ValueError(
                f"{self.name} must accept a third argument to be given a bias before it: "
                "statistics(weight, data, bias_before). If a bias there is the same as one after, pass bias."
            )

    @property
    def name(self) -> str:
        """The label, or the norm's class name."""
        return self.label or type(self.norm).__name__

    @property
    def mode(self) -> str:
        """`eval` for frozen statistics, else `train`."""
        return "eval" if isinstance(self.norm, FrozenBatchNorm) else "train"

    @property
    def has_bias_before(self) -> bool:
        """Whether a bias is added before the norm."""
        return not (isinstance(self.bias_before, int | float) and self.bias_before == 0)

    @property
    def units(self) -> int | None:
        """The number of units that the per-unit parameters are for, if there are any."""
        return next(iter(self._sizes()), None)

    def _sizes(self) -> list[int]:
        own = vars(self.norm).values() if hasattr(self.norm, "__dict__") else ()
        return [len(v) for v in (*own, self.gain, self.bias, self.bias_before) if getattr(v, "ndim", 0)]

    def with_eps(self, eps: float) -> "NormLayer":
        """Return the same layer with another eps."""
        return dataclasses.replace(self, eps=eps)

    def __call__(self, weight: Weight, data: Data, /) -> torch.Tensor:
        """Return gain * z + bias, of shape (cases, units)."""
        gain, bias, before = (
            torch.as_tensor(v, dtype=weight.dtype, device=weight.device)
            for v in (self.gain, self.bias, self.bias_before)
        )
        extra = {"bias_before": before} if self.has_bias_before else {}
        return gain * normalize(self.norm, weight, data, eps=self.eps, **extra) + bias
