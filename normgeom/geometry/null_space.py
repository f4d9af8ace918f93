"""The null space of a Fisher matrix, and the directions that a symmetry says must lie in it.

If a group acts on the parameters and leaves the model's function unchanged, F annihilates the tangent of the
action at the identity. This ties Table 1 to the metric.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from normgeom.geometry.matrix import FisherMatrix


@dataclass(frozen=True, eq=False, repr=False)
class NullSpace:
    """The directions a Fisher matrix does not see.

    Attributes:
        rank: the number of eigenvalues above the threshold.
        basis: orthonormal columns that span the null space, (parameters, nullity), in the matrix's order.
        eigenvalues: all of them, ascending.
        threshold: what counts as zero.
        gap: the smallest eigenvalue kept over the largest dropped (in absolute value): the larger, the
            surer the rank. Infinite if none is dropped or all are.
    """

    rank: int
    basis: Tensor
    eigenvalues: Tensor
    threshold: float
    gap: float

    @property
    def nullity(self) -> int:
        """The dimension of the null space."""
        return self.basis.shape[1]

    def __repr__(self) -> str:
        """Return rank, nullity and gap; basis and eigenvalues are as large as the matrix."""
        return f"NullSpace(rank {self.rank}, nullity {self.nullity}, gap {self.gap:.1e})"

    def contains(self, fisher: FisherMatrix, direction: Mapping[str, Tensor]) -> bool:
        """Return whether a direction lies in the null space, to the square root of machine precision."""
        vector = flatten(fisher, direction)
        outside = vector - self.basis @ (self.basis.T @ vector)
        return bool(outside.norm() <= torch.finfo(vector.dtype).eps ** 0.5 * vector.norm())


def null_space(fisher: FisherMatrix, *, relative: float | None = None) -> NullSpace:
    """Return the null space of a Fisher matrix by its eigenvectors.

    Args:
        fisher: one matrix, of shape (parameters, parameters).
        relative: eigenvalues below this times the largest count as zero; default `parameters * eps`, the
            rounding of the matrix itself.

    >>> from normgeom.geometry.matrix import ParameterOrder
    >>> order = ParameterOrder.of({"weight": torch.zeros(1, 2)}, kind="neuron")
    >>> found = null_space(FisherMatrix(torch.tensor([[1.0, 1.0], [1.0, 1.0]]), order))
    >>> found.rank, found.nullity
    (1, 1)
    >>> null_space(FisherMatrix(torch.eye(2), order))
    NullSpace(rank 2, nullity 0, gap inf)
    """
    if not isinstance(fisher, FisherMatrix):
        raise TypeError(
            f"null_space takes a FisherMatrix, which knows its parameters; got {type(fisher).__name__}. "
            "Pass F itself, not F.matrix."
        )
    if fisher.matrix.ndim != 2:
        raise ValueError(
            f"the null space is that of one matrix; got shape {tuple(fisher.matrix.shape)}. Take one case."
        )
    values, vectors = torch.linalg.eigh(fisher.matrix)
    size, largest = len(values), float(values.abs().max())
    eps = torch.finfo(values.dtype).eps
    threshold = largest * (relative if relative is not None else 4 * size * eps)
    kept = values > threshold
    dropped = values[~kept].abs()
    floor = max(float(dropped.max()), largest * eps) if len(dropped) and bool(kept.any()) else 0.0
    gap = float(values[kept].min()) / floor if floor else float("inf")
    return NullSpace(int(kept.sum()), vectors[:, ~kept], values, threshold, gap)


def annihilation_error(fisher: FisherMatrix, direction: Mapping[str, Tensor]) -> float:
    """Return `||F d|| / (||F|| ||d||)` with the spectral norm: 0 for a null direction, 1 for the steepest.

    >>> from normgeom.geometry.matrix import ParameterOrder
    >>> F = FisherMatrix(torch.eye(2), ParameterOrder.of({"bias": torch.zeros(2)}, kind="neuron"))
    >>> annihilation_error(F, {"bias": torch.tensor([1.0, 2.0])})
    1.0
    """
    vector = flatten(fisher, direction)
    if not bool(vector.any()):
        raise ValueError("a direction must not be zero: nothing can be said of it.")
    scale = torch.linalg.matrix_norm(fisher.matrix, 2) * vector.norm()
    return float((fisher.matrix @ vector).norm() / scale)


def flatten(fisher: FisherMatrix, direction: Mapping[str, Tensor]) -> Tensor:
    """Return a direction as one vector in the matrix's order; names it lacks are zero."""
    vector = fisher.matrix.new_zeros(len(fisher.order))
    for name, part in direction.items():
        vector[fisher.order.positions(name).to(vector.device)] = part.flatten().to(vector)
    return vector


def tangent_directions(transform: Any, weight: Tensor, data: Tensor) -> Tensor:
    """Return the derivative of a weight action at the identity, one direction for each of its parameters.

    For `W -> delta W` that is W itself; for `W -> W + 1 gamma^T` the matrices `1 e_d^T`; for
    `w_i -> delta_i w_i` the matrices `e_i w_i^T`.

    Args:
        transform: a class of `normgeom.transforms` that moves the weight.
        weight: shape (units, inputs).
        data: shape (cases, inputs).

    Returns:
        Shape (directions, units, inputs).

    Raises:
        ValueError: for a transform of the data, which has no direction among the parameters.

    >>> from normgeom.transforms import WeightMatrixRescale
    >>> tangent_directions(WeightMatrixRescale, torch.tensor([[1.0, 2.0]]), torch.zeros(1, 2))
    tensor([[[1., 2.]]])
    """
    if transform.moves != "weight":
        raise ValueError(f"{transform.__name__} moves the data, not the weight: it has no tangent direction.")
    shape = transform.shape(weight, data)
    identity = torch.full(shape, 0.0 if transform.sign is None else 1.0, dtype=weight.dtype)
    size = identity.numel()
    steps = torch.eye(size, dtype=weight.dtype).reshape(size, *shape)
    # Every action is affine in its parameter, so a difference is the derivative.
    at = lambda parameter: transform(parameter if shape else float(parameter))(weight, data)[0]  # noqa: E731
    return torch.stack([at(identity + step) - at(identity) for step in steps])
