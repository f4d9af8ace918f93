"""How each block of the Fisher matrix changes when the weight, or one row of it, is scaled.

With a norm that leaves the outputs unchanged under `W -> delta W`, blocks change by `delta^k`: -2 for the
weight with itself, -1 for the weight with bias or gain, 0 for the others. Source: Ba et al. 2016, section
5.2.2, whose "factor 1/2" for doubled weights is right for the cross blocks and for the length of a step; the
weight block itself changes by 1/4.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from normgeom.geometry.fisher import fisher
from normgeom.geometry.matrix import FisherMatrix

Law = Literal["power law", "no power law", "zero"]
Block = tuple[str, str]


@dataclass(frozen=True)
class BlockScaling:
    """How one block scales.

    Attributes:
        block: the names of its rows and columns; with one row scaled `weight[0]` and `weight[others]`.
        law: `power law` if the block at every delta is `delta^exponent` times the block, `zero` if it is zero
            before and after, else `no power law`.
        exponent: k, or None.
        ratios: the factor for every delta (the projection of the new block on the old one).
        misfit: the largest distance of a new block from a multiple of the old one, relative to it.
    """

    block: Block
    law: Law
    exponent: float | None
    ratios: tuple[float, ...]
    misfit: float


def scaling_exponents(
    model: Any,
    params: Mapping[str, Tensor],
    data: Any,
    *,
    name: str = "weight",
    row: int | None = None,
    deltas: Sequence[float] = (2.0, 3.0),
    family: Any = None,
    tolerance: float | None = None,
) -> dict[Block, BlockScaling]:
    """Return the scaling exponent of every block of F under `W -> delta W`, or `w_row -> delta w_row`.

    Args:
        model: a NormalizedGLM, an `nn.Module`, or a function (params, data) -> natural parameters.
        params: the tensors by name.
        data: what the model takes, cases first.
        name: the parameter that is scaled.
        row: scale this row alone; blocks are then split into the parameters of this unit and of the others.
        deltas: at least two factors, other than 0, 1 and -1: one number cannot tell a power law.
        family: the distribution of y; a NormalizedGLM has its own.
        tolerance: how far a power law may be missed, relative to the block; 1e-9 in float64, 1e-5 in float32.

    >>> from normgeom.geometry.families import Gaussian
    >>> from normgeom.geometry.glm import NormalizedGLM
    >>> from normgeom.norms import RMSNorm
    >>> params = {"weight": torch.tensor([[1.0, 2.0], [0.5, 1.0], [3.0, -1.0]]).double()}
    >>> params |= {"bias": torch.zeros(3).double(), "gain": torch.ones(3).double()}
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 2.0], [0.0, 3.0]]).double()
    >>> found = scaling_exponents(NormalizedGLM(RMSNorm(), Gaussian()), params, x)
    >>> round(found["weight", "weight"].exponent, 6), round(found["weight", "gain"].exponent, 6)
    (-2.0, -1.0)
    """
    if len(set(deltas)) < 2 or any(abs(delta) in (0.0, 1.0) for delta in deltas):
        raise ValueError(f"deltas must be two or more numbers other than 0, 1 and -1; got {tuple(deltas)}.")
    if name not in params:
        raise ValueError(f"name must be a parameter, of {', '.join(params)}; got {name!r}.")
    if row is not None and not 0 <= row < len(params[name]):
        raise ValueError(f"row must be one of the {len(params[name])} rows of {name}; got {row}.")
    if tolerance is not None and not tolerance >= 0:
        raise ValueError(f"tolerance must not be negative; got {tolerance}.")
    at = lambda point: fisher(model, point, data, family=family, progress=False)  # noqa: E731
    scaled = [at({**params, name: scale(params[name], delta, row)}) for delta in deltas]
    return compare_blocks(at(params), scaled, deltas, row=row, tolerance=tolerance)


def scale(weight: Tensor, delta: float, row: int | None = None) -> Tensor:
    """Return the weight with all, or one, of its rows multiplied."""
    if row is None:
        return delta * weight
    scaled = weight.clone()
    scaled[row] *= delta
    return scaled


def compare_blocks(
    before: FisherMatrix,
    after: Sequence[FisherMatrix],
    deltas: Sequence[float],
    *,
    row: int | None = None,
    tolerance: float | None = None,
) -> dict[Block, BlockScaling]:
    """Return the scaling of every block between a Fisher matrix and those at the scaled weights."""
    places = _places(before, row)
    eps = torch.finfo(before.matrix.dtype).eps
    tolerance = max(1e-9, 100 * eps) if tolerance is None else tolerance
    found = {}
    for block in itertools.product(places, places):
        rows, columns = places[block[0]], places[block[1]]
        old = before.matrix[rows[:, None], columns]
        new = [matrix.matrix[rows[:, None], columns] for matrix in after]
        found[block] = _scaling(
            block, old, new, deltas, tolerance, 64 * eps * float(before.matrix.abs().max())
        )
    return found


def _scaling(
    block: Block,
    old: Tensor,
    new: Sequence[Tensor],
    deltas: Sequence[float],
    tolerance: float,
    nothing: float,
) -> BlockScaling:
    """Fit `new = ratio * old` for every delta, and one exponent to the ratios."""
    if max(float(part.abs().max()) for part in (old, *new)) <= nothing:
        return BlockScaling(block, "zero", None, (), 0.0)
    norm = old.norm()
    ratios = [float((part * old).sum() / norm**2) for part in new]
    misfits = [float((part - r * old).norm() / (abs(r) * norm)) for part, r in zip(new, ratios, strict=True)]
    # |ratio| = |delta|^k at the first delta gives k; the others must agree, and so must the signs.
    exponent = math.log(abs(ratios[0])) / math.log(abs(deltas[0])) if ratios[0] else math.inf
    misfits += [
        abs(abs(r) / abs(delta) ** exponent - 1)
        for r, delta in zip(ratios, deltas, strict=True)
        if abs(exponent) < 100
    ]
    misfit = max(misfits)
    holds = misfit <= tolerance
    return BlockScaling(
        block, "power law" if holds else "no power law", exponent if holds else None, tuple(ratios), misfit
    )


def _places(matrix: FisherMatrix, row: int | None) -> dict[str, Tensor]:
    """Where the parameters of every part stand."""
    places = {name: matrix.order.positions(name).to(matrix.matrix.device) for name in matrix.order.names}
    if row is None:
        return places
    split = {}
    for name, shape in matrix.order.shapes:
        by_row = places[name].reshape(shape[0], -1)
        split[f"{name}[{row}]"] = by_row[row]
        split[f"{name}[others]"] = by_row[torch.arange(shape[0]) != row].flatten()
    return split
