"""Runs a module in double precision even where it asks for a narrower type, with eps of functions taken away.

Models cast to float32 inside (norms, softmax, rotary embeddings of language models), so that a copy in
float64 would still round to seven digits. The casts are redirected; what stays narrow is noticed.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_NARROW = (torch.float32, torch.bfloat16, torch.float16)
_METHODS = {Tensor.float, Tensor.half, Tensor.bfloat16}
# Where the eps of a function stands among its positional arguments.
_EPS_PLACE: dict[Callable[..., Any], int] = {
    functional.layer_norm: 4,
    functional.rms_norm: 3,
    functional.group_norm: 4,
    functional.batch_norm: 7,
    functional.instance_norm: 7,
    torch.layer_norm: 4,
    torch.group_norm: 4,
    torch.batch_norm: 7,
    torch.rms_norm: 3,
}


class Widening(TorchFunctionMode):
    """Replaces narrow types by float64, and the eps of norm functions by `tiny` if it is given.

    Attributes:
        narrowest: the largest unit of rounding of any floating-point result that was seen.
    """

    def __init__(self, *, widen: bool) -> None:
        super().__init__()
        self.widen, self.tiny, self.narrowest = widen, 0.0, 0.0
        self.has_eps = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call the function with its types and its eps replaced."""
        kwargs = dict(kwargs or {})
        if self.widen:
            if func in _METHODS:
                func, args = Tensor.double, args[:1]
            args = tuple(_wide(value) for value in args)
            kwargs = {key: _wide(value) for key, value in kwargs.items()}
        if func in _EPS_PLACE:
            args, kwargs = self._without_eps(_EPS_PLACE[func], args, kwargs)
        result = func(*args, **kwargs)
        if isinstance(result, Tensor) and result.is_floating_point():
            self.narrowest = max(self.narrowest, torch.finfo(result.dtype).eps)
        return result

    def _without_eps(
        self, place: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        eps = args[place] if len(args) > place else kwargs.get("eps", 1e-5)
        self.has_eps = self.has_eps or eps is None or eps > self.tiny
        if not self.tiny or (eps is not None and eps <= self.tiny):
            return args, kwargs
        if len(args) > place:
            return (*args[:place], self.tiny, *args[place + 1 :]), kwargs
        return args, {**kwargs, "eps": self.tiny}


def _wide(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _NARROW else value
