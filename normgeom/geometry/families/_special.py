"""Two remainders of Taylor series, right to rounding near 0, where the obvious difference cancels."""

import torch

_SERIES_BELOW = 0.1
_TERMS = 14


def expm1_minus(x: torch.Tensor) -> torch.Tensor:
    """Return `e^x - 1 - x >= 0`.

    >>> round(float(expm1_minus(torch.tensor(1e-8, dtype=torch.float64))) * 1e16, 12)
    0.500000001667
    """
    small = x.clamp(-_SERIES_BELOW, _SERIES_BELOW)
    tail = torch.ones_like(x)
    for k in range(_TERMS, 2, -1):
        tail = 1 + small / k * tail
    return torch.where(x.abs() < _SERIES_BELOW, small**2 / 2 * tail, torch.expm1(x) - x)


def minus_log1p(x: torch.Tensor) -> torch.Tensor:
    """Return `x - log(1 + x) >= 0` for x > -1.

    >>> round(float(minus_log1p(torch.tensor(1e-8, dtype=torch.float64))) * 1e16, 12)
    0.499999996667
    """
    small = x.clamp(-_SERIES_BELOW, _SERIES_BELOW)
    tail = torch.zeros_like(x)
    for k in range(_TERMS + 4, 1, -1):
        tail = 1 / k - small * tail
    return torch.where(x.abs() < _SERIES_BELOW, small**2 * tail, x - torch.log1p(x))
