"""The normalizations of the paper as pairs of statistics, `z = (a - mu) / sigma` with `a = data @ weight.T`.

A norm is any object with a method `statistics(weight, data) -> (mean, variance)`, broadcastable to the
summed inputs (cases, units) and written with operators only (`@ + - * / **`, `.mean`, `.sum`). The same
lines then run on torch tensors, on arrays of `Fraction` and on arrays of SymPy symbols; every engine and
every closed form asks for these lines, and nothing re-derives a norm.
"""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import sympy
import torch

from normgeom._types import Array, Data, NumberOrPerUnit, PerUnit, Statistic, Summed, Weight


@runtime_checkable
class Norm(Protocol):
    """What a normalization must offer: its two statistics."""

    def statistics(self, weight: Weight, data: Data, /) -> tuple[Statistic, Statistic]:
        """Return mean and variance of the summed inputs, broadcastable to (cases, units)."""


def summed_inputs(weight: Weight, data: Data, bias_before: NumberOrPerUnit = 0) -> Summed:
    """Return `a = data @ weight.T`, plus a bias that the normalization will see (none in the paper)."""
    return data @ weight.T + bias_before


@dataclass(frozen=True)
class BatchNorm:
    """Batch normalization with statistics over the cases of the data given, per unit (biased variance).

    `mu_i = mean_n a_ni`, `sigma_i^2 = mean_n (a_ni - mu_i)^2`.
    Source: Layer Normalization (Ba et al. 2016), eq. 2; Ioffe and Szegedy 2015.
    """

    def statistics(
        self, weight: Weight, data: Data, bias_before: NumberOrPerUnit = 0
    ) -> tuple[Statistic, Statistic]:
        """Mean and variance over cases, each of shape (1, units)."""
        return _moments(summed_inputs(weight, data, bias_before), axis=0)

    def freeze(self, weight: Weight, data: Data, bias_before: NumberOrPerUnit = 0) -> "FrozenBatchNorm":
        """Return the norm that keeps the statistics of this weight and data (evaluation mode)."""
        mean, variance = _moments(summed_inputs(weight, data, bias_before), axis=0)
        return FrozenBatchNorm(mean[0], variance[0])


@dataclass(frozen=True, eq=False)
class FrozenBatchNorm:
    """Batch normalization in evaluation mode: statistics held constant, per unit.

    `z_i = (a_i - mean_i) / sqrt(variance_i)`: an affine map of the summed inputs, with none of the
    invariances of batch normalization. `mean` and `variance` have shape (units,).
    """

    mean: PerUnit
    variance: PerUnit

    def statistics(
        self, weight: Weight, data: Data, bias_before: NumberOrPerUnit = 0
    ) -> tuple[Statistic, Statistic]:
        """Return the frozen mean and variance, each of shape (1, units)."""
        return _like(self.mean, weight)[None, :], _like(self.variance, weight)[None, :]


@dataclass(frozen=True)
class WeightNorm:
    """Weight normalization: no mean, and the length of each unit's weight vector as sigma.

    `mu_i = 0`, `sigma_i^2 = sum_d w_id^2`. Source: Ba et al. 2016, section 5.1; Salimans and Kingma 2016.
    """

    def statistics(
        self, weight: Weight, data: Data, bias_before: NumberOrPerUnit = 0
    ) -> tuple[Statistic, Statistic]:
        """Return 0 and the squared length of each row of the weight, of shape (1, units)."""
        return 0, (weight**2).sum(axis=1)[None, :]


@dataclass(frozen=True)
class LayerNorm:
    """Layer normalization: statistics over the units of a layer, per case (biased variance).

    `mu_n = mean_i a_ni`, `sigma_n^2 = mean_i (a_ni - mu_n)^2`. Source: Ba et al. 2016, eq. 3.
    """

    def statistics(
        self, weight: Weight, data: Data, bias_before: NumberOrPerUnit = 0
    ) -> tuple[Statistic, Statistic]:
        """Mean and variance over units, each of shape (cases, 1)."""
        return _moments(summed_inputs(weight, data, bias_before), axis=1)


@dataclass(frozen=True)
class RMSNorm:
    """Root-mean-square normalization: layer normalization without the mean.

    `mu = 0`, `sigma_n^2 = mean_i a_ni^2`. Source: Zhang and Sennrich 2019.
    """

    def statistics(
        self, weight: Weight, data: Data, bias_before: NumberOrPerUnit = 0
    ) -> tuple[Statistic, Statistic]:
        """Return 0 and the mean square over units, of shape (cases, 1)."""
        summed = summed_inputs(weight, data, bias_before)
        return 0, (summed**2).mean(axis=1, keepdims=True)


@dataclass(frozen=True)
class InputLayerNorm:
    """Layer normalization of the layer's input, `W LN(x)` (pre-norm), written as statistics of `W x`.

    With `m_n`, `v_n` mean and biased variance of the inputs of case n: `mu_ni = m_n sum_d w_id`,
    `sigma_n^2 = v_n`. It takes no bias before: one added to `W LN(x)` is the ordinary bias after.
    """

    def statistics(self, weight: Weight, data: Data) -> tuple[Statistic, Statistic]:
        """Return mean (cases, units) and variance (cases, 1)."""
        mean, variance = _moments(data, axis=1)
        return mean * weight.sum(axis=1)[None, :], variance


@dataclass(frozen=True)
class NoNorm:
    """No normalization: `z = a`. Its variance is the number 1, not an estimate, so eps does not apply."""

    def statistics(
        self, weight: Weight, data: Data, bias_before: NumberOrPerUnit = 0
    ) -> tuple[Statistic, Statistic]:
        """Return 0 and 1."""
        return 0, 1


def normalize(
    norm: Norm, weight: Weight, data: Data, *, eps: float = 0.0, bias_before: NumberOrPerUnit = 0
) -> Summed:
    """Return the normalized summed inputs `z = (a - mu) / sqrt(sigma^2 + eps)`, before gain and bias.

    Args:
        norm: an object with `statistics(weight, data) -> (mean, variance)`.
        weight: shape (units, inputs).
        data: shape (cases, inputs), of the same kind (tensor or array) as `weight`.
        eps: added to the variance, inside the root. The paper has none.
        bias_before: a number or shape (units,), added to the summed inputs before they are normalized.

    Returns:
        Shape (cases, units). A case or unit with zero variance and `eps=0` is 0/0, that is NaN. Arrays of
        `Fraction` or of SymPy expressions give exact roots.

    Raises:
        ValueError: if the shapes do not fit or eps is negative or not finite.

    Source: Ba et al. 2016, section 5.1.

    >>> weight = torch.tensor([[1., 0.], [0., 1.], [1., 1.]])
    >>> normalize(LayerNorm(), weight, torch.tensor([[1., 2.], [2., 4.]]))
    tensor([[-1.2247,  0.0000,  1.2247],
            [-1.2247,  0.0000,  1.2247]])
    """
    check_shapes(weight, data)
    if not (isinstance(eps, sympy.Basic) or (math.isfinite(eps) and eps >= 0)):
        raise ValueError(f"eps must be a finite number >= 0; got {eps}.")
    extra = () if isinstance(bias_before, int | float) and bias_before == 0 else (bias_before,)
    mean, variance = norm.statistics(weight, data, *extra)
    centred = summed_inputs(weight, data, bias_before) - mean
    if isinstance(variance, int | float):
        return centred if variance == 1 else centred / math.sqrt(variance)
    if isinstance(variance, np.ndarray) and variance.dtype == object:
        return _symbolic(centred) / np.vectorize(sympy.sqrt, otypes=[object])(
            _symbolic(variance) + sympy.nsimplify(eps, rational=True)
        )
    return centred / (variance + eps) ** 0.5


def check_shapes(weight: Array, data: Array) -> None:
    """Raise an error unless `weight` is (units, inputs) and `data` is (cases, inputs), of one kind."""
    for name, array in (("weight", weight), ("data", data)):
        if not isinstance(array, torch.Tensor | np.ndarray):
            raise TypeError(
                f"{name} must be a torch tensor or a numpy array; got {type(array).__name__}. "
                "Wrap lists with torch.tensor(...)."
            )
    if isinstance(weight, torch.Tensor) != isinstance(data, torch.Tensor):
        raise TypeError("weight and data must both be torch tensors or both numpy arrays; got one of each.")
    shapes = f"got weight {tuple(weight.shape)} and data {tuple(data.shape)}"
    if weight.ndim != 2 or data.ndim != 2:
        raise ValueError(f"weight must be (units, inputs) and data (cases, inputs); {shapes}.")
    if weight.shape[1] != data.shape[1]:
        hint = " Is weight transposed?" if weight.shape[0] == data.shape[1] else ""
        raise ValueError(f"weight and data must have the same number of inputs (axis 1); {shapes}.{hint}")


def _moments(array: Array, axis: int) -> tuple[Array, Array]:
    """Mean and biased variance along one axis, which is kept with length 1."""
    mean = array.mean(axis=axis, keepdims=True)
    return mean, ((array - mean) ** 2).mean(axis=axis, keepdims=True)


def _symbolic(array: np.ndarray) -> np.ndarray:
    """SymPy expressions for an array of objects, which a root would else turn into floats."""
    return np.vectorize(sympy.sympify, otypes=[object])(array)


def _like(values: Array, array: Array) -> Array:
    """Return `values` as the kind, type and device of `array`."""
    if isinstance(array, torch.Tensor):
        return torch.as_tensor(values, dtype=array.dtype, device=array.device)
    return np.asarray(values, dtype=array.dtype)
