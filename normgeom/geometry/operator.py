"""The Fisher matrix as an operator: products, top eigenvalues, trace and diagonal, without the matrix."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from normgeom.geometry import cotangents
from normgeom.geometry.arguments import check_count
from normgeom.geometry.batches import batches, case_slices, first_batch
from normgeom.geometry.estimates import Estimate, random_signs
from normgeom.geometry.evaluator import Evaluator, cases, evaluator, take
from normgeom.geometry.factors import Rows, case_traces, dual
from normgeom.geometry.gram import GramSum
from normgeom.geometry.matrix import ParameterOrder
from normgeom.geometry.per_example import rows_by_case
from normgeom.geometry.products import BatchProduct, RowProduct, choose_mode
from normgeom.geometry.routes import Route, choose
from normgeom.geometry.run import BUDGET, Run, refuse_if_not_finite
from normgeom.geometry.sharing import refuse_unshareable
from normgeom.processes import place, total

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

DENSE = 4096
"""Up to this order, eigenvalues are those of a dense matrix: F, or the Gram matrix of its rows."""


class FisherOperator:
    """`v -> (F + damping I) v` for a model of any size; parameters are laid tensor-major.

    `F = mean_n J_n^T I_n J_n` (exact: the expectation over y is closed), Ba et al. 2016, section 5.2.
    Data held in memory is linearized once: as factors of its Jacobian rows where the model's parameters enter
    through linear layers and norms and the factors fit in `memory` bytes, otherwise as an autograd graph. A
    loader is streamed and linearized again for every product. Under `torchrun` every process takes its share
    of the cases (of the batches, for a loader), and results are those of one process.

    Args:
        model, params, data, family: as for `fisher`.
        damping: added to the diagonal.
        reduction: `mean` or `sum` over cases.
        chunk_size: cases of a tensor linearized at once; smaller ones bound memory and are linearized again
            for every product.
        memory: bytes that held factors may take.

    >>> from normgeom.geometry.families import Gaussian
    >>> model = lambda params, x: x @ params["weight"].T
    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> F = FisherOperator(model, {"weight": torch.zeros(1, 2)}, x, family=Gaussian(), damping=1.0)
    >>> F @ torch.tensor([1.0, 0.0])
    tensor([6., 7.])
    """

    def __init__(
        self,
        model: Any,
        params: Mapping[str, torch.Tensor],
        data: Any,
        *,
        family: Any = None,
        damping: float = 0.0,
        reduction: str = "mean",
        blocks: Any = None,
        chunk_size: int | None = None,
        memory: int = 4 * BUDGET,
    ) -> None:
        """Probe the model on the first batch and linearize what fits."""
        if not 0 <= damping < math.inf:
            raise ValueError(f"damping must not be negative, and finite; got {damping}.")
        if reduction not in ("mean", "sum"):
            raise ValueError(f"reduction must be 'mean' or 'sum'; got {reduction!r}.")
        if chunk_size is not None:
            check_count("chunk_size", chunk_size)
        refuse_unshareable(data)
        self.model: Evaluator = evaluator(model, params, family=family, blocks=blocks)
        self.data, self.damping, self.reduction = data, damping, reduction
        self.chunk_size, self.memory = chunk_size, memory
        first = first_batch(data, self.model.device)
        with self.model.untouched():
            self.route: Route = choose(self.model, first)
        self.rows: Rows | None = self._held_rows(first)
        self._mode = None if self.rows is not None else self._chosen_mode(first)
        self._held: BatchProduct | None = None
        self._cases = self._count(first)

    @property
    def shape(self) -> tuple[int, int]:
        """Parameters by parameters."""
        return self.model.size, self.model.size

    @property
    def order(self) -> ParameterOrder:
        """The labels of rows and columns: tensor-major, as `torch.nn.utils.parameters_to_vector`."""
        return ParameterOrder.of(self.model.params, kind="tensor")

    @property
    def dtype(self) -> torch.dtype:
        """The type of the parameters."""
        return self.model.dtype

    def __matmul__(self, vectors: Any) -> Any:
        """Return the product with a vector (parameters,), a matrix (parameters, k), or a dict like params."""
        if isinstance(vectors, Mapping):
            if set(vectors) != set(self.model.params):
                wanted = ", ".join(self.model.params)
                raise ValueError(f"a dict must have the names {wanted}; got {', '.join(vectors)}.")
            flat = torch.cat([vectors[name].reshape(-1) for name in self.model.params])
            return self._as_dict(self @ flat)
        if not isinstance(vectors, torch.Tensor):
            raise TypeError(
                f"vectors must be a tensor, or a dict like params; got {type(vectors).__name__}. "
                "to_scipy() takes arrays."
            )
        if vectors.shape[:1] != self.shape[:1] or vectors.ndim > 2:
            raise ValueError(
                f"vectors must have shape ({self.shape[0]},) or ({self.shape[0]}, k); "
                f"got {tuple(vectors.shape)}."
            )
        columns = vectors.detach().to(self.model.device, self.dtype)
        columns = columns[:, None] if vectors.ndim == 1 else columns
        with self.model.untouched():
            out = self._sum(columns)
        if self.reduction == "mean":
            out = out.div_(self._cases)
        if self.damping:
            out = out.add_(columns, alpha=self.damping)
        return out[:, 0] if vectors.ndim == 1 else out

    def to_scipy(self) -> "LinearOperator":
        """Return the operator for numpy arrays, in the type of the parameters."""
        # Imported where it is used, to keep `import normgeom` quick.
        from scipy.sparse.linalg import LinearOperator

        def product(array: np.ndarray) -> np.ndarray:
            return (self @ torch.from_numpy(np.ascontiguousarray(array))).cpu().numpy()

        kind = np.dtype(str(self.dtype).removeprefix("torch."))
        return LinearOperator(
            self.shape, matvec=lambda v: product(v.reshape(-1)), matmat=product, rmatvec=product, dtype=kind
        )

    def to_dense(self) -> torch.Tensor:
        """Return the matrix, column by column."""
        return self @ torch.eye(self.shape[0], dtype=self.dtype, device=self.model.device)

    def top_eigenvalues(self, k: int = 10) -> torch.Tensor:
        """Return the k largest eigenvalues, descending.

        With held rows and either few parameters or few rows (cases times outputs), all digits come from a
        dense eigenvalue problem: F itself, or the Gram matrix `K K^T` of the rows, which has the same nonzero
        eigenvalues. Otherwise from `scipy.sparse.linalg.eigsh`, to its tolerance.
        """
        if not 0 < k <= self.shape[0]:
            raise ValueError(f"k must be between 1 and the {self.shape[0]} parameters; got {k}.")
        small = self._small_matrix()
        if small is not None:
            values = torch.linalg.eigvalsh(small).flip(0)[:k] / (
                self._cases if self.reduction == "mean" else 1
            )
        elif k >= self.shape[0] - 1:
            return torch.linalg.eigvalsh(self.to_dense()).flip(0)[:k]
        else:
            from scipy.sparse.linalg import eigsh

            start = np.random.default_rng(0).standard_normal(self.shape[0])
            found = eigsh(self.to_scipy(), k, v0=start, return_eigenvectors=False)
            return torch.from_numpy(np.sort(found)[::-1].copy()).to(self.model.device, self.dtype)
        return torch.nn.functional.pad(values, (0, k - len(values))) + self.damping

    def trace(self, *, samples: int = 32, generator: torch.Generator) -> Estimate:
        """Return Hutchinson's estimate of the trace: the mean of `z^T (F + damping I) z`, z random signs.

        Source: Hutchinson 1989. The exact trace is `fisher_trace`.
        """
        return random_signs(self, lambda z, product: (z * product).sum(0), samples, generator)

    def diagonal(self, *, samples: int = 32, generator: torch.Generator) -> Estimate:
        """Return an estimate of the diagonal: the mean of `z * (F + damping I) z`, z random signs.

        Source: Bekas, Kokiopoulou and Saad 2007. The exact diagonal is `fisher_diagonal`.
        """
        return random_signs(self, lambda z, product: z * product, samples, generator)

    def _as_dict(self, flat: torch.Tensor) -> dict[str, torch.Tensor]:
        parts = flat.split([value.numel() for value in self.model.params.values()])
        pairs = zip(self.model.params.items(), parts, strict=True)
        return {name: part.view(value.shape) for (name, value), part in pairs}

    def _sum(self, columns: torch.Tensor) -> torch.Tensor:
        """The sum over all cases of all processes."""
        out: torch.Tensor | None = None
        for product in self._products():
            part = product(columns)
            out = part if out is None else out.add_(part)
        return total(torch.zeros_like(columns) if out is None else out)

    def _products(self) -> Iterator[BatchProduct]:
        """The products of this process's share; one that is held is made once."""
        if self._held is not None:
            yield self._held
            return
        if self.rows is not None:
            self._held = RowProduct(self.rows, self.model.size) if self.rows else None
            yield from [self._held] if self._held else []
            return
        assert self._mode is not None
        for inputs in self._share():
            product = self._mode(self.model, inputs)
            self.model.family.check(product.eta)
            if self._in_memory and self.chunk_size is None:
                self._held = product
            yield product

    @property
    def _in_memory(self) -> bool:
        return isinstance(self.data, torch.Tensor | tuple)

    def _share(self) -> Iterator[Any]:
        """The batches of this process."""
        rank, world = place()
        if not self._in_memory:
            for k, (inputs, _) in enumerate(batches(self.data, self.model.device)):
                if k % world == rank:
                    yield inputs
            return
        inputs = next(batches(self.data, self.model.device))[0]
        chunk = self.chunk_size or -(-cases(inputs) // world)
        whole = [slice(0, cases(inputs))]
        for index in (whole if self.route == "batch" else case_slices(inputs, chunk))[rank::world]:
            yield take(inputs, index)

    def _count(self, first: Any) -> int:
        if self._in_memory:
            return cases(first)
        with self.model.untouched():
            return sum(cases(inputs) for inputs, _ in batches(self.data))

    def _held_rows(self, inputs: Any) -> Rows | None:
        """The factors of this process's cases, if they fit; empty for a process without cases."""
        if not self._in_memory or self.chunk_size is not None or self.route == "batch":
            return None
        make = cotangents.exact(self.model.family)
        size = self._row_bytes(take(inputs, slice(0, 1)), make) * cases(inputs)
        if size > self.memory:
            return None
        shares = list(self._share())
        if not shares:
            return ()
        run = Run(self.model, make, None, self.route, False, probe=False)
        rows = rows_by_case(list(run.blocks(shares[0])))
        refuse_if_not_finite({", ".join(self.model.params): case_traces(rows)})
        return rows

    def _row_bytes(self, case: Any, make: cotangents.Maker) -> int:
        run = Run(self.model, make, 1, self.route, False, probe=False)
        with self.model.untouched():
            rows = rows_by_case(list(run.blocks(case)))
        return sum(t.nbytes for f in rows for t in (f.left, f.right) if t is not None)

    def _chosen_mode(self, inputs: Any) -> Any:
        probe = inputs if self.route == "batch" else take(inputs, slice(0, 4))
        with self.model.untouched():
            return choose_mode(self.model, probe)

    def _small_matrix(self) -> torch.Tensor | None:
        """F or the Gram matrix of its rows times the number of cases, whichever is small; None if neither."""
        if not self.rows or place()[1] > 1:
            return None
        count = self.rows[0].left.shape[0] * self.rows[0].left.shape[1]
        if count <= min(DENSE, self.shape[0]):
            return dual(self.rows)
        if self.shape[0] > DENSE:
            return None
        gram = GramSum()
        gram.add(self.rows)
        return gram.matrix(torch.arange(self.shape[0]))
