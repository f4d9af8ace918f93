"""A Fisher matrix that knows which parameter each of its rows belongs to.

`ParameterOrder` lays parameters along one axis, neuron-major as in the paper's eq. 13
(`w_1, b_1, g_1, w_2, b_2, g_2, ...`) or tensor-major (`weight` whole, then `bias`, then `gain`).
`FisherMatrix` carries one, gives blocks by name, and re-orders itself.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch

from normgeom.geometry.memory import reordered

Kind = Literal["neuron", "tensor"]
Label = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class ParameterOrder(Sequence[Label]):
    """Parameters along one axis: a sequence of labels `(name, index)`.

    `tensor`: each tensor whole, one after another, as in `torch.nn.utils.parameters_to_vector`. `neuron`:
    tensors of one module (names with one prefix) that have equally many rows are interleaved by row, so that
    everything of unit i stands together; Ba et al. 2016, eq. 13.

    >>> order = ParameterOrder.of({"weight": torch.ones(2, 2), "bias": torch.ones(2)}, kind="neuron")
    >>> [f"{name}{list(index)}" for name, index in order]
    ['weight[0, 0]', 'weight[0, 1]', 'bias[0]', 'weight[1, 0]', 'weight[1, 1]', 'bias[1]']
    """

    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    kind: Kind

    def __post_init__(self) -> None:
        """Raise an error for an order that does not exist."""
        if self.kind not in ("neuron", "tensor"):
            raise ValueError(f"order must be 'neuron' or 'tensor'; got {self.kind!r}.")

    @classmethod
    def of(cls, params: Mapping[str, torch.Tensor], *, kind: Kind = "neuron") -> "ParameterOrder":
        """Return the order of a dict of parameters."""
        return cls(tuple((name, tuple(value.shape)) for name, value in params.items()), kind)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tensors, in the order given."""
        return tuple(name for name, _ in self.shapes)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The number of entries of each tensor."""
        return {name: math.prod(shape) for name, shape in self.shapes}

    @cached_property
    def permutation(self) -> torch.Tensor:
        """Where each label of this order stands tensor-major; shape (parameters,)."""
        start = dict(zip(self.names, itertools.accumulate(self.sizes.values(), initial=0), strict=False))
        whole = [torch.arange(start[name], start[name] + size) for name, size in self.sizes.items()]
        if self.kind == "tensor":
            return torch.cat(whole) if whole else torch.arange(0)
        groups: dict[tuple[str, int], list[torch.Tensor]] = {}
        for (name, shape), indices in zip(self.shapes, whole, strict=True):
            rows = shape[0] if shape else 1
            groups.setdefault((name.rpartition(".")[0], rows), []).append(indices.reshape(rows, -1))
        parts = [torch.cat(group, 1).flatten() for group in groups.values()]
        return torch.cat(parts) if parts else torch.arange(0)

    @cached_property
    def _inverse(self) -> torch.Tensor:
        return torch.argsort(self.permutation)

    def positions(self, name: str) -> torch.Tensor:
        """Return where the entries of one tensor stand, in the tensor's own (row-major) order."""
        if name not in self.sizes:
            raise KeyError(f"there is no parameter {name!r}; there are {', '.join(self.names)}.")
        start = sum(self.sizes[n] for n in self.names[: self.names.index(name)])
        return self._inverse[start : start + self.sizes[name]]

    def label(self, position: int) -> Label:
        """Return the name and index of the parameter at one position."""
        flat = int(self.permutation[position])
        for name, shape in self.shapes:
            if flat < self.sizes[name]:
                index = [int(i) for i in torch.unravel_index(torch.tensor(flat), shape)] if shape else []
                return name, tuple(index)
            flat -= self.sizes[name]
        raise IndexError(f"position must be below {len(self)}; got {position}.")

    def __len__(self) -> int:
        """The number of parameters."""
        return sum(self.sizes.values())

    def __getitem__(self, position: Any) -> Any:
        """Return the label at one position, or the labels of a slice."""
        if isinstance(position, slice):
            return [self.label(i) for i in range(*position.indices(len(self)))]
        if not -len(self) <= position < len(self):
            raise IndexError(f"position must be below {len(self)}; got {position}.")
        return self.label(position)

    def __iter__(self) -> Iterator[Label]:
        """Iterate over the labels."""
        ranges = [[range(n) for n in shape] for _, shape in self.shapes]
        labels = [
            (name, index)
            for (name, _), r in zip(self.shapes, ranges, strict=True)
            for index in itertools.product(*r)
        ]
        return (labels[i] for i in self.permutation.tolist())


class WrittenOut:
    """What numpy and torch need to take an object for its `matrix`: `np.asarray(F)`, `torch.as_tensor(F)`."""

    matrix: Any
    device: Any

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Return the matrix as a numpy array."""
        return np.array(self.matrix.detach().cpu().numpy(), dtype=dtype, copy=bool(copy) or None)

    def __dlpack__(self, **options: Any) -> Any:
        """Return the matrix for another library's tensor, without a copy."""
        return self.matrix.detach().__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        """Return where the matrix lies."""
        return torch.empty(0, device=self.device).__dlpack_device__()


@dataclass(frozen=True, eq=False)
class FisherMatrix(WrittenOut):
    """A Fisher matrix, of shape (parameters, parameters), or one a case: (cases, parameters, parameters).

    `order` is a sequence of labels `(name, index)`, one a row; `F["weight", "gain"]` is the block between two
    tensors, rows and columns in the tensors' own order. `kind` names the expectation that was taken (exact,
    empirical, Monte Carlo, ...), `reduction` is `mean`, `sum` or `none` (one matrix a case).

    >>> order = ParameterOrder.of({"weight": torch.ones(2, 1), "gain": torch.ones(2)}, kind="neuron")
    >>> F = FisherMatrix(torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0])), order)
    >>> F["gain", "gain"]
    tensor([[2., 0.],
            [0., 4.]])
    >>> F.to_order("tensor").diagonal
    tensor([1., 3., 2., 4.])
    >>> F.rank, float(F.trace)
    (4, 10.0)
    """

    matrix: torch.Tensor
    order: ParameterOrder
    kind: str = "exact"
    reduction: str = "mean"

    def __post_init__(self) -> None:
        """Raise an error for a matrix that does not fit its order."""
        wanted = (len(self.order), len(self.order))
        if tuple(self.matrix.shape[-2:]) != wanted:
            raise ValueError(
                f"the last two axes must have the {wanted[0]} parameters of the order; "
                f"got shape {tuple(self.matrix.shape)}."
            )

    def __getitem__(self, names: str | tuple[str, str]) -> torch.Tensor:
        """Return the block between two named tensors (or of one with itself)."""
        row, column = names if isinstance(names, tuple) and len(names) == 2 else (names, names)
        if not (isinstance(row, str) and isinstance(column, str)):
            raise TypeError(
                "blocks are asked for by the names of parameters, F['weight', 'gain'] or F['weight']; "
                f"got {names!r}. Single entries are in F.matrix."
            )
        rows, columns = (self.order.positions(n).to(self.matrix.device) for n in (row, column))
        return self.matrix[..., rows[:, None], columns[None, :]]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the matrix."""
        return tuple(self.matrix.shape)

    @property
    def device(self) -> torch.device:
        """Where the matrix lies."""
        return self.matrix.device

    @property
    def diagonal(self) -> torch.Tensor:
        """The diagonal, of shape (..., parameters)."""
        return self.matrix.diagonal(dim1=-2, dim2=-1)

    @property
    def trace(self) -> torch.Tensor:
        """The trace, of shape (...)."""
        return self.diagonal.sum(-1)

    def eigenvalues(self) -> torch.Tensor:
        """Return all eigenvalues, ascending, of shape (..., parameters)."""
        return torch.linalg.eigvalsh(self.matrix)

    @property
    def rank(self) -> int:
        """The number of eigenvalues above rounding: `largest * parameters * machine epsilon`."""
        return int(torch.linalg.matrix_rank(self.matrix, hermitian=True).max())

    def to_order(self, kind: Kind) -> "FisherMatrix":
        """Return the same matrix neuron-major or tensor-major."""
        order = ParameterOrder(self.order.shapes, kind)
        if kind == self.order.kind:
            return self
        moved = self.order._inverse[order.permutation].to(self.matrix.device)
        matrix = reordered(self.matrix, moved)
        return FisherMatrix(matrix, order, self.kind, self.reduction)

    def quadratic(self, direction: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return `d^T F d` for a direction given as a dict of tensors."""
        flat = torch.cat([direction[name].flatten() for name in self.order.names])
        vector = flat[self.order.permutation.to(flat.device)]
        return torch.einsum("...ij,i,j->...", self.matrix, vector, vector)

    def __repr__(self) -> str:
        """One line: kind, reduction, size, order."""
        shape = " x ".join(map(str, self.matrix.shape))
        names = ", ".join(self.order.names)
        return f"FisherMatrix({shape}, {self.kind}, {self.reduction}, {self.order.kind}-major: {names})"
