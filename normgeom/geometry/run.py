"""One pass over the data: the route is chosen on the first batch, then rows come chunk by chunk."""

import os
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch

from normgeom.geometry import cotangents
from normgeom.geometry.arguments import check_count
from normgeom.geometry.batches import batches, case_slices
from normgeom.geometry.evaluator import Evaluator, cases, take
from normgeom.geometry.factors import case_bytes
from normgeom.geometry.families.base import NotFinite
from normgeom.geometry.gram import GramSum
from normgeom.geometry.kernels import PlainKernels
from normgeom.geometry.matrix import FisherMatrix, Kind, ParameterOrder
from normgeom.geometry.progress import tracked
from normgeom.geometry.routes import Block, Route, choose, route_blocks
from normgeom.geometry.sharing import refuse_unshareable
from normgeom.processes import place, total

Reduction = Literal["mean", "sum"]
BUDGET = 2**28
"""Bytes of Jacobian rows held at once when `chunk_size` is not given."""


class Run:
    """Yields the blocks of rows of all cases (`shared`: of this process's), and counts the cases of all."""

    def __init__(
        self,
        model: Evaluator,
        make: cotangents.Maker | None,
        chunk_size: int | None,
        route: Route | None,
        progress: bool,
        targets: torch.Tensor | None = None,
        *,
        probe: bool = True,
        shared: bool = False,
    ) -> None:
        if chunk_size is not None:
            check_count("chunk_size", chunk_size)
        self.model, self.make, self.chunk_size, self.route = model, make, chunk_size, route
        self.progress, self.targets, self.cases, self.probe = progress, targets, 0, probe
        self.rank, self.world = place() if shared else (0, 1)

    def blocks(self, data: Any) -> Iterator[Block]:
        """Yield the rows of all cases, chunk by chunk."""
        if self.world > 1:
            refuse_unshareable(data)
        stream = tracked(self._chunks(data), total=None, label="Fisher rows", show=self.progress)
        with self.model.untouched():
            yield from stream

    def _chunks(self, data: Any) -> Iterator[Block]:
        for inputs, targets in batches(data, self.model.device):
            make = self._maker(targets, cases(inputs))
            if self.cases == 0 and self.probe:
                self.route = choose(self.model, inputs, route=self.route)
            chunk, row_chunk = self._sizes(inputs, make)
            for index in self._share(inputs, chunk):
                yield from route_blocks(
                    self.model, inputs, make, route=self.route or "vmap", index=index, row_chunk=row_chunk
                )
            self.cases += cases(inputs)
        if self.cases == 0:
            raise ValueError("data must hold at least one case; got none.")

    def _share(self, inputs: Any, chunk: int) -> list[slice]:
        """The slices of this process; coupled cases stay together."""
        if self.world == 1:
            return case_slices(inputs, chunk)
        each = cases(inputs) if self.route == "batch" else -(-cases(inputs) // self.world)
        return case_slices(inputs, min(chunk, each))[self.rank :: self.world]

    def _maker(self, targets: Any, size: int) -> cotangents.Maker:
        if self.make is not None:
            return self.make
        if self.targets is not None:
            targets = self.targets[self.cases : self.cases + size].to(self.model.device)
        if targets is None or len(targets) != size:
            raise ValueError(
                f"the empirical Fisher needs one target for each of the {size} cases; got "
                f"{'none' if targets is None else len(targets)}. For the expectation over y use fisher()."
            )
        return cotangents.observed(self.model.family, targets)

    def _sizes(self, inputs: Any, make: cotangents.Maker) -> tuple[int, int]:
        """Cases and rows a chunk: the rows of all parameters fit in the budget."""
        first, route = slice(0, 1), self.route or "vmap"
        with torch.no_grad(), PlainKernels():
            eta = self.model(self.model.params, inputs if route == "batch" else take(inputs, first))
            count = make(eta, slice(0, len(eta))).count
        row_bytes = self.model.size * self.model.dtype.itemsize
        row_chunk = max(1, min(count, BUDGET // row_bytes))
        case = row_bytes * row_chunk
        if route == "layers":
            blocks = route_blocks(self.model, inputs, make, route=route, index=first, row_chunk=row_chunk)
            case = case_bytes(next(iter(blocks)).rows)
        return self.chunk_size or max(1, BUDGET // case), row_chunk

    def scale(self, reduction: Reduction) -> float:
        """What the sum over cases is multiplied by."""
        if reduction not in ("mean", "sum"):
            raise ValueError(f"reduction must be 'mean' or 'sum'; got {reduction!r}.")
        return 1.0 / self.cases if reduction == "mean" else 1.0

    def matrix(self, data: Any, reduction: Reduction, order: Kind, kind: str) -> FisherMatrix:
        """Return the sum or mean of `K_n^T K_n`."""
        labels = ParameterOrder.of(self.model.params, kind=order)
        refuse_if_too_large(len(labels), self.model.dtype, self.model.device)
        gram = GramSum()
        for block in self.blocks(data):
            gram.add(block.rows)
        if gram.rows:
            matrix = gram.matrix(labels.permutation, self.scale(reduction))
        else:  # more processes than cases
            matrix = torch.zeros(len(labels), len(labels), dtype=self.model.dtype, device=self.model.device)
        if self.world > 1:
            matrix = total(matrix)
        diagonal = matrix.diagonal()
        refuse_if_not_finite({n: diagonal[labels.positions(n).to(matrix.device)] for n in labels.names})
        return FisherMatrix(matrix, labels, kind, reduction)


def refuse_if_too_large(size: int, dtype: torch.dtype, device: torch.device, matrices: int = 1) -> None:
    """Raise an error, with an estimate, if matrices of this size do not fit in the memory there is."""
    needed = matrices * size**2 * dtype.itemsize
    if device.type == "cuda":
        present = torch.cuda.get_device_properties(device).total_memory
    else:
        present = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > present:
        raise ValueError(
            f"{matrices} Fisher matrix of {size} parameters needs {needed / 2**30:.1f} GiB, more than the "
            f"{present / 2**30:.1f} GiB of this device; choose blocks=[...], or use FisherOperator, "
            "fisher_diagonal or fisher_trace."
        )


def refuse_if_not_finite(squared: Mapping[str, torch.Tensor]) -> None:
    """Raise a ValueError that names the parameters whose derivatives, here squared, are not finite."""
    names = [name for name, value in squared.items() if not bool(value.isfinite().all())]
    if names:
        raise NotFinite(
            f"the derivatives must be finite, but those in {', '.join(names)} are not: a norm of something "
            "that is exactly constant, or an overflow of the type."
        )
