"""A weight and data that a user gives: what they must be, and the sizes that they fix."""

import torch

from normgeom.layers import Layer, convolution_of
from normgeom.norms import check_shapes


def sizes_of(
    layer: Layer, weight: torch.Tensor | None, data: torch.Tensor | None, asked: dict[str, int | None]
) -> dict[str, int | None]:
    """Return the sizes asked for with those of the arrays given; raise an error where they differ."""
    known = {
        "units": None if weight is None else weight.shape[0],
        "inputs": _inputs(layer, weight, data),
        "cases": None if data is None else data.shape[0],
    }
    for name, found in known.items():
        if found is not None and asked.get(name) not in (None, found):
            raise ValueError(f"{name}={asked[name]} was asked for, but the arrays given have {found} {name}.")
    return asked | {k: v for k, v in known.items() if v is not None}


def _inputs(layer: Layer, weight: torch.Tensor | None, data: torch.Tensor | None) -> int | None:
    """The inputs of the arrays given: a weight has those of one group."""
    if data is not None:
        return data.shape[1]
    return None if weight is None else weight.shape[1] * convolution_of(layer).groups


def check_arrays(weight: torch.Tensor | None, data: torch.Tensor | None) -> None:
    """Raise an error for arrays given that cannot be measured at, alone or together."""
    for name, array in (("weight", weight), ("data", data)):
        if array is not None:
            check_array(name, array)
    if weight is not None and data is not None and weight.ndim == data.ndim == 2:
        check_shapes(weight, data)


def check_array(name: str, array: torch.Tensor) -> None:
    """Raise an error for an array that is not finite floats, of two axes or more."""
    if not isinstance(array, torch.Tensor) or not array.is_floating_point():
        kind = array.dtype if isinstance(array, torch.Tensor) else type(array).__name__
        raise TypeError(f"{name} must be a floating-point torch tensor; got {kind}.")
    if array.ndim < 2:
        axes = "(units, inputs)" if name == "weight" else "(cases, inputs)"
        raise ValueError(f"{name} must be {axes}; got shape {tuple(array.shape)}.")
    bad = (~array.isfinite()).nonzero()
    if len(bad):
        at = tuple(int(i) for i in bad[0])
        raise ValueError(
            f"{name} must be finite; got {len(bad)} values that are not, first {array[at].item()} at {at}. "
            "Remove or replace them."
        )
