"""The cases of `bench_fisher`: what is computed, by which methods, from which models."""

import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import scipy.sparse.linalg
import torch
from torch import nn
from torch.func import functional_call, jacrev, jvp, vjp, vmap

from analyses import bench_peers
from normgeom.geometry.families import Categorical
from normgeom.geometry.fisher import fisher
from normgeom.geometry.glm import NormalizedGLM
from normgeom.geometry.operator import FisherOperator
from normgeom.geometry.per_example import per_example_fisher
from normgeom.norms import NoNorm

FAMILY = Categorical()
Params = dict[str, torch.Tensor]
Run = Callable[[], torch.Tensor]


@dataclass
class Case:
    """One quantity, with the ways to compute it; the first is the reference of the ratios.

    `work` is in floating-point operations (or bytes, for a case bound by memory): its ceiling is what the
    machine needs for just that.
    """

    name: str
    runs: dict[str, Run]
    flops: float = 0.0
    fill: float = 0.0
    once: bool = False
    """Whether the reference is too slow to repeat."""


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return normal numbers from a seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def module_params(net: nn.Module) -> Params:
    """Set a module's parameters to seeded values of the usual size, and return them."""
    with torch.no_grad():
        for k, p in enumerate(net.parameters()):
            p.copy_(
                random(*p.shape, seed=k) / (p.shape[-1] ** 0.5 if p.ndim > 1 else 10) + (p.ndim == 1) * 0.5
            )
    return {k: v.detach() for k, v in net.named_parameters()}


def layer_norm_net(*widths: int) -> nn.Sequential:
    """Return linear layers with layer norm and tanh between them."""
    layers: list[nn.Module] = []
    for inputs, units in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, units), nn.LayerNorm(units), nn.Tanh()]
    return nn.Sequential(*layers[:-2])


def plain_jacobian(net: nn.Module, params: Params, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return eta and its Jacobian (cases, outputs, parameters) by `vmap(jacrev)`."""
    jac = vmap(jacrev(lambda p, row: functional_call(net, p, (row[None],))[0]), (None, 0))(params, x)
    eta = functional_call(net, params, (x,))
    return eta.detach(), torch.cat([j.reshape(*eta.shape, -1) for j in jac.values()], -1)


def plain_fisher(net: nn.Module, params: Params, x: torch.Tensor) -> torch.Tensor:
    """Return `mean J^T S J` tensor-major, as one writes it with torch.func."""
    eta, jac = plain_jacobian(net, params, x)
    weighted = FAMILY.fisher(eta) @ jac
    return jac.flatten(0, 1).T @ weighted.flatten(0, 1) / len(x)


def full_linear(cases: int) -> Case:
    """Case a: the full Fisher of a softmax linear model, D 64, C 10."""
    net, x = nn.Linear(64, 10), random(cases, 64, seed=9)
    params, glm = module_params(net), NormalizedGLM(NoNorm(), FAMILY)
    size = 650
    return Case(
        f"a. full Fisher, softmax linear 64-10, {cases} cases",
        {
            "torch.func": lambda: plain_fisher(net, params, x),
            "normgeom, closed form, tensor-major": lambda: fisher(glm, params, x, order="tensor").matrix,
            "normgeom, closed form, neuron-major": lambda: fisher(glm, params, x).matrix,
            "normgeom, module": lambda: fisher(net, params, x, family=FAMILY, order="tensor").matrix,
            **bench_peers.full(net, x),
        },
        flops=2 * cases * size**2 / 4,
    )


def per_case_linear(cases: int) -> Case:
    """Case b: one Fisher matrix a case; bound by memory."""
    net, x = nn.Linear(64, 10), random(cases, 64, seed=9)
    params, glm = module_params(net), NormalizedGLM(NoNorm(), FAMILY)
    out = torch.zeros(cases, 650, 650)

    def plain() -> torch.Tensor:
        eta, jac = plain_jacobian(net, params, x)
        return jac.mT @ (FAMILY.fisher(eta) @ jac)

    def both(model: Any, into: torch.Tensor | None, **options: Any) -> torch.Tensor:
        return per_example_fisher(model, params, x, **options).materialize(out=into).matrix

    return Case(
        f"b. Fisher per case, softmax linear 64-10, {cases} cases",
        {
            "torch.func": plain,
            **bench_peers.per_case(net, x),
            "normgeom, closed form, neuron-major": lambda: both(glm, None),
            "normgeom, closed form, out=": lambda: both(glm, out),
            "normgeom, module, out=": lambda: both(net, out, family=FAMILY),
        },
        fill=cases * 650**2 * 4,
    )


def full_network(cases: int) -> Case:
    """Case c: the full Fisher of an MLP 64-32-10 with layer norm."""
    net, x = layer_norm_net(64, 32, 10), random(cases, 64, seed=9)
    params = module_params(net)
    size = sum(p.numel() for p in params.values())
    return Case(
        f"c. full Fisher, layer-norm MLP 64-32-10, {cases} cases",
        {
            "torch.func": lambda: plain_fisher(net, params, x),
            "normgeom, tensor-major": lambda: fisher(net, params, x, family=FAMILY, order="tensor").matrix,
            "normgeom, neuron-major": lambda: fisher(net, params, x, family=FAMILY).matrix,
            **bench_peers.full(net, x),
        },
        flops=2 * cases * size**2 / 4,
    )


def wide_network() -> tuple[nn.Module, Params, torch.Tensor]:
    """The network of cases d and e."""
    net, x = layer_norm_net(784, 1000, 1000, 10), random(128, 784, seed=9)
    return net, module_params(net), x


def product() -> Case:
    """Case d: a Fisher-vector product, amortized over many."""
    net, params, x = wide_network()
    shapes = {k: v.shape for k, v in params.items()}
    vector = random(sum(v.numel() for v in params.values()), seed=8)
    parts = vector.split([shape.numel() for shape in shapes.values()])
    tangents = {k: part.view(shapes[k]) for k, part in zip(shapes, parts, strict=True)}
    call = lambda p: functional_call(net, p, (x,))  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.func.linearize warns about its own graph
        eta, linear = torch.func.linearize(call, params)
    pull: Any = vjp(call, params)[1]

    def finish(pull: Any, eta: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        (grads,) = pull(FAMILY.fisher_product(eta, out))
        return torch.cat([g.flatten() for g in grads.values()]) / len(x)

    def plain() -> torch.Tensor:
        eta, out = jvp(call, (params,), (tangents,))[:2]
        return finish(vjp(call, params)[1], eta, out)

    held = FisherOperator(net, params, x, family=FAMILY)
    graph = FisherOperator(net, params, x, family=FAMILY, memory=0)
    return Case(
        "d. Fisher-vector product, layer-norm MLP 784-1000-1000-10, 128 cases",
        {
            "torch.func jvp + vjp": plain,
            "torch.func linearize": lambda: finish(pull, eta, linear(tangents)),
            "normgeom, factors": lambda: held @ vector,
            "normgeom, graph": lambda: graph @ vector,
            **bench_peers.product(net, x, vector),
        },
        flops=2 * 2 * len(x) * len(vector),
    )


def eigenvalues(slow: bool = False) -> Case:
    """Case e: the ten largest eigenvalues of d, everything included; eigsh (10 s) only if asked."""
    net, params, x = wide_network()

    def iterative() -> torch.Tensor:
        found = scipy.sparse.linalg.eigsh(graph.to_scipy(), 10, return_eigenvectors=False, tol=1e-4)
        return torch.from_numpy(found[::-1].copy())

    graph = FisherOperator(net, params, x, family=FAMILY, memory=0)
    peers = bench_peers.eigenvalues(net, x, slow=slow)
    reference: dict[str, Run] = {"eigsh on held graph, tol 1e-4": iterative} if slow else {}
    return Case(
        "e. ten largest eigenvalues of d, from the model on",
        {
            **reference,
            **{name: run for name, run in peers.items() if name.startswith("eigsh")},
            "normgeom": lambda: FisherOperator(net, params, x, family=FAMILY).top_eigenvalues(10),
            **{name: run for name, run in peers.items() if not name.startswith("eigsh")},
        },
        flops=2 * 1280**2 * 6010 / 2,
        once=slow,
    )


class Reader(nn.Module):
    """An LSTM and a readout of its last step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.readout = nn.LSTM(16, 32, batch_first=True), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of every sequence."""
        return self.readout(self.lstm(x)[0][:, -1])


def recurrent() -> Case:
    """Case f: the Fisher of an LSTM; the reference is one backward pass a case and output."""
    net, x = Reader(), random(32, 12, 16, seed=9)
    params = module_params(net)

    def loop() -> torch.Tensor:
        leaves = {k: v.clone().requires_grad_() for k, v in params.items()}
        eta, rows = functional_call(net, leaves, (x,)), []
        for case in eta:
            for entry in case:
                grads = torch.autograd.grad(entry, list(leaves.values()), retain_graph=True)
                rows.append(torch.cat([g.flatten() for g in grads]))
        jac = torch.stack(rows).view(*eta.shape, -1)
        return jac.flatten(0, 1).T @ (FAMILY.fisher(eta.detach()) @ jac).flatten(0, 1) / len(x)

    return Case(
        "f. full Fisher, LSTM 16-32 over 12 steps, 32 cases",
        {
            "autograd loop": loop,
            "normgeom": lambda: fisher(net, params, x, family=FAMILY, order="tensor").matrix,
        },
        once=True,
    )
