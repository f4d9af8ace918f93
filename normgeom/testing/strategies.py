"""Hypothesis strategies for layers, and for what they are given: readable, exact, well-posed.

Every number is a small multiple of 1/8, exact in all floating-point types down to bfloat16 and far from
overflow and subnormals; a failing example shrinks to a matrix that can be read. Weights and data are
well-posed by construction: rows differ, so that no statistic is 0/0. Degenerate inputs have checks of their
own (`normgeom.testing.invariance_checks`). Arrays of more than a hundred entries repeat a
few numbers without order, by a seed.
"""

from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

import normgeom as ng
from normgeom.transforms import TABLE_1

__all__ = ["actions", "datasets", "dyadics", "layers", "scales", "transforms", "weights"]

STEP = 8
MANY = 100  # entries of an array beyond which Hypothesis cannot draw, nor a person read, each of them
FEW = 24
SCALES = (0.25, 0.375, 0.625, 1.5, 2.0, 2.5, 3.0, 4.0)


def dyadics(low: float = -2.0, high: float = 2.0) -> SearchStrategy[float]:
    """Return multiples of 1/8 between two numbers.

    Raises:
        ValueError: if low is not below high.
    """
    if not low < high:
        raise ValueError(f"low must be below high; got {low} and {high}.")
    return st.integers(round(low * STEP), round(high * STEP)).map(lambda k: k / STEP)


def scales(*, sign: int = 1, powers_of_two: bool = False) -> SearchStrategy[float]:
    """Return scales between 1/4 and 4 that are not 1; with `sign=-1` negative ones.

    With `powers_of_two` only 2^k, |k| <= 3, k != 0: multiplying by them rounds nothing.
    """
    sizes = (0.125, 0.25, 0.5, 2.0, 4.0, 8.0) if powers_of_two else SCALES
    return st.sampled_from([sign * size for size in sizes])


def weights(*shape: int) -> SearchStrategy[torch.Tensor]:
    """Return weights, shape (units, inputs) or (units, inputs, *kernel), 4 by 3 if not given.

    Rows differ from each other and none is constant (of a hundred entries or fewer); float64.

    >>> weight = weights(3, 2).example()  # doctest: +SKIP
    """
    return _arrays(tuple(shape) or (4, 3), phase=0)


def datasets(*shape: int) -> SearchStrategy[torch.Tensor]:
    """Return data, shape (cases, inputs) or (cases, inputs, *positions), 5 by 3 if not given."""
    return _arrays(tuple(shape) or (5, 3), phase=1)


def transforms(
    action: Any, weight: torch.Tensor, data: torch.Tensor, *, powers_of_two: bool = False
) -> SearchStrategy[Any]:
    """Return elements of an action for this weight and data, far enough from the identity to be seen.

    Args:
        action: a class of `normgeom.transforms`.
        weight: shape (units, inputs).
        data: shape (cases, inputs).
        powers_of_two: draw scales that round nothing.
    """
    shape = action.shape(weight, data)
    number = dyadics() if action.sign is None else scales(sign=action.sign, powers_of_two=powers_of_two)
    if not shape:
        return number.map(action)
    return _entries(number, int(torch.Size(shape).numel())).map(
        lambda values: action(torch.tensor(values, dtype=torch.float64).reshape(shape))
    )


def actions(among: Sequence[Any] = TABLE_1) -> SearchStrategy[Any]:
    """Return classes of actions, those of Table 1 if no others are given."""
    return st.sampled_from(list(among))


def layers(*, eps: Sequence[float] = (0.0, 1e-5)) -> SearchStrategy[Any]:
    """Return the paper's norms and RMSNorm, W LN(x) and none, with gain, bias and one of these eps."""
    norms = (ng.BatchNorm, ng.WeightNorm, ng.LayerNorm, ng.RMSNorm, ng.InputLayerNorm, ng.NoNorm)
    around: tuple[dict[str, Any], ...] = ({"gain": 1.0}, {"gain": 2.5}, {"gain": -0.5, "bias": 1.5})
    return st.sampled_from(
        [ng.as_layer(norm(), eps=one, **options) for norm in norms for one in eps for options in around]
    )


def _arrays(shape: tuple[int, ...], *, phase: int) -> SearchStrategy[torch.Tensor]:
    """Arrays with more than one axis; one that is nearly degenerate is moved away from it."""
    if len(shape) < 2 or min(shape) < 1:
        raise ValueError(f"a shape needs two axes or more, each at least 1 long; got {shape}.")
    return _entries(dyadics(), int(torch.Size(shape).numel())).map(
        lambda values: _well_posed(torch.tensor(values, dtype=torch.float64).reshape(shape), phase)
    )


def _entries(number: SearchStrategy[float], size: int) -> SearchStrategy[list[float]]:
    """So many numbers: each drawn if they are few, else a few that are repeated without order, by a seed."""
    if size <= MANY:
        return st.lists(number, min_size=size, max_size=size)

    def repeated(seed: int, few: list[float]) -> list[float]:
        picks = torch.randint(len(few), (size,), generator=torch.Generator().manual_seed(seed))
        return [few[pick] for pick in picks.tolist()]

    return st.builds(repeated, st.integers(0, 2**16), st.lists(number, min_size=FEW, max_size=FEW))


def _well_posed(array: torch.Tensor, phase: int) -> torch.Tensor:
    """Return the array if its rows differ and vary, else the array with a fixed pattern added."""
    flat = array.flatten(1)
    varies = flat.shape[1] == 1 or bool((flat.std(1) > 0.25).all())
    apart = len(flat) == 1 or float(torch.pdist(flat).min()) > 0.5
    rank = int(torch.linalg.matrix_rank(flat - flat.mean(0), tol=0.5)) if len(flat) > 1 else 1
    if varies and apart and rank >= min(len(flat) - 1, flat.shape[1]):
        return array
    return array + _pattern(tuple(flat.shape), phase).reshape(array.shape)


def _pattern(shape: tuple[int, ...], phase: int) -> torch.Tensor:
    """Whole numbers without structure, the same at every call, larger than what is drawn."""
    draw = torch.randn(shape, generator=torch.Generator().manual_seed(20 + phase), dtype=torch.float64)
    return (draw * 4).round()
