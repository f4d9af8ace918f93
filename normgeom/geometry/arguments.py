"""What the arguments of the metric must be, said before any work is done."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from normgeom.geometry.families.base import NotFinite


def check_family(family: Any) -> None:
    """Raise an error unless this is a family, and not its class or name."""
    if family is None:
        raise ValueError(
            "a family must be given for a module or a function, for example family=Categorical()."
        )
    if isinstance(family, type) or not (hasattr(family, "fisher") and hasattr(family, "kl")):
        raise TypeError(
            f"the family must be an object such as Categorical() or Gaussian(1.0); got {family!r}."
        )


def check_params_dict(params: Any) -> None:
    """Raise an error unless this is a dict of finite, real floating-point tensors that is not empty."""
    if not isinstance(params, Mapping) or not params:
        got = "an empty dict" if isinstance(params, Mapping) else type(params).__name__
        raise TypeError(
            "params must be a dict of tensors that is not empty, for example "
            f"dict(module.named_parameters()); got {got}. The order is (model, params, data)."
        )
    for name, value in params.items():
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"parameters must be tensors; {name} is {type(value).__name__}.")
        if not value.is_floating_point():
            raise TypeError(f"parameters must be real floating-point tensors; {name} is {value.dtype}.")
        if value.is_meta:
            raise ValueError(f"parameters must have values; {name} is on the device meta. Load it first.")


def detached(params: Any) -> dict[str, torch.Tensor]:
    """Return a dict of tensors outside of any autograd graph, or raise an error for what is not one."""
    check_params_dict(params)
    return {name: value.detach() for name, value in params.items()}


def check_values(params: Mapping[str, torch.Tensor]) -> None:
    """Raise a ValueError if a parameter holds NaN or an infinity."""
    for name, value in params.items():
        # A finite sum has finite terms; only another one is worth a closer look.
        if not math.isfinite(value.detach().sum()) and (bad := int((~value.isfinite()).sum())):
            raise NotFinite(
                f"parameters must be finite; {bad} of the {value.numel()} values of {name} are not."
            )


def check_shapes_of(module: nn.Module, params: Mapping[str, torch.Tensor]) -> None:
    """Raise a ValueError unless every tensor has the shape of the module's parameter of that name."""
    own = dict(module.named_parameters())
    for name, value in params.items():
        if value.shape != own[name].shape:
            raise ValueError(
                f"{name} must have the shape of the module's parameter, {tuple(own[name].shape)}; "
                f"got {tuple(value.shape)}."
            )


def check_model(model: Any) -> None:
    """Raise a TypeError for what is not a GLM, a module or a function, or is the class of a module."""
    if isinstance(model, type) or not callable(model):
        got = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise TypeError(
            f"the model must be a NormalizedGLM, an nn.Module or a function of (params, data); got {got}."
        )


def check_count(name: str, value: Any) -> None:
    """Raise a ValueError unless this is a whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be at least 1, and a whole number; got {value!r}.")


def check_generator(generator: Any) -> None:
    """Raise a TypeError unless random numbers come from a generator of the caller's."""
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator; got {type(generator).__name__}.")


def check_direction(direction: Any, params: Mapping[str, torch.Tensor], *, what: str = "direction") -> None:
    """Raise an error unless this is a dict of finite tensors with names and shapes of parameters."""
    if not isinstance(direction, Mapping) or not direction:
        got = "an empty dict" if isinstance(direction, Mapping) else type(direction).__name__
        raise TypeError(f"{what} must be a dict of tensors with names of parameters; got {got}.")
    unknown = sorted(direction.keys() - params.keys())
    if unknown:
        raise ValueError(
            f"{what} must have names of parameters, {', '.join(params)}; got {', '.join(unknown)}, which "
            "the model does not have, or has frozen."
        )
    for name, part in direction.items():
        if not isinstance(part, torch.Tensor):
            raise TypeError(f"{what}[{name!r}] must be a tensor; got {type(part).__name__}.")
        if part.shape != params[name].shape:
            raise ValueError(
                f"{what}[{name!r}] must have the parameter's shape {tuple(params[name].shape)}; "
                f"got {tuple(part.shape)}."
            )
        if not bool(part.isfinite().all()):
            raise NotFinite(f"{what}[{name!r}] must be finite; it holds NaN or an infinity.")


def check_inputs(inputs: Any) -> None:
    """Raise an error unless a batch is a tensor, or a tuple of tensors, with cases and without NaN."""
    for part in inputs if isinstance(inputs, tuple) and inputs else (inputs,):
        if not isinstance(part, torch.Tensor):
            hint = "torch.from_numpy(...)" if isinstance(part, np.ndarray) else "torch.tensor(...)"
            raise TypeError(
                "data must be a tensor, a tuple of tensors with the cases first, or an iterable of such "
                f"batches; got {type(part).__name__}. Wrap arrays and lists with {hint}."
            )
        if part.is_meta:
            raise ValueError("data must have values; got a tensor on the device meta.")
        if part.ndim == 0 or part.shape[0] == 0:
            raise ValueError(f"data must hold at least one case; got a tensor of shape {tuple(part.shape)}.")
        # An infinity may be an attention mask, so NaN alone is refused.
        if (
            part.is_floating_point()
            and not math.isfinite(part.detach().sum())
            and (bad := int(part.isnan().sum()))
        ):
            raise ValueError(f"data must not hold NaN; got {bad} of {part.numel()} values.")
