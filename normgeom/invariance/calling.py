"""Calling a layer at a point: random state and arrays stay as they are, and what it returns is checked."""

from typing import Any

import torch

from normgeom.layers import Layer, OnSummedInputs
from normgeom.layers.fitting import REFUSALS


def act(element: Any, weight: torch.Tensor, data: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Apply a transform to copies, and raise an error if it writes into them."""
    given = weight.clone(), data.clone()
    moved = element(*given)
    if not (_same(given[0], weight) and _same(given[1], data)):
        raise ValueError(f"the transform {element} writes into its input; it must return new tensors.")
    return moved


def try_once(layer: Layer, weight: torch.Tensor, data: torch.Tensor) -> None:
    """Raise a ValueError that says in one line why a layer cannot be called at this point."""
    index = weight.device.index or 0
    with torch.no_grad(), torch.random.fork_rng(devices=[index] if weight.is_cuda else []):
        try:
            layer(weight.clone(), data.clone())
        except REFUSALS as why:
            raised = ": ".join([type(why).__name__, *str(why).strip().splitlines()[:1]])
            takes = f"a weight and data of shapes {tuple(weight.shape)} and {tuple(data.shape)}"
            instead = "pass units=..."
            if isinstance(layer, OnSummedInputs):
                takes += f", so summed inputs of shape {tuple(layer.convolution(weight, data).shape)}"
                instead += (
                    "; if for other axes, put it after what makes them: "
                    f"nn.Sequential(nn.Conv2d(...), {layer.name}(...))"
                )
            raise ValueError(
                f"{layer.name} must take {takes}; it raised {raised}. If it is for another number of units, "
                f"{instead}."
            ) from why


def evaluate(
    layer: Layer, weight: torch.Tensor, data: torch.Tensor, *, seed: int | None = None
) -> torch.Tensor:
    """Return a layer's outputs, leaving the random state alone; a seed sets it for this call.

    Raises:
        TypeError: if the outputs are not a floating-point tensor.
        ValueError: if the layer changes its input, or if the outputs do not have a row per case.
    """
    given = weight.clone(), data.clone()
    index = weight.device.index or 0
    with torch.no_grad(), torch.random.fork_rng(devices=[index] if weight.is_cuda else []):
        if seed is not None:
            torch.default_generator.manual_seed(seed)
            if weight.is_cuda:
                torch.cuda.default_generators[index].manual_seed(seed)
        outputs = layer(*given)
    if not isinstance(outputs, torch.Tensor) or not outputs.is_floating_point():
        raise TypeError(f"{layer.name} must return a floating-point tensor; got {type(outputs).__name__}.")
    if not (_same(given[0], weight) and _same(given[1], data)):
        raise ValueError(f"{layer.name} changes its weight or data in place; it must return new tensors.")
    if outputs.ndim == 0 or len(outputs) != len(data) or not outputs.numel():
        raise ValueError(
            f"{layer.name} must return one row for each of the {len(data)} cases; "
            f"got shape {tuple(outputs.shape)}."
        )
    return outputs


def widest(layer: Layer, weight: torch.Tensor, data: torch.Tensor) -> torch.dtype:
    """Return float64 if the layer can be evaluated in it, else the type of the weight."""
    try:
        evaluate(layer, weight.double(), data.double())
    except (RuntimeError, TypeError):
        return weight.dtype
    return torch.float64


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one, other) or torch.equal(one.nan_to_num(), other.nan_to_num())
