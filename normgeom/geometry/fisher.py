"""The Fisher matrix of any model, exact: `F = mean_n J_n^T I_n J_n`.

`J_n` is the derivative of the natural parameters of case n, `I_n` the Fisher information of y about them; for
an exponential family in canonical form `I_n = Cov[y | x_n] / phi^2` (Ba et al. 2016, section 5.2). The
expectation over y is taken in closed form through a root of `I_n`, never by sampling unless the name says so.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from normgeom.geometry import cotangents
from normgeom.geometry.arguments import check_count, check_generator, detached
from normgeom.geometry.closed_form import closed_form_fisher
from normgeom.geometry.evaluator import evaluator
from normgeom.geometry.factors import case_traces, squares
from normgeom.geometry.jacobian import has_closed_form
from normgeom.geometry.matrix import FisherMatrix, Kind
from normgeom.geometry.routes import Route
from normgeom.geometry.run import Reduction, Run, refuse_if_not_finite
from normgeom.processes import place, total


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

    Under torchrun, with `torch.distributed` initialized, every process takes its share of the cases and all
    get the whole matrix. Source: Ba et al. 2016, eq. 12 to 14.

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
    if closed_form_applies(model, data, family, blocks, chunk_size, route) and place()[1] == 1:
        return closed_form_fisher(model, detached(params), data, reduction=reduction, order=order)
    subject = evaluator(model, params, family=family, blocks=blocks)
    run = Run(subject, cotangents.exact(subject.family), chunk_size, route, progress, shared=True)
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
    if targets is not None and not isinstance(targets, torch.Tensor):
        raise TypeError(
            f"targets must be a tensor; got {type(targets).__name__}. Wrap it in torch.tensor(...)."
        )
    subject = evaluator(model, params, family=family, blocks=blocks)
    run = Run(subject, None, chunk_size, route, progress, targets, shared=True)
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

    Unbiased for `fisher`; the error falls as 1/sqrt(cases * samples). Every process of a distributed run
    computes the whole, so that the samples are those of one process.
    """
    check_count("samples", samples)
    check_generator(generator)
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
    run = Run(subject, cotangents.exact(subject.family), chunk_size, route, progress, shared=True)
    flat = torch.zeros(subject.size, dtype=subject.dtype, device=subject.device)
    for block in run.blocks(data):
        flat += squares(block.rows, subject.size)
    parts = (total(flat) * run.scale(reduction)).split([v.numel() for v in subject.params.values()])
    found = {k: part.view(v.shape) for (k, v), part in zip(subject.params.items(), parts, strict=True)}
    refuse_if_not_finite(found)
    return found


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
    run = Run(subject, cotangents.exact(subject.family), chunk_size, route, progress, shared=True)
    trace = torch.zeros((), dtype=subject.dtype, device=subject.device)
    for block in run.blocks(data):
        trace += case_traces(block.rows).sum()
    refuse_if_not_finite({", ".join(subject.params): total(trace)})
    return trace * run.scale(reduction)


def closed_form_applies(model: Any, data: Any, *options: Any) -> bool:
    """Whether a GLM's closed form answers the call: data in memory, no option of the general route."""
    plain = all(option is None for option in options)
    return plain and isinstance(data, torch.Tensor) and has_closed_form(model)
