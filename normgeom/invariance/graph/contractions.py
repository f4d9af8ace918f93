"""Convolution and average pooling of object arrays, as sums over the entries of the kernel."""

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np


def convolve(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    *,
    zero: Any,
) -> np.ndarray:
    """Return `aten.convolution` of data (cases, inputs, *positions) and a weight."""
    parts = zip(np.split(x, groups, axis=1), np.split(weight, groups, axis=0), strict=True)
    if transposed:
        out = [_scattered(a, b, stride, padding, dilation, output_padding, zero) for a, b in parts]
    else:
        pads = [(0, 0), (0, 0), *((p, p) for p in padding)]
        out = [_gathered(np.pad(a, pads, constant_values=zero), b, stride, dilation) for a, b in parts]
    summed = np.concatenate(out, axis=1)
    return summed if bias is None else summed + bias.reshape(1, -1, *(1,) * len(stride))


def _gathered(x: np.ndarray, weight: np.ndarray, stride: list[int], dilation: list[int]) -> np.ndarray:
    """Sum over the entries of the kernel, each with the positions it meets."""
    kernel = weight.shape[2:]
    sizes = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(x.shape[2:], kernel, stride, dilation, strict=True)
    ]
    total: Any = 0
    for at in itertools.product(*map(range, kernel)):
        met = x[_windows(at, sizes, stride, dilation)]
        total = total + np.moveaxis(np.tensordot(met, weight[_last(at)], axes=([1], [1])), -1, 1)
    return total


def _scattered(
    x: np.ndarray,
    weight: np.ndarray,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    output_padding: list[int],
    zero: Any,
) -> np.ndarray:
    """The transposed convolution: every input is spread over the kernel."""
    sizes, kernel = x.shape[2:], weight.shape[2:]
    reach = [
        (n - 1) * s + d * (k - 1) + 1 + o
        for n, k, s, d, o in zip(sizes, kernel, stride, dilation, output_padding, strict=True)
    ]
    out = np.full((x.shape[0], weight.shape[1], *reach), zero, dtype=object)
    for at in itertools.product(*map(range, kernel)):
        spread = np.moveaxis(np.tensordot(x, weight[_last(at)], axes=([1], [0])), -1, 1)
        out[_windows(at, sizes, stride, dilation)] += spread
    return out[_last(slice(p, n - p) for p, n in zip(padding, reach, strict=True))]


def _windows(at: tuple[int, ...], sizes: Any, stride: Any, dilation: Any) -> Any:
    """The positions that one entry of the kernel meets."""
    return _last(
        slice(k * d, k * d + (n - 1) * s + 1, s)
        for k, n, s, d in zip(at, sizes, stride, dilation, strict=True)
    )


def _last(index: Iterable[Any]) -> Any:
    """An index of the last axes."""
    return (..., *index)


def pool(
    a: Any,
    x: np.ndarray,
    kernel: list[int],
    stride: list[int] = (),  # type: ignore[assignment]
    padding: list[int] = (0,),  # type: ignore[assignment]
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> np.ndarray:
    """Return `aten.avg_pool`, a mean over windows.

    Raises:
        NotImplementedError: for a mean that leaves the padding out, or sizes rounded up.
    """
    padding = list(padding) * (len(kernel) // len(padding))
    if ceil_mode or (any(padding) and not count_include_pad):
        raise NotImplementedError("pooling with ceil_mode, or without its padding in the count")
    pads = [(0, 0)] * (x.ndim - len(kernel)) + [(p, p) for p in padding]
    x = np.pad(x, pads, constant_values=a.number(0))
    stride = list(stride) or list(kernel)
    sizes = [(n - k) // s + 1 for n, k, s in zip(x.shape[-len(kernel) :], kernel, stride, strict=True)]
    ones = [1] * len(kernel)
    windows = (x[_windows(at, sizes, stride, ones)] for at in itertools.product(*map(range, kernel)))
    return sum(windows) * a.divide(a.number(1), a.number(divisor or math.prod(kernel)))
