"""The Fisher matrix of any model, exact: `F = mean_n J_n^T I_n J_n`.

`J_n` is the derivative of the natural parameters of case n, `I_n` the Fisher information of y about them; for
an exponential family in canonical form `I_n = Cov[y | x_n] / phi^2` (Ba et al. 2016, section 5.2). The
expectation over y is taken in closed form through a root of `I_n`, never by sampling unless the name says so.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import torch

from normgeom.geometry import cotangents
from normgeom.geometry.arguments import detached
from normgeom.geometry.batches import batches, case_slices
from normgeom.geometry.closed_form import closed_form_fisher
from normgeom.geometry.evaluator import Evaluator, cases, evaluator, take
from normgeom.geometry.factors import case_bytes, case_traces, squares
from normgeom.geometry.gram import GramSum
from normgeom.geometry.jacobian import has_closed_form
from normgeom.geometry.kernels import PlainKernels
from normgeom.geometry.matrix import FisherMatrix, Kind, ParameterOrder
from normgeom.geometry.progress import tracked
from normgeom.geometry.routes import Block, Route, choose, route_blocks

Reduction = Literal["mean", "sum"]
BUDGET = 2**28
"""Bytes of Jacobian rows held at once when `chunk_size` is not given."""


def fisher(
    model: Any,
    params: Mapping[str, torch.Tensor],
    data: Any,
    *,
    family: Any = None,
    reduction: Reduction = "mean",
    blocks: Sequence[str] | None = None,
    order: Kind = "neuron",
    chunk_size: int | None = None,
    route: Route | None = None,
    progress: bool = True,
) -> FisherMatrix:
    """Return the exact Fisher matrix, `F = mean_n J_n^T I_n J_n`; shape (parameters, parameters).

    Source: Ba et al. 2016, eq. 12 to 14.

    Args:
        model: a NormalizedGLM (which takes its closed form), an `nn.Module` (touched through
            `functional_call` and left as found), or a function (params, data) -> natural parameters.
            Outputs have shape (cases, ..., outputs); middle axes are independent positions, whose
            information adds up.
        params: the tensors by name. A module's frozen parameters (`requires_grad=False`) are left out.
        data: a tensor, a tuple of tensors (several inputs), or an iterable of batches (inputs, targets).
        family: the distribution of y, for example `Categorical()`; a NormalizedGLM has its own.
        reduction: `mean` or `sum` over cases.
        blocks: names of the parameters wanted, all others held constant.
        order: `neuron` (the paper's) or `tensor`; see `ParameterOrder`.
        chunk_size: cases whose Jacobian rows are held at once; default: what fits in 256 MB.
        route: how the rows are found, see `routes`; default: the fastest that is right for the model.
        progress: whether a run that lasts shows a bar on a terminal.

    Raises:
        ValueError: if the model is random (active dropout), the outputs have the wrong shape, or the matrix
            does not fit in memory.

    For a linear model with Gaussian outputs, F is the mean of `x x^T` over the dispersion:

    >>> from normgeom.geometry.families import Gaussian
    >>> model = lambda params, x: x @ params["weight"].T
    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> fisher(model, {"weight": torch.zeros(1, 2)}, x, family=Gaussian(dispersion=0.25)).matrix
    tensor([[20., 28.],
            [28., 40.]])
    """
    if closed_form_applies(model, data, family, blocks, chunk_size, route):
        return closed_form_fisher(model, detached(params), data, reduction=reduction, order=order)
    subject = evaluator(model, params, family=family, blocks=blocks)
    run = Run(subject, cotangents.exact(subject.family), chunk_size, route, progress)
    return run.matrix(data, reduction, order, "exact")


def empirical_fisher(
    model: Any,
    params: Mapping[str, torch.Tensor],
    data: Any,
    targets: torch.Tensor | None = None,
    *,
    family: Any = None,
    reduction: Reduction = "mean",
    blocks: Sequence[str] | None = None,
    order: Kind = "neuron",
    chunk_size: int | None = None,
    route: Route | None = None,
    progress: bool = True,
) -> FisherMatrix:
    """Return the empirical Fisher matrix: the mean outer product of the gradients at the observed targets.

    `mean_n g_n g_n^T`, `g_n = d log p(y_n | x_n) / d theta`. It is not the Fisher matrix: y is data, not an
    expectation under the model (Kunstner et al. 2019). Targets come with the batches, or as a tensor.

    >>> from normgeom.geometry.families import Gaussian
    >>> model = lambda params, x: x @ params["weight"].T
    >>> x, y = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0]])
    >>> empirical_fisher(model, {"weight": torch.zeros(1, 2)}, x, y, family=Gaussian()).matrix
    tensor([[ 9., 18.],
            [18., 36.]])
    """
    subject = evaluator(model, params, family=family, blocks=blocks)
    run = Run(subject, None, chunk_size, route, progress, targets)
    found = run.matrix(data, reduction, order, "empirical")
    if targets is not None and len(targets) != run.cases:
        raise ValueError(f"there must be one target a case; got {len(targets)} for {run.cases} cases.")
    return found


def monte_carlo_fisher(
    model: Any,
    params: Mapping[str, torch.Tensor],
    data: Any,
    *,
    generator: torch.Generator,
    samples: int = 1,
    family: Any = None,
    reduction: Reduction = "mean",
    blocks: Sequence[str] | None = None,
    order: Kind = "neuron",
    chunk_size: int | None = None,
    route: Route | None = None,
    progress: bool = True,
) -> FisherMatrix:
    """Return the Monte Carlo Fisher matrix: y sampled from the model, `samples` times a case.

    Unbiased for `fisher`; the error falls as 1/sqrt(cases * samples).
    """
    subject = evaluator(model, params, family=family, blocks=blocks)
    make = cotangents.sampled(subject.family, samples, generator)
    run = Run(subject, make, chunk_size, route, progress)
    return run.matrix(data, reduction, order, f"Monte Carlo ({samples} samples a case)")


def fisher_diagonal(
    model: Any,
    params: Mapping[str, torch.Tensor],
    data: Any,
    *,
    family: Any = None,
    reduction: Reduction = "mean",
    blocks: Sequence[str] | None = None,
    chunk_size: int | None = None,
    route: Route | None = None,
    progress: bool = True,
) -> dict[str, torch.Tensor]:
    """Return the exact diagonal of the Fisher matrix as tensors shaped like the parameters.

    The matrix is never formed. Arguments as for `fisher`.
    """
    subject = evaluator(model, params, family=family, blocks=blocks)
    run = Run(subject, cotangents.exact(subject.family), chunk_size, route, progress)
    flat = torch.zeros(subject.size, dtype=subject.dtype, device=subject.device)
    for block in run.blocks(data):
        flat += squares(block.rows, subject.size)
    parts = (flat * run.scale(reduction)).split([v.numel() for v in subject.params.values()])
    return {name: part.view(v.shape) for (name, v), part in zip(subject.params.items(), parts, strict=True)}


def fisher_trace(
    model: Any,
    params: Mapping[str, torch.Tensor],
    data: Any,
    *,
    family: Any = None,
    reduction: Reduction = "mean",
    blocks: Sequence[str] | None = None,
    chunk_size: int | None = None,
    route: Route | None = None,
    progress: bool = True,
) -> torch.Tensor:
    """Return the exact trace of the Fisher matrix, without the matrix. Arguments as for `fisher`."""
    subject = evaluator(model, params, family=family, blocks=blocks)
    run = Run(subject, cotangents.exact(subject.family), chunk_size, route, progress)
    total = torch.zeros((), dtype=subject.dtype, device=subject.device)
    for block in run.blocks(data):
        total += case_traces(block.rows).sum()
    return total * run.scale(reduction)


def closed_form_applies(model: Any, data: Any, *options: Any) -> bool:
    """Whether a GLM's closed form answers the call: data in memory, no option of the general route."""
    plain = all(option is None for option in options)
    return plain and isinstance(data, torch.Tensor) and has_closed_form(model)


class Run:
    """One pass over the data: chooses the route on the first batch, yields blocks of rows, counts cases."""

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
    ) -> None:
        if chunk_size is not None and chunk_size < 1:
            raise ValueError(f"chunk_size must be at least 1 case; got {chunk_size}.")
        self.model, self.make, self.chunk_size, self.route = model, make, chunk_size, route
        self.progress, self.targets, self.cases, self.probe = progress, targets, 0, probe

    def blocks(self, data: Any) -> Iterator[Block]:
        """Yield the rows of all cases, chunk by chunk."""
        stream = tracked(self._chunks(data), total=None, label="Fisher rows", show=self.progress)
        with self.model.untouched():
            yield from stream

    def _chunks(self, data: Any) -> Iterator[Block]:
        for inputs, targets in batches(data, self.model.device):
            make = self._maker(targets, cases(inputs))
            if self.cases == 0 and self.probe:
                self.route = choose(self.model, inputs, route=self.route)
            chunk, row_chunk = self._sizes(inputs, make)
            for index in case_slices(inputs, chunk):
                yield from route_blocks(
                    self.model, inputs, make, route=self.route or "vmap", index=index, row_chunk=row_chunk
                )
            self.cases += cases(inputs)
        if self.cases == 0:
            raise ValueError("data must hold at least one case; got none.")

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
        total = GramSum()
        for block in self.blocks(data):
            total.add(block.rows)
        matrix = total.matrix(labels.permutation, self.scale(reduction))
        _refuse_if_not_finite(matrix, labels)
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


def _refuse_if_not_finite(matrix: torch.Tensor, order: ParameterOrder) -> None:
    diagonal = matrix.diagonal()
    if bool(diagonal.isfinite().all()):
        return
    names = [n for n in order.names if not diagonal[order.positions(n).to(matrix.device)].isfinite().all()]
    raise ValueError(
        f"the derivatives must be finite, but those in {', '.join(names)} are not: a norm of something that "
        "is exactly constant, or an overflow of the type."
    )
