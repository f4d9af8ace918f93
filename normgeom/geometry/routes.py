"""Ways to the Jacobian rows of each case, and a numerical test that chooses the fastest right one.

* `layers`: what `recording` gives; one backward pass a row for all cases at once.
* `vmap`: `torch.func.vmap` of `vjp` over cases.
* `loop`: one backward pass a case and row, for what has no batching rule (cases * rows passes).
* `batch`: for models that couple the cases (batch norm in training mode): the Jacobian of the whole batch,
  one backward pass a case and row through all cases, batched over rows where the model allows.

`choose` runs a few cases: once together and once each, by plain autograd and the model's own kernels. If the
derivatives of the cases together are not those of the cases alone, the cases are coupled. A route is taken
only if it reproduces the plain derivatives of every probed case.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from normgeom.geometry.cotangents import Maker, ScoreRows
from normgeom.geometry.evaluator import Evaluator, cases, check_call, refuse_cut_graph, take
from normgeom.geometry.factors import Factor, Piece, Rows, dense_rows
from normgeom.geometry.kernels import PlainKernels
from normgeom.geometry.recording import record, recorded_rows

Route = Literal["layers", "vmap", "loop", "batch"]
INDEPENDENT: tuple[Route, ...] = ("layers", "vmap", "loop")
LARGE = 2**18
"""Above this many parameters, two cases are probed rather than four."""
_UNSUPPORTED = (RuntimeError, NotImplementedError, UserWarning)


@dataclass(frozen=True)
class Block:
    """Rows of the cases `index` of a batch, from row number `first` on."""

    index: slice
    rows: Rows
    first: int = 0


def route_blocks(
    model: Evaluator, inputs: Any, make: Maker, *, route: Route, index: slice, row_chunk: int
) -> Iterator[Block]:
    """Yield the Jacobian rows of cases `index` (of the whole batch of inputs), at most `row_chunk` a case."""
    run = {"layers": _layers, "vmap": _vmap, "loop": _loop, "batch": _batch}[route]
    return run(model, inputs, make, index, row_chunk)


def choose(model: Evaluator, inputs: Any, *, route: Route | None = None) -> Route:
    """Return the fastest route that is right on four probed cases (two for a large model).

    Raises:
        ValueError: if the model is random, or the route asked for is not right for it.
    """
    if route not in (None, *INDEPENDENT, "batch"):
        raise ValueError(f"route must be one of {', '.join(INDEPENDENT)}, batch; got {route!r}.")
    n = cases(inputs)
    few = model.size > LARGE
    probed = sorted({0, n - 1} if few else {0, min(1, n - 1), n // 2, n - 1})
    probe = take(inputs, torch.tensor(probed))
    with PlainKernels():
        check_call(model, probe, given_cases=n)
        refuse_random(model, probe)
        refuse_cut_graph(model, probe)
    cotangent, single, coupled = _plain(model, probe)
    if coupled or _coupled_beyond(model, inputs, probe, probed):
        if route not in (None, "batch"):
            raise ValueError(
                f"the model couples its cases (batch statistics), so route {route!r} is not defined; "
                "use route='batch', or model.eval()."
            )
        return "batch"
    for candidate in (route,) if route else INDEPENDENT:
        if candidate == "batch" or _right(model, probe, candidate, cotangent, single):
            return candidate
    raise ValueError(
        f"no route reproduces the model's plain derivatives (tried {route or ', '.join(INDEPENDENT)}): "
        "some operation has a wrong or missing derivative."
    )


def _coupled_beyond(model: Evaluator, inputs: Any, probe: Any, probed: list[int]) -> bool:
    """Whether the probed cases come out otherwise among all cases of the batch than among themselves."""
    if not len(probed) < cases(inputs) <= LARGE:
        return False
    with torch.no_grad():
        return not _close(model(model.params, probe), model(model.params, inputs)[probed])


def refuse_random(model: Evaluator, probe: Any) -> torch.Tensor:
    """Return the outputs; raise a ValueError if they are others the next time."""
    with torch.no_grad():
        first, second = model(model.params, probe), model(model.params, probe)
    if not _close(first, second):
        raise ValueError(
            "the model must be deterministic, but two evaluations differ: its Fisher matrix would be that of "
            "one random draw. Call model.eval(), or pass the noise as data."
        )
    return first


def _plain(model: Evaluator, probe: Any) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """A random cotangent, its plain gradient for every case alone, and whether the cases are coupled."""
    try:
        return _plain_with_kernels(model, probe)
    except (NotImplementedError, RuntimeError):
        with PlainKernels():  # a fused kernel without a backward pass, such as cuDNN's in evaluation mode
            return _plain_with_kernels(model, probe)


def _plain_with_kernels(model: Evaluator, probe: Any) -> tuple[torch.Tensor, torch.Tensor, bool]:
    together = model(_leaves(model), probe)
    generator = torch.Generator().manual_seed(0)
    cotangent = torch.randn(together.shape, generator=generator, dtype=torch.float64).to(together)
    whole = gradient(model, probe, cotangent)[1]
    alone = []
    for k in range(len(together)):
        case = slice(k, k + 1)
        try:
            eta, grad = gradient(model, take(probe, case), cotangent[case])
        except ValueError:
            return cotangent, whole, True  # the model cannot be evaluated on one case
        if not _close(eta, together[case]):
            return cotangent, whole, True
        alone.append(grad)
    single = torch.stack(alone)
    return cotangent, single, not _close(single.sum(0), whole)


def _leaves(model: Evaluator) -> dict[str, torch.Tensor]:
    return {name: value.detach().requires_grad_() for name, value in model.params.items()}


def gradient(model: Evaluator, inputs: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the outputs and the gradient of `<cotangent, outputs>` by plain autograd, tensor-major."""
    leaves = _leaves(model)
    with torch.enable_grad():
        eta = model(leaves, inputs)
    return eta.detach(), _flat_gradient(eta, leaves, cotangent, keep=False)


def _flat_gradient(
    eta: torch.Tensor, leaves: dict[str, torch.Tensor], cotangent: torch.Tensor, *, keep: bool = True
) -> torch.Tensor:
    if not eta.requires_grad:
        return torch.cat([torch.zeros_like(v).flatten() for v in leaves.values()])
    grads = torch.autograd.grad(
        eta, list(leaves.values()), cotangent, retain_graph=keep, allow_unused=True, materialize_grads=True
    )
    return torch.cat([g.to_dense().flatten() for g in grads])


def _close(a: torch.Tensor, b: torch.Tensor, floor: float = 0.0) -> bool:
    """Whether a is b to half the digits of the type, or to rounding of numbers of size `floor`."""
    eps = torch.finfo(a.dtype).eps
    return _largest(a - b) <= eps**0.5 * _largest(b) + 1e3 * eps * floor


def _largest(values: torch.Tensor) -> float:
    """The largest absolute value, NaN if there is one, in one pass and without a copy."""
    if not values.numel():
        return 0.0
    low, high = values.detach().aminmax()
    return float(torch.maximum(-low, high))


def _right(model: Evaluator, probe: Any, route: Route, cotangent: torch.Tensor, single: torch.Tensor) -> bool:
    """Whether a route reproduces the gradient of every probed case; what it cannot run, it declines."""

    def make(eta: torch.Tensor, index: Any) -> ScoreRows:
        return ScoreRows(cotangent[index][None])

    whole = slice(0, len(cotangent))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*batching rule.*", category=UserWarning)
        try:
            blocks = list(route_blocks(model, probe, make, route=route, index=whole, row_chunk=1))
            rows = torch.cat([dense_rows(block.rows, model.size) for block in blocks])[:, 0]
        except _UNSUPPORTED:
            return False
    sizes = [value.numel() for value in model.params.values()]
    pairs = zip(rows.split(sizes, 1), single.split(sizes, 1), strict=True)
    return all(_close(a, b, _largest(single)) for a, b in pairs)


def _whole(rows: torch.Tensor) -> Rows:
    return [Factor(rows, None, (Piece(0, 0, rows.shape[-1]),), 1)]


def _layers(model: Evaluator, inputs: Any, make: Maker, index: slice, row_chunk: int) -> Iterator[Block]:
    recording = record(model, take(inputs, index))
    if recording is None:
        raise RuntimeError("a parameter enters the model other than through a linear map or a norm.")
    cotangents = make(recording.eta.detach(), index)
    for start in range(0, cotangents.count, row_chunk):
        stop = min(start + row_chunk, cotangents.count)
        rows = recorded_rows(recording, cotangents.take(start, stop), keep=stop < cotangents.count)
        yield Block(index, rows, start)


def _vmap(model: Evaluator, inputs: Any, make: Maker, index: slice, row_chunk: int) -> Iterator[Block]:
    chunk = take(inputs, index)
    with torch.no_grad(), PlainKernels():
        cotangents = make(model(model.params, chunk), index)

    def one(case: Any, rows: torch.Tensor) -> torch.Tensor:
        alone = take(case, None)
        pull = torch.func.vjp(lambda params: model(params, alone)[0], model.params)[1]
        (grads,) = torch.func.vmap(pull)(rows)
        return torch.cat([g.reshape(len(rows), -1) for g in grads.values()], 1)

    for start in range(0, cotangents.count, row_chunk):
        part = cotangents.take(start, min(start + row_chunk, cotangents.count)).movedim(0, 1)
        with PlainKernels():
            rows = torch.func.vmap(one)(chunk, part)
        yield Block(index, _whole(rows), start)


def _loop(model: Evaluator, inputs: Any, make: Maker, index: slice, row_chunk: int) -> Iterator[Block]:
    for n in range(*index.indices(cases(inputs))):
        case, leaves = slice(n, n + 1), _leaves(model)
        with torch.enable_grad(), PlainKernels():
            eta = model(leaves, take(inputs, case))
        cotangents = make(eta.detach(), case)
        for start in range(0, cotangents.count, row_chunk):
            part = cotangents.take(start, min(start + row_chunk, cotangents.count))
            yield Block(
                case, _whole(torch.stack([_flat_gradient(eta, leaves, c) for c in part])[None]), start
            )


def _batch(model: Evaluator, inputs: Any, make: Maker, index: slice, row_chunk: int) -> Iterator[Block]:
    leaves = _leaves(model)
    with torch.enable_grad(), PlainKernels():
        eta = model(leaves, inputs)
    cotangents = make(eta.detach(), slice(0, len(eta)))
    pull = _batched_pull(eta, leaves)
    for n in range(*index.indices(len(eta))):
        for start in range(0, cotangents.count, row_chunk):
            part = cotangents.take(start, min(start + row_chunk, cotangents.count))
            spread = torch.zeros_like(part)
            spread[:, n] = part[:, n]
            yield Block(slice(n, n + 1), _whole(pull(spread)[None]), start)


def _batched_pull(
    eta: torch.Tensor, leaves: dict[str, torch.Tensor]
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return cotangents (rows, ...) -> gradients (rows, parameters): all rows at once if that is right."""

    def one_by_one(rows: torch.Tensor) -> torch.Tensor:
        return torch.stack([_flat_gradient(eta, leaves, row) for row in rows])

    def together(rows: torch.Tensor) -> torch.Tensor:
        grads = torch.autograd.grad(
            eta, list(leaves.values()), rows, True, allow_unused=True, is_grads_batched=True
        )
        pairs = zip(grads, leaves.values(), strict=True)
        return torch.cat(
            [
                g.reshape(len(rows), -1) if g is not None else v.new_zeros(len(rows), v.numel())
                for g, v in pairs
            ],
            1,
        )

    test = torch.ones(2, *eta.shape, dtype=eta.dtype, device=eta.device)
    test[1] = torch.linspace(-1, 1, eta.numel(), dtype=eta.dtype, device=eta.device).view(eta.shape)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*batching rule.*", category=UserWarning)
        try:
            return together if _close(together(test), one_by_one(test)) else one_by_one
        except _UNSUPPORTED:
            return one_by_one
