"""Whether a layer's code compares sizes, so that it may have another law at other sizes."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from normgeom.invariance.frames import is_users, line_of
from normgeom.layers import Layer

SIZES = (torch.Tensor.shape.__get__, torch.Tensor.size, torch.Tensor.numel, torch.Tensor.nelement)  # type: ignore[attr-defined]


class _Told(int):
    """A size that tells where it is compared, and makes such sizes where it is computed with."""

    places: list[str]

    @classmethod
    def of(cls, value: Any, places: list[str]) -> Any:
        """Return a size, or a shape of such sizes."""
        if not isinstance(value, int | tuple):
            return value
        if isinstance(value, tuple):
            return torch.Size([cls.of(size, places) for size in value])
        told = cls(value)
        told.places = places
        return told


def _told_at(frame: FrameType, size: _Told, name: str, *other: Any) -> Any:
    """Compare a size, and keep the line if it is the user's."""
    if is_users(frame):
        size.places.append(line_of(frame))
    return getattr(int, name)(size, *other)


def _computing(name: str) -> Callable[..., Any]:
    return lambda size, other: _Told.of(getattr(int, name)(size, other), size.places)


def _comparing(name: str) -> Callable[..., Any]:
    return lambda size, *other: _told_at(sys._getframe(1), size, name, *other)


for _name in ("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__floordiv__", "__mod__"):
    setattr(_Told, _name, _computing(_name))
for _name in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "__bool__"):
    setattr(_Told, _name, _comparing(_name))
_Told.__hash__ = int.__hash__  # type: ignore[method-assign]


class _Telling(TorchFunctionMode):
    """Makes every size that is read one that tells."""

    def __init__(self, places: list[str]):
        super().__init__()
        self.places = places

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function, and let the sizes that it returns tell."""
        result = func(*args, **(kwargs or {}))
        whole = func in SIZES and isinstance(result, int | tuple)
        return _Told.of(result, self.places) if whole else result


def branches(layer: Layer, weight: torch.Tensor, data: torch.Tensor) -> tuple[str, ...]:
    """Return the lines of the user's code that compare a size, `my_norm.py:12`, each once.

    Args:
        layer: any layer.
        weight: shape (units, inputs).
        data: shape (cases, inputs).

    A comparison of `len(tensor)` is not seen: it is a plain number.
    """
    places: list[str] = []
    with torch.no_grad(), torch.random.fork_rng(devices=[]), _Telling(places):
        layer(weight.clone(), data.clone())
    return tuple(dict.fromkeys(places))
