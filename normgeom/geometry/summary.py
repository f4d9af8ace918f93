"""The Fisher metric of a model on a batch, on one page: blocks, trace, top eigenvalues, null space."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from normgeom.geometry.arguments import check_inputs
from normgeom.geometry.evaluator import cases, evaluator
from normgeom.geometry.fisher import closed_form_applies, fisher, fisher_diagonal
from normgeom.geometry.matrix import FisherMatrix
from normgeom.geometry.null_space import null_space
from normgeom.geometry.operator import DENSE, FisherOperator
from normgeom.geometry.routes import choose


@dataclass(frozen=True)
class BlockSummary:
    """The diagonal block of one parameter: its shape, trace and, where F is written out, Frobenius norm."""

    name: str
    shape: tuple[int, ...]
    trace: float
    frobenius: float | None


@dataclass(frozen=True)
class FisherSummary:
    """What `fisher_summary` found; the mean over cases, exact expectation over y.

    Attributes:
        blocks: one for each parameter that is not frozen.
        trace: the trace of F.
        top: the largest eigenvalues, descending.
        rank, nullity: of F, and `gap` the smallest eigenvalue kept over the largest dropped; None where F is
            not written out.
        route: how the derivatives were found, `closed form` for a GLM.
        mode: `train` or `eval` of a module, else empty.
    """

    model: str
    family: str
    cases: int
    parameters: int
    dtype: str
    device: str
    route: str
    blocks: tuple[BlockSummary, ...]
    trace: float
    top: tuple[float, ...]
    rank: int | None
    nullity: int | None
    gap: float | None
    mode: str = ""

    HEADER = ("parameter", "shape", "trace", "share", "Frobenius")

    def cells(self) -> list[list[str]]:
        """Return the table of the blocks as text; the share is that of the trace."""
        rows = []
        for block in self.blocks:
            share = 100 * block.trace / self.trace if self.trace else 0.0
            size = "-" if block.frobenius is None else f"{block.frobenius:.4g}"
            shape = " x ".join(map(str, block.shape)) or "1"
            rows.append([block.name, shape, f"{block.trace:.4g}", f"{share:.1f} %", size])
        return rows

    def lines(self) -> list[str]:
        """Return what stands around the table, one fact a line."""
        lines = [
            f"{self.model}, {self.family}" + (f", {self.mode} mode" if self.mode else ""),
            f"{self.cases} cases, {self.parameters} parameters, {self.dtype} on {self.device}, "
            f"route: {self.route}",
            f"trace {self.trace:.6g}",
            f"largest eigenvalues {'  '.join(f'{value:.4g}' for value in self.top)}",
        ]
        if self.rank is None:
            return [*lines, f"rank not computed: F is written out up to {DENSE} parameters"]
        return [*lines, f"rank {self.rank}, null space of dimension {self.nullity}{self._gap_in_words()}"]

    def _gap_in_words(self) -> str:
        if not self.nullity or self.gap is None:
            return ""
        sure = "" if self.gap > 100 else ": no clear gap, the rank is that of this precision"
        return f" (eigenvalues apart by a factor {self.gap:.1e}{sure})"

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers for JSON."""
        return asdict(self)


def fisher_summary(
    model: Any, params: Mapping[str, torch.Tensor], data: Any, *, family: Any = None, top: int = 10
) -> FisherSummary:
    """Return the summary of the exact Fisher matrix of a model on a batch.

    Up to 4096 parameters F is written out; beyond, blocks come from the exact diagonal and eigenvalues from
    `FisherOperator`, and the rank is left out.

    Args:
        model: a NormalizedGLM, an `nn.Module`, or a function (params, data) -> natural parameters.
        params: the tensors by name.
        data: one batch in memory, cases first.
        family: the distribution of y; a NormalizedGLM has its own.
        top: how many eigenvalues.

    >>> from normgeom.geometry.families import Gaussian
    >>> model = lambda params, x: x @ params["weight"].T
    >>> x = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
    >>> found = fisher_summary(model, {"weight": torch.zeros(1, 2)}, x, family=Gaussian())
    >>> found.trace, found.rank, found.nullity
    (12.5, 1, 1)
    """
    if top < 1:
        raise ValueError(f"top must be at least 1 eigenvalue; got {top}.")
    subject = evaluator(model, params, family=family)
    check_inputs(data)
    closed = closed_form_applies(model, data, None)
    with subject.untouched():
        route = None if closed else choose(subject, data)
    written = subject.size <= DENSE
    measure = _from_matrix if written else _from_operator
    blocks, values, null = measure(model, params, data, family, route, min(top, subject.size))
    return FisherSummary(
        model=_name(model),
        family=repr(subject.family),
        cases=cases(data),
        parameters=subject.size,
        dtype=str(subject.dtype).removeprefix("torch."),
        device=str(subject.device),
        route="closed form" if closed else str(route),
        blocks=blocks,
        trace=sum(block.trace for block in blocks),
        top=tuple(map(float, values)),
        rank=null[0],
        nullity=null[1],
        gap=null[2],
        mode=_mode(model),
    )


Measured = tuple[
    tuple[BlockSummary, ...], torch.Tensor, tuple[int, int, float | None] | tuple[None, None, None]
]


def _from_matrix(
    model: Any, params: Mapping[str, torch.Tensor], data: Any, family: Any, route: Any, top: int
) -> Measured:
    given = {} if route is None else {"family": family, "route": route}
    F = fisher(model, params, data, **given)
    null = null_space(F)
    gap = null.gap if null.gap < float("inf") else None
    return tuple(_block(F, *shape) for shape in F.order.shapes), null.eigenvalues.flip(0)[:top], (
        null.rank, null.nullity, gap
    )  # fmt: skip


def _from_operator(
    model: Any, params: Mapping[str, torch.Tensor], data: Any, family: Any, route: Any, top: int
) -> Measured:
    diagonal = fisher_diagonal(model, params, data, family=family, route=route)
    blocks = tuple(
        BlockSummary(name, tuple(part.shape), float(part.sum()), None) for name, part in diagonal.items()
    )
    operator = FisherOperator(model, params, data, family=family)
    return blocks, operator.top_eigenvalues(top), (None, None, None)


def _block(F: FisherMatrix, name: str, shape: tuple[int, ...]) -> BlockSummary:
    block = F[name]
    return BlockSummary(name, shape, float(block.trace()), float(block.norm()))


def _mode(model: Any) -> str:
    if not isinstance(model, torch.nn.Module):
        return ""
    return "train" if model.training else "eval"


def _name(model: Any) -> str:
    """The class of a module, the norm of a GLM, the name of a function."""
    if hasattr(model, "norm") and hasattr(model, "family") and not isinstance(model, torch.nn.Module):
        eps = f", eps={model.eps:g}" if model.eps else ""
        return f"{type(model).__name__}({type(model.norm).__name__}{eps})"
    return getattr(model, "__name__", type(model).__name__)
