"""Products with the Fisher matrix of one batch, `sum_n J_n^T I_n J_n v`, without the matrix.

* `RowProduct` holds the whitened Jacobian rows as factors: two matrix products a layer.
* `ReverseProduct` holds the graph of `u -> J^T u`, which is linear in u: its own derivative is `J v`.
  It works where forward mode is missing.
* `ForwardProduct` is `torch.func.jvp` and `vjp`, recomputed each time.

The last two are taken only after `<u, J v> = <J^T u, v>` holds for random u and v.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from normgeom.geometry.evaluator import Evaluator, refuse_cut_graph
from normgeom.geometry.factors import Rows, apply, apply_transpose
from normgeom.geometry.kernels import PlainKernels

Tensors = Sequence[torch.Tensor]


class BatchProduct(Protocol):
    """The sum over the cases of one batch."""

    def __call__(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return `sum_n F_n v` for vectors (parameters, k), tensor-major."""


@dataclass(frozen=True, eq=False)
class RowProduct:
    """`K^T (K v)` with the rows K held as factors."""

    rows: Rows
    size: int

    def __call__(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the product with each column."""
        products = [apply_transpose(self.rows, apply(self.rows, v), self.size) for v in vectors.unbind(1)]
        return products[0][:, None] if len(products) == 1 else torch.stack(products, 1)


class _Linearized:
    """What the two modes of differentiation share: one column at a time through J, I and J^T."""

    def __init__(self, model: Evaluator, inputs: Any) -> None:
        self.model, self.inputs = model, inputs
        self.shapes = [value.shape for value in model.params.values()]
        self.eta: torch.Tensor

    def jvp(self, tangents: Tensors) -> torch.Tensor:
        """Return `J v`, of the shape of the outputs."""
        raise NotImplementedError

    def vjp(self, cotangent: torch.Tensor) -> Tensors:
        """Return `J^T u`, of the shapes of the parameters."""
        raise NotImplementedError

    def __call__(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the product with each column."""
        return torch.stack([self._column(column) for column in vectors.unbind(1)], 1)

    def _column(self, vector: torch.Tensor) -> torch.Tensor:
        output = self.model.family.fisher_product(self.eta, self.jvp(self._split(vector)))
        return torch.cat([part.to_dense().reshape(-1) for part in self.vjp(output)])

    def _split(self, vector: torch.Tensor) -> Tensors:
        parts = vector.split([shape.numel() for shape in self.shapes])
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def adjoint_error(self) -> float:
        """Return the relative difference of `<u, J v>` and `<J^T u, v>` for random u and v."""
        generator = torch.Generator().manual_seed(0)
        draw = lambda shape: torch.randn(shape, generator=generator, dtype=torch.float64).to(self.eta)  # noqa: E731
        v, u = [draw(shape) for shape in self.shapes], draw(self.eta.shape)
        forward = self.jvp(v) * u
        pairs = [(g.to_dense() * t).sum() for g, t in zip(self.vjp(u), v, strict=True)]
        scale = forward.norm() + torch.stack(pairs).norm() + torch.finfo(self.eta.dtype).tiny
        return float(((forward.sum() - torch.stack(pairs).sum()) / scale).abs())


class ReverseProduct(_Linearized):
    """`J v` as the derivative of `u -> J^T u`, the graph held for further products."""

    def __init__(self, model: Evaluator, inputs: Any) -> None:
        super().__init__(model, inputs)
        self.leaves = [value.detach().requires_grad_() for value in model.params.values()]
        with torch.enable_grad(), PlainKernels():
            self.graph = model(dict(zip(model.params, self.leaves, strict=True)), inputs)
            self.seed = torch.zeros_like(self.graph, requires_grad=True)
            self.linear = torch.autograd.grad(
                self.graph, self.leaves, self.seed, create_graph=True, allow_unused=True,
                materialize_grads=True,
            )  # fmt: skip
        self.used = [k for k, g in enumerate(self.linear) if g.requires_grad]
        self.eta = self.graph.detach()

    def jvp(self, tangents: Tensors) -> torch.Tensor:
        """Return `J v`."""
        (out,) = torch.autograd.grad(
            [self.linear[k] for k in self.used],
            self.seed,
            [tangents[k] for k in self.used],
            retain_graph=True,
        )
        return out

    def vjp(self, cotangent: torch.Tensor) -> Tensors:
        """Return `J^T u`."""
        return torch.autograd.grad(
            self.graph, self.leaves, cotangent, retain_graph=True, allow_unused=True, materialize_grads=True
        )


class ForwardProduct(_Linearized):
    """`torch.func.jvp`, and `vjp` with its graph held."""

    def __init__(self, model: Evaluator, inputs: Any) -> None:
        super().__init__(model, inputs)
        with PlainKernels():
            self.eta, self.pull = torch.func.vjp(lambda p: model(p, inputs), model.params)[:2]
        self.eta = self.eta.detach()

    def jvp(self, tangents: Tensors) -> torch.Tensor:
        """Return `J v`."""
        named = dict(zip(self.model.params, tangents, strict=True))
        with PlainKernels(), warnings.catch_warnings():
            # torch registers some of its forward rules through torch.jit.script, on first use.
            warnings.filterwarnings("ignore", message=".*torch.jit.script.*", category=DeprecationWarning)
            out = torch.func.jvp(lambda p: self.model(p, self.inputs), (self.model.params,), (named,))
        return out[1]

    def vjp(self, cotangent: torch.Tensor) -> Tensors:
        """Return `J^T u`."""
        return list(self.pull(cotangent)[0].values())


MODES: tuple[type[_Linearized], ...] = (ReverseProduct, ForwardProduct)


def choose_mode(model: Evaluator, inputs: Any) -> type[_Linearized]:
    """Return the first mode of differentiation whose `J v` is the adjoint of `J^T u` on these inputs.

    Raises:
        ValueError: if none is.
    """
    reasons = []
    for mode in MODES:
        try:
            error = mode(model, inputs).adjoint_error()
        except (RuntimeError, NotImplementedError) as problem:
            refuse_cut_graph(model, inputs)
            reasons.append(f"{mode.__name__}: {str(problem).splitlines()[0][:120]}")
            continue
        if error < torch.finfo(model.dtype).eps ** 0.5:
            return mode
        reasons.append(f"{mode.__name__}: adjoint error {error:.1e}")
    raise ValueError(f"no mode of differentiation gives J v for this model ({'; '.join(reasons)}).")
