"""Where a module keeps the weight that its units are: the tensor that the actions move."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from normgeom.layers.convolution import DENSE, Convolution

TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
CONVOLUTIONAL = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *TRANSPOSED)
OWNERS = (nn.Linear, *CONVOLUTIONAL)
RAW = ("original", "original1")  # of a parametrized tensor: its one source, or weight norm's direction
OLD_RAW = ("weight_v", "weight_orig")  # the same of the old-style hooks


@dataclass(frozen=True)
class OwnWeight:
    """A parameter of a module that is a weight.

    Attributes:
        name: its name among the module's parameters.
        shape: its shape, units first.
        inputs: the inputs of the data; `shape[1]` times the groups of a convolution.
        convolution: how its owner sums.
        transposed: whether the module keeps it as (inputs, units, ...).
    """

    name: str
    shape: tuple[int, ...]
    inputs: int
    convolution: Convolution = DENSE
    transposed: bool = False


def of_same_shape(new: Any, weight: torch.Tensor, name: str) -> torch.Tensor:
    """Return the weight that a re-parametrization gives; raise an error unless it has the old one's shape."""
    shape = tuple(new.shape) if isinstance(new, torch.Tensor) else type(new).__name__
    if shape != tuple(weight.shape):
        raise ValueError(
            f"the re-parametrization {name} must return a weight of the same shape, {tuple(weight.shape)}; "
            f"got {shape}. For a function of (weight, data) use ng.function_layer."
        )
    return new


def own_matrices(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the arrays with two long axes or more that may be a weight, by name.

    Those of torch's own modules are left out: gains have axes too, and a linear part after others says by its
    place that it is not the layer's weight.
    """
    found = {}
    for path, part in module.named_modules():
        if not type(part).__module__.startswith("torch."):
            for name, array in part.named_parameters(recurse=False):
                if sum(length > 1 for length in array.shape) > 1:
                    found[f"{path}.{name}".lstrip(".")] = tuple(array.shape)
    return found


def begins_with_weight(module: nn.Module) -> bool:
    """Whether the first of a module's parts that is not made of parts is linear or convolutional."""
    parts = module.modules()
    first = next((part for part in parts if isinstance(part, OWNERS) or not any(part.children())), None)
    return isinstance(first, OWNERS)


def find_weight(module: nn.Module, name: str | None, spatial: tuple[int, ...] = ()) -> OwnWeight:
    """Return the weight with this name, or of the first linear or convolutional part.

    Raises:
        ValueError: if there is none, with the names of those there are.
    """
    parameters = {k: p for k, p in module.named_parameters() if p.ndim > 1}
    if name is None:
        found = [k for k, part in module.named_modules() if isinstance(part, OWNERS)]
        if not found:
            raise ValueError(
                f"{type(module).__name__} must own a linear or convolutional weight; it has none. Name the "
                f"parameter that is its weight, of: {', '.join(parameters) or 'none with two axes'}."
            )
        name = f"{found[0]}.weight".lstrip(".")
    resolved = _raw(name, parameters)
    if resolved is None:
        has = ", ".join(parameters) or "none"
        raise ValueError(f"weight must name one matrix among the parameters: {has}; got {name!r}.")
    return _described(module, resolved, parameters[resolved], spatial)


def _raw(name: str, parameters: dict[str, nn.Parameter]) -> str | None:
    """The parameter behind a name: itself, or what a parametrization or old-style hook keeps."""
    owner, _, own = name.rpartition(".")
    prefix = f"{owner}." if owner else ""
    names = [name, *(f"{prefix}parametrizations.{own}.{raw}" for raw in RAW)]
    names += [f"{prefix}{raw}" for raw in OLD_RAW] if own == "weight" else []
    return next((n for n in names if n in parameters), None)


def _described(module: nn.Module, name: str, parameter: torch.Tensor, spatial: tuple[int, ...]) -> OwnWeight:
    """Say what a weight is, from the part that owns it."""
    kept = "parametrizations." in name
    owner = module.get_submodule(
        name.split("parametrizations.")[0].rstrip(".") if kept else name.rpartition(".")[0]
    )
    shape = tuple(parameter.shape)
    if not isinstance(owner, CONVOLUTIONAL):
        if spatial:
            raise ValueError(f"spatial is for convolutions; {name} belongs to {type(owner).__name__}.")
        return OwnWeight(name, shape, getattr(owner, "in_features", shape[1]))
    transposed = isinstance(owner, TRANSPOSED)
    if transposed and owner.groups > 1:
        raise ValueError("a transposed convolution must have groups=1: its units are no axis of its weight.")
    reach = tuple(d * (k - 1) + 1 for d, k in zip(owner.dilation, owner.kernel_size, strict=True))
    spatial = tuple(spatial) or Convolution.of(reach).spatial
    # The owner pads by itself; what is said here only bounds the images.
    convolution = Convolution(tuple(owner.kernel_size), spatial, padding=max(reach), groups=owner.groups)
    shape = (shape[1], shape[0], *shape[2:]) if transposed else shape
    return OwnWeight(name, shape, owner.in_channels, convolution, transposed)


def without_parametrization(module: nn.Module, name: str | None) -> None:
    """Keep the effective weight of the first part, or of a named one, in place of its parametrization.

    Raises:
        ValueError: if it has none.
    """
    owners = [k for k, part in module.named_modules() if isinstance(part, OWNERS)]
    path = name or f"{next(iter(owners), '')}.weight".lstrip(".")
    owner, _, own = path.rpartition(".")
    part = module.get_submodule(owner)
    if not parametrize.is_parametrized(part, own):
        raise ValueError(
            f"raw=False needs a parametrized weight (torch.nn.utils.parametrize); {path} is none."
        )
    values = {tensor: getattr(part, tensor).detach().clone() for tensor in part.parametrizations}  # type: ignore[union-attr]
    # torch's own removal deletes properties of the class, which a copy shares with the user's module.
    del part.parametrizations
    part.__class__ = type(part).__bases__[0]
    for tensor, value in values.items():
        part.register_parameter(tensor, nn.Parameter(value))
