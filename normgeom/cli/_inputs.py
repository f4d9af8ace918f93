"""A module and a batch for it, from what is typed on a command line."""

import re
from pathlib import Path
from typing import Any

import torch
from torch import nn

from normgeom import loading

_SHAPE = re.compile(r"(\d+(?:x\d+)*)(?:<(\d+))?")
_FILES = (".npy", ".npz", ".pt", ".pth")
_FORMS = (
    "--input must be a shape such as 8x3x32x32 or 4x16<50, digits, an .npy, .npz or .pt file, or "
    "MODULE:CALLABLE"
)


def load_module(target: str) -> nn.Module:
    """Return the `nn.Module` that `MODULE:NAME` or `path/to/file.py:NAME` names, or what it makes.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the module does not import, or has no such name.
        TypeError: if what is found is not an `nn.Module`.
    """
    found = loading.load_model(target).model
    if not isinstance(found, nn.Module):
        raise TypeError(f"{target} must be or make an nn.Module; got {type(found).__name__}.")
    return found


def load_input(source: str, module: nn.Module, *, generator: torch.Generator) -> Any:
    """Return a batch on the module's device: random numbers of a shape, a file's, or what a callable returns.

    Args:
        source: `8x5`, or `4x16<50` for whole numbers below 50; `digits`; a file; `MODULE:CALLABLE`.
        module: gives the floating-point type and the device.
        generator: draws the numbers.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the text is none of these, or a size is 0.
    """
    first = next(p for p in module.parameters())
    if shape := _SHAPE.fullmatch(source):
        return _random(shape, first, generator)
    if ":" in source:
        return _returned(source)
    if source != "digits" and Path(source).suffix not in _FILES:
        raise ValueError(f"{_FORMS}; got {source!r}.")
    if source != "digits" and not Path(source).is_file():
        raise FileNotFoundError(f"no file {source}; {_FORMS}.")
    return loading.cast(loading.load_data(source), first.dtype, first.device)


def _returned(source: str) -> Any:
    """What a callable that is named returns, or the object itself."""
    try:
        found = loading.load_object(source)
    except FileNotFoundError as missing:
        raise FileNotFoundError(f"{str(missing).removesuffix('.')}; {_FORMS}.") from None
    return loading.made(found, source) if callable(found) else found


def _random(shape: re.Match[str], like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Standard normal numbers, or whole numbers below a bound."""
    sizes, below = tuple(int(n) for n in shape[1].split("x")), shape[2]
    if 0 in sizes or below == "0":
        raise ValueError(f"the sizes and the bound of --input must be at least 1; got {shape[0]!r}.")
    if below is not None:
        return torch.randint(int(below), sizes, generator=generator).to(like.device)
    return torch.randn(sizes, generator=generator, dtype=torch.float64).to(like)
