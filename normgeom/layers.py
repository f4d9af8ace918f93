"""Anything that maps (weight, data) to outputs, seen by the engines as one kind of object.

`as_layer` takes a norm, an `nn.Module` that acts on the summed inputs, a function of (weight, data), or a
layer, and returns a layer. Evaluating a layer twice gives the same outputs: a module is called on copies of
its buffers, and is left as found.
"""

import contextlib
import copy
import dataclasses
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import nn

from normgeom._types import Data, NumberOrPerUnit, Weight
from normgeom.norms import BatchNorm, FrozenBatchNorm, Norm, normalize, summed_inputs


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

    def __call__(self, weight: Weight, data: Data, /) -> torch.Tensor:
        """Return the outputs, cases along the first axis."""


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


@dataclass(frozen=True, eq=False)
class ModuleLayer:
    """An `nn.Module` applied to the summed inputs, `module(data @ weight.T)`, in the mode it was found in.

    Parameters are cast to the weight's type and device; buffers are copies, so the module stays as found.
    """

    module: nn.Module
    label: str = ""

    @property
    def name(self) -> str:
        """The label, or the module's class name."""
        return self.label or type(self.module).__name__

    @property
    def eps(self) -> float:
        """The largest `eps` of the module and its parts; None is float64's machine epsilon (`nn.RMSNorm`)."""
        found = [part.eps for part in self._with_eps(self.module)]
        return max((torch.finfo(torch.float64).eps if e is None else float(e) for e in found), default=0.0)

    def in_type(self, dtype: torch.dtype) -> "ModuleLayer":
        """Return the layer with the eps that it has in this type, where that depends on the type.

        `nn.RMSNorm(eps=None)` takes the machine epsilon of the type it computes in: float32 for half types.
        """
        if all(part.eps is not None for part in self._with_eps(self.module)):
            return self
        module = copy.deepcopy(self.module)
        for part in self._with_eps(module):
            if part.eps is None:
                part.eps = min(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)
        return ModuleLayer(module, self.name)

    @property
    def mode(self) -> str:
        """The mode of the module and its parts, `mixed` if they differ."""
        modes = {part.training for part in self.module.modules()}
        return "mixed" if len(modes) > 1 else "train" if modes.pop() else "eval"

    @property
    def units(self) -> int | None:
        """The number of features that the first part with a fixed number of them takes."""
        for part in self.module.modules():
            for name in ("in_features", "num_features", "num_channels", "normalized_shape"):
                if hasattr(part, name):
                    size = getattr(part, name)
                    return size[-1] if isinstance(size, tuple) else size
        return None

    def with_eps(self, eps: float) -> "ModuleLayer":
        """Return a layer with a copy of the module in which every part with an eps has this one."""
        module = copy.deepcopy(self.module)
        for part in self._with_eps(module):
            # F.batch_norm refuses 0 in training; 1e-300 is below the rounding of any variance.
            part.eps = eps or (1e-300 if isinstance(part, nn.modules.batchnorm._BatchNorm) else 0.0)
        return ModuleLayer(module, self.name)

    @staticmethod
    def _with_eps(module: nn.Module) -> list[Any]:
        """The parts of a module that have an eps."""
        return [part for part in module.modules() if hasattr(part, "eps")]

    def __call__(self, weight: Weight, data: Data, /) -> torch.Tensor:
        """Return the module's outputs for the summed inputs."""
        return torch.func.functional_call(self.module, self._state(weight), (summed_inputs(weight, data),))

    def called_once(self, weight: Weight, data: Data) -> tuple["ModuleLayer", list[str]]:
        """Return the layer as one call would leave it, and the names of the buffers that it would change."""
        before, state = self._state(weight), self._state(weight)
        torch.func.functional_call(self.module, state, (summed_inputs(weight, data),))
        changed = [name for name, value in state.items() if not torch.equal(value, before[name])]
        after = copy.deepcopy(self.module)
        for name in changed:
            after.get_buffer(name).data = state[name]
        return ModuleLayer(after, self.name), changed

    def _state(self, like: torch.Tensor) -> dict[str, torch.Tensor]:
        """Copies of parameters and buffers, in the type and on the device of a tensor."""
        state = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        return {
            name: value.detach().clone().to(like.device, like.dtype if value.is_floating_point() else None)
            for name, value in state.items()
        }


@dataclass(frozen=True, eq=False)
class FunctionLayer:
    """A function of (weight, data). An eps inside it is its own affair: nothing is known of it."""

    function: Callable[[Any, Any], Any]
    label: str = ""
    eps: ClassVar[float] = 0.0
    mode: ClassVar[str] = "train"
    units: ClassVar[int | None] = None

    @property
    def name(self) -> str:
        """The label, or the function's name."""
        return self.label or getattr(self.function, "__name__", type(self.function).__name__)

    def with_eps(self, eps: float) -> "FunctionLayer":
        """Raise an error: the eps inside a function cannot be changed from outside."""
        raise ValueError(f"the eps inside {self.name} cannot be changed: it is a plain function.")

    def __call__(self, weight: Weight, data: Data, /) -> torch.Tensor:
        """Return the function's outputs."""
        return self.function(weight, data)


def as_layer(
    layer: Any,
    *,
    eps: float | None = None,
    gain: NumberOrPerUnit = 1.0,
    bias: NumberOrPerUnit = 0.0,
    bias_before: NumberOrPerUnit = 0.0,
    name: str = "",
) -> Layer:
    """Return a layer for a norm, a module on the summed inputs, a function of (weight, data), or a layer.

    Args:
        layer: a norm (an object with `statistics`, or a norm class), an `nn.Module` that maps summed
            inputs (cases, units) to outputs, or a callable `(weight, data) -> outputs`.
        eps: for a norm, added to the variance (default 0); for a module, replaces its own.
        gain: for a norm, multiplies the normalized summed inputs; a number or shape (units,).
        bias: for a norm, added after the gain.
        bias_before: for a norm, added to the summed inputs before they are normalized.
        name: what tables call the layer.

    Raises:
        TypeError: if the object is none of these, or an option does not apply to it.

    >>> as_layer(BatchNorm, eps=1e-5).eps
    1e-05
    >>> as_layer(nn.LayerNorm(4)).name
    'LayerNorm'
    """
    if eps is not None and not (math.isfinite(eps) and eps >= 0):
        raise ValueError(f"eps must be a finite number >= 0; got {eps}.")
    around = {"gain": gain, "bias": bias, "bias_before": bias_before}
    if isinstance(layer, type) and hasattr(layer, "statistics"):
        layer = layer()
    if hasattr(layer, "statistics"):
        parameters = {option: _per_unit(option, value) for option, value in around.items()}
        return NormLayer(layer, eps or 0.0, label=name, **parameters)
    if any(_given(value, 1.0 if option == "gain" else 0.0) for option, value in around.items()):
        raise TypeError(
            f"gain, bias and bias_before apply to a norm; got {type(layer).__name__}, which has its own."
        )
    if callable(layer) and not isinstance(layer, type | Layer | nn.Module):
        if eps is not None:
            raise TypeError("eps inside a plain function cannot be set; leave it out.")
        return FunctionLayer(layer, label=name)
    if isinstance(layer, nn.Module):
        with contextlib.suppress(RuntimeError):  # a module that cannot be copied is used as it is
            layer = copy.deepcopy(layer)
        layer = ModuleLayer(layer, name)
    elif not isinstance(layer, Layer):
        raise TypeError(
            "a layer must be a norm (with statistics(weight, data)), an nn.Module that acts on summed "
            f"inputs, or a function of (weight, data); got {layer!r}."
        )
    elif name and isinstance(layer, NormLayer | ModuleLayer | FunctionLayer):
        layer = dataclasses.replace(layer, label=name)
    return layer if eps is None else layer.with_eps(eps)


def frozen_batch_norm(weight: Weight, data: Data, **options: Any) -> Layer:
    """Return batch norm in evaluation mode, with the statistics of this weight and data.

    `options` are those of `as_layer`; a bias before the norm is part of what the statistics saw.
    """
    norm = BatchNorm().freeze(weight, data, options.get("bias_before", 0))
    return as_layer(norm, **options)


def _per_unit(name: str, value: Any) -> Any:
    """Return a parameter, a list as a tensor; raise an error unless it is a finite number or vector."""
    values = torch.as_tensor(value, dtype=torch.float64)
    if values.ndim > 1 or not values.isfinite().all():
        raise ValueError(f"{name} must be finite, and a number or of shape (units,); got {values}.")
    return values if isinstance(value, list | tuple) else value


def _given(value: Any, default: float) -> bool:
    """Whether an option differs from its default."""
    return not (isinstance(value, int | float) and value == default)
