"""Estimates from products with random signs, with their error bars."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from normgeom.geometry.arguments import check_generator


@dataclass(frozen=True, eq=False)
class Estimate:
    """A mean of independent estimates, with its standard error (of the same shape)."""

    value: torch.Tensor
    standard_error: torch.Tensor
    samples: int


def random_signs(
    operator: Any,
    each: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    samples: int,
    generator: torch.Generator,
) -> Estimate:
    """Return the mean of `each(z, operator @ z)` over random signs z, along its last axis."""
    check_generator(generator)
    if samples < 2:
        raise ValueError(f"samples must be at least 2 for a standard error; got {samples}.")
    size = (operator.shape[0], samples)
    signs = torch.randint(0, 2, size, generator=generator, device=generator.device) * 2 - 1
    z = signs.to(operator.model.device, operator.dtype)
    drawn = each(z, operator @ z)
    return Estimate(drawn.mean(-1), drawn.std(-1) / samples**0.5, samples)
