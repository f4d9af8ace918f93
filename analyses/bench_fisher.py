"""How fast the Fisher metric is: `python -m analyses.bench_fisher` (about a minute; `--help` for options).

Medians of interleaved runs in one process. Every row names its case, the method, its time, the time over that
of the case's first reference, and the error against it. The machine's own ceilings (matrix products,
filling fresh and used memory) are measured in the same run, and the load average at its start and end is
printed. Other packages (`bench_peers`) are measured beside if they are installed.
"""

import argparse
import itertools
import json
import os
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
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


@dataclass
class Row:
    """One line of the table."""

    case: str
    method: str
    seconds: float
    ratio: float
    error: float
    ceiling: float
    """The share of the machine's ceiling reached (1 = as fast as the bare product or fill)."""


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


def correctness() -> Iterator[Row]:
    """Case g: float64 against the reference, and logits of size 1000 in float32."""
    net, x = layer_norm_net(16, 12, 5).double(), random(64, 16, seed=9, dtype=torch.float64)
    params = module_params(net)
    value = fisher(net, params, x, family=FAMILY, order="tensor").matrix
    yield Row("g. float64", "normgeom", 0, 0, relative(value, plain_fisher(net, params, x)), 0)
    large = {k: 1000 * v for k, v in params.items()}
    wanted = fisher(net, large, x, family=FAMILY).matrix
    single = fisher(net.float(), {k: v.float() for k, v in large.items()}, x.float(), family=FAMILY).matrix
    yield Row("g. logits of size 1000, float32", "normgeom", 0, 0, relative(single.double(), wanted), 0)


def relative(value: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return the relative error, in the largest entry."""
    return float((value - wanted).abs().max() / wanted.abs().max())


def ceilings() -> dict[str, float]:
    """Return the gemm rate (flop/s) and the rates of filling fresh and used memory (bytes/s)."""
    a = random(1500, 1500)
    used = torch.zeros(2**26)
    gemm = timed(lambda: a @ a, 5)
    return {
        "gemm_flops": 2 * 1500**3 / gemm,
        "fresh_fill_bytes": used.nbytes / timed(lambda: torch.full((2**26,), 1.0), 5),
        "used_fill_bytes": used.nbytes / timed(lambda: used.fill_(1.0), 5),
    }


def timed(run: Callable[[], Any], repeats: int) -> float:
    """Return the median time of a call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure(case: Case, repeats: int, machine: dict[str, float]) -> list[Row]:
    """Run the methods of a case in turn, several times, and compare each with the first."""
    wanted, errors = None, {}
    times: dict[str, list[float]] = {name: [] for name in case.runs}
    for name, run in case.runs.items():
        start = time.perf_counter()
        value = run()
        first_time = time.perf_counter() - start
        wanted = value.clone() if wanted is None else wanted
        comparable = value.shape == wanted.shape and "neuron" not in name and not name.endswith("out=")
        errors[name] = relative(value, wanted) if comparable else float("nan")
        if case.once and not any(times.values()):
            times[name].append(first_time)
        del value
    for _ in range(repeats):
        for name, run in list(case.runs.items())[int(case.once) :]:
            times[name].append(timed(run, 1))
    medians = {name: statistics.median(t) for name, t in times.items()}
    first = next(iter(medians.values()))
    rows = []
    for name, seconds in medians.items():
        fill = machine["used_fill_bytes" if name.endswith("out=") else "fresh_fill_bytes"]
        least = case.flops / machine["gemm_flops"] + case.fill / fill
        rows.append(Row(case.name, name, seconds, seconds / first, errors[name], least / seconds))
    return rows


def growth() -> Iterator[Row]:
    """How the cost of the full Fisher grows with cases, parameters and outputs."""
    for cases, width, outputs in [(512, 32, 10), (1024, 32, 10), (512, 64, 10), (512, 32, 20)]:
        net, x = layer_norm_net(64, width, outputs), random(cases, 64)
        params = module_params(net)
        run = lambda net=net, params=params, x=x: fisher(net, params, x, family=FAMILY)  # noqa: E731
        run()
        size = sum(p.numel() for p in params.values())
        name = f"growth: {cases} cases, {size} parameters, {outputs} outputs"
        yield Row(name, "normgeom", timed(run, 3), float("nan"), float("nan"), float("nan"))


CASES: dict[str, Callable[[], Case]] = {
    "a": lambda: full_linear(1000),
    "b": lambda: per_case_linear(256),
    "c": lambda: full_network(512),
    "d": product,
    "e": eigenvalues,
    "f": recurrent,
}


def compute(names: str = "abcdefg", repeats: int = 5, threads: int = 2, slow: bool = False) -> dict[str, Any]:
    """Return the machine's ceilings and the rows."""
    torch.set_num_threads(threads)
    machine = ceilings() | {"load_before": os.getloadavg()[0]}
    rows: list[Row] = []
    for name, build in CASES.items():
        if name in names:
            case = eigenvalues(slow) if name == "e" else build()
            rows += measure(case, repeats, machine)
    if "g" in names:
        rows += [*correctness(), *growth()]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return {
        "machine": machine | {"threads": threads, "peak_memory_mb": peak, "load_after": os.getloadavg()[0]},
        "skipped": bench_peers.missing(),
        "rows": [asdict(r) for r in rows],
    }


def table(result: dict[str, Any]) -> str:
    """Return the rows as text."""
    lines = [json.dumps(result["machine"])]
    if result["skipped"]:
        lines.append(f"not installed, skipped: {', '.join(result['skipped'])}")
    case = ""
    for row in result["rows"]:
        if row["case"] != case:
            case = row["case"]
            lines += ["", case, f"  {'method':38}{'ms':>10}{'ratio':>8}{'of ceiling':>12}{'error':>10}"]
        lines.append(
            f"  {row['method']:38}{1e3 * row['seconds']:10.2f}{row['ratio']:8.3f}{row['ceiling']:12.2f}"
            f"{row['error']:10.1e}"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, print the rows as JSON lines, then the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", default="abcdefg", help="letters of the cases to run")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slow", action="store_true", help="also run eigsh as the reference of case e")
    options = parser.parse_args()
    result = compute(options.cases, options.repeats, options.threads, options.slow)
    for row in result["rows"]:
        sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.write(table(result) + "\n")


if __name__ == "__main__":
    main()
