"""One Fisher matrix a case, held as factors: `F_n = K_n^T K_n`, `K_n = S_n^T J_n`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from normgeom.geometry import cotangents
from normgeom.geometry.arguments import detached
from normgeom.geometry.evaluator import evaluator
from normgeom.geometry.factors import (
    Factor,
    Rows,
    case_matrices,
    case_traces,
    concatenate,
    dense_rows,
)
from normgeom.geometry.fisher import closed_form_applies
from normgeom.geometry.gram import GramSum
from normgeom.geometry.matrix import FisherMatrix, Kind, ParameterOrder, WrittenOut
from normgeom.geometry.memory import fresh
from normgeom.geometry.per_case import closed_form_per_case
from normgeom.geometry.routes import Block, Route
from normgeom.geometry.run import Run, refuse_if_not_finite, refuse_if_too_large


@dataclass(frozen=True, eq=False)
class PerExampleFisher(WrittenOut):
    """The Fisher matrix of every case, as factors; written out only when asked.

    `rows` are the factors of `K_n`, and `F_n = K_n^T K_n`. `len(F)` is the number of cases, `F[n]` the matrix
    of one case, `F.materialize(out=None)` all of them, `F.mean()` and `F.sum()` the matrices over the cases.

    >>> from normgeom.geometry.families import Gaussian
    >>> model = lambda params, x: x @ params["weight"].T
    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> F = per_example_fisher(model, {"weight": torch.zeros(1, 2)}, x, family=Gaussian())
    >>> F[1].matrix
    tensor([[ 9., 12.],
            [12., 16.]])
    >>> F.traces
    tensor([ 5., 25.])
    """

    rows: Rows
    order: ParameterOrder
    kind: str = "exact"

    def __len__(self) -> int:
        """The number of cases."""
        return len(self.rows[0].left)

    def __getitem__(self, case: int) -> FisherMatrix:
        """Return the Fisher matrix of one case."""
        if not -len(self) <= case < len(self):
            raise IndexError(f"case must be below {len(self)}; got {case}.")
        index = slice(case % len(self), case % len(self) + 1)
        rows = [
            Factor(f.left[index], None if f.right is None else f.right[index], f.pieces, f.height)
            for f in self.rows
        ]
        return FisherMatrix(self._written(rows, None)[0], self.order, self.kind, "none")

    def __iter__(self) -> Iterator[FisherMatrix]:
        """Iterate over the matrices of the cases, one at a time."""
        return (self[n] for n in range(len(self)))

    @property
    def matrix(self) -> torch.Tensor:
        """All matrices written out, (cases, parameters, parameters)."""
        return self.materialize().matrix

    @property
    def device(self) -> torch.device:
        """Where the factors lie."""
        return self.rows[0].left.device

    @property
    def nbytes(self) -> int:
        """The bytes that the factors take."""
        tensors = [t for f in self.rows for t in (f.left, f.right) if t is not None]
        return sum(t.nelement() * t.element_size() for t in tensors)

    @property
    def jacobian(self) -> torch.Tensor:
        """The whitened Jacobian rows `K_n` written out: (cases, rows, parameters)."""
        dense = dense_rows(self.rows, len(self.order))
        return dense[..., self.order.permutation.to(dense.device)]

    @property
    def traces(self) -> torch.Tensor:
        """The trace of each case's matrix: (cases,)."""
        return case_traces(self.rows)

    def materialize(self, *, out: torch.Tensor | None = None) -> FisherMatrix:
        """Return all matrices, (cases, parameters, parameters), written into `out` if it is given."""
        return FisherMatrix(self._written(self.rows, out), self.order, self.kind, "none")

    def mean(self) -> FisherMatrix:
        """Return the mean over cases."""
        return self._reduced(1 / len(self), "mean")

    def sum(self) -> FisherMatrix:
        """Return the sum over cases."""
        return self._reduced(1.0, "sum")

    def _reduced(self, scale: float, reduction: str) -> FisherMatrix:
        total = GramSum()
        total.add(self.rows)
        return FisherMatrix(total.matrix(self.order.permutation, scale), self.order, self.kind, reduction)

    def _written(self, rows: Rows, out: torch.Tensor | None) -> torch.Tensor:
        left = rows[0].left
        shape = (len(left), len(self.order), len(self.order))
        if out is None:
            refuse_if_too_large(len(self.order), left.dtype, left.device, matrices=len(left))
            out = fresh(left, *shape)
        if tuple(out.shape) != shape or out.dtype != left.dtype or not out.is_contiguous():
            raise ValueError(
                f"out must be contiguous, of shape {shape} and type {left.dtype}; "
                f"got {tuple(out.shape)} and {out.dtype}."
            )
        return case_matrices(rows, self.order.permutation, out)

    def __repr__(self) -> str:
        """One line: cases, parameters, and what the factors take."""
        return (
            f"PerExampleFisher({len(self)} cases, {len(self.order)} parameters, {self.kind}, "
            f"factors {self.nbytes / 1e3:.0f} kB)"
        )


class CaseMatrices(Protocol):
    """What every result of `per_example_fisher` offers, whether factors come from a network or a GLM."""

    @property
    def matrix(self) -> torch.Tensor:
        """All matrices written out, (cases, parameters, parameters)."""

    @property
    def nbytes(self) -> int:
        """The bytes that the factors take."""

    def __len__(self) -> int:
        """The number of cases."""

    def __getitem__(self, case: int, /) -> FisherMatrix:
        """Return the Fisher matrix of one case."""

    def mean(self) -> FisherMatrix:
        """Return the mean over cases."""

    def sum(self) -> FisherMatrix:
        """Return the sum over cases."""

    def materialize(self, *, out: torch.Tensor | None = None) -> FisherMatrix:
        """Return all matrices, (cases, parameters, parameters), written into `out` if it is given."""


def per_example_fisher(
    model: Any,
    params: Mapping[str, torch.Tensor],
    data: Any,
    *,
    family: Any = None,
    blocks: Sequence[str] | None = None,
    order: Kind = "neuron",
    chunk_size: int | None = None,
    route: Route | None = None,
    progress: bool = True,
) -> Any:
    """Return the exact Fisher matrix of every case, `F_n = J_n^T I_n J_n`, held as factors.

    A `PerExampleFisher`, or for a GLM the `PerCaseFisher` of its closed form; both are `CaseMatrices`. For a
    model that couples its cases (batch norm in training mode) `J_n` is the derivative of the outputs of
    case n inside the batch given. Arguments as for `fisher`.
    """
    if order == "neuron" and closed_form_applies(model, data, family, blocks, chunk_size, route):
        return closed_form_per_case(model, detached(params), data)
    subject = evaluator(model, params, family=family, blocks=blocks)
    run = Run(subject, cotangents.exact(subject.family), chunk_size, route, progress)
    labels = ParameterOrder.of(subject.params, kind=order)
    rows = rows_by_case(list(run.blocks(data)))
    refuse_if_not_finite({", ".join(subject.params): case_traces(rows)})
    return PerExampleFisher(rows, labels)


def rows_by_case(blocks: list[Block]) -> Rows:
    """Join blocks: those of the same cases along rows, then all along cases."""
    parts: list[tuple[slice, list[Rows]]] = []
    for block in blocks:
        if parts and parts[-1][0] == block.index and block.first > 0:
            parts[-1][1].append(block.rows)
        else:
            parts.append((block.index, [block.rows]))
    return concatenate(concatenate(rows, along_rows=True) for _, rows in parts)
