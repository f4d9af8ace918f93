"""A copy of a model whose parameters can be replaced, in double precision; the original is not touched."""

import copy
import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from normgeom.copies import results_by_value
from normgeom.symmetry.arguments import picked
from normgeom.symmetry.draws import cuda_devices, have_moved, seed, states
from normgeom.symmetry.widening import Widening

_EPS = re.compile(r"(^|_)eps(ilon)?$")
_LARGEST_EPS = 1e-2
# The cube of the inverse square root, which the backward pass of a norm takes, must stay finite.
_TINY = {torch.float64: 1e-100, torch.float32: 1e-24}
_FACTORS = 0.1


class Probe:
    """The outputs of a model on one batch as a function of its parameters.

    The copy is in float64 if it can be called there, else in the model's type. Buffers and the random state
    are the same at every call, so that dropout keeps its mask; the mode is the model's own.

    Attributes:
        is_random: whether the model has drawn random numbers so far.
        forwards: how many forward passes there were.
        backwards: how many backward passes.
    """

    def __init__(
        self, model: nn.Module, batch: Any, *, select: Callable[[Any], Any] | None, generator: torch.Generator
    ) -> None:
        self.select, self.generator = select, generator
        self.is_random = False
        self.forwards, self.backwards = 1, 0  # the first tries whether the copy runs in float64
        self.model, self.batch, self._mode = _double(model, batch)
        for value in self.model.parameters():
            value.requires_grad_(True)
        self.parameters = {name: value.detach() for name, value in self.model.named_parameters()}
        self._buffers = {name: value.detach().clone() for name, value in self.model.named_buffers()}
        self._eps = _eps_of(self.model)
        self.filled = [name for name, value in self.parameters.items() if not value.any()]
        for name in self.filled:
            # At zero a rescaling does nothing, and what stands before a zero gain would seem unused.
            self.fill(self.parameters[name])

    @property
    def dtype(self) -> torch.dtype:
        """The type in which the outputs are computed."""
        return next(iter(self.parameters.values())).dtype

    @property
    def has_eps(self) -> bool:
        """Whether some module, or some call of a norm function so far, has an eps."""
        return bool(self._eps) or self._mode.has_eps

    @property
    def unit(self) -> float:
        """The unit of rounding of the narrowest type that the model has used so far."""
        return max(self._mode.narrowest, torch.finfo(self.dtype).eps)

    def fill(self, value: Tensor) -> None:
        """Replace a tensor by small random numbers."""
        draw = torch.randn(value.shape, generator=self.generator, dtype=torch.float64)
        value.copy_(_FACTORS * draw)

    def random(self, shape: tuple[int, ...]) -> Tensor:
        """Return factors between 1/e and e, log-uniform."""
        draw = torch.rand(shape, generator=self.generator, dtype=torch.float64)
        return (2 * draw - 1).exp().to(next(iter(self.parameters.values())))

    def without_eps(self) -> None:
        """Make every eps so small that it is nothing beside any variance."""
        self._mode.tiny = _TINY.get(self.dtype, 1e-6)
        for module, name, _ in self._eps:
            setattr(module, name, self._mode.tiny)

    def with_eps(self) -> None:
        """Put every eps back."""
        self._mode.tiny = 0.0
        for module, name, eps in self._eps:
            setattr(module, name, eps)

    def outputs(self, values: Mapping[str, Tensor] | None = None, *, mask: int = 0) -> list[Tensor]:
        """Return the floating-point outputs with some parameters replaced.

        Args:
            values: the parameters to replace, by name.
            mask: 0 for the random state as it is, else the seed of another.
        """
        state = {**self.parameters, **{k: v.clone() for k, v in self._buffers.items()}, **(values or {})}
        self.forwards += 1
        positional, named = self.batch
        with torch.random.fork_rng(cuda_devices()), self._mode:
            if mask:
                seed(mask)
            before = states()
            out = torch.func.functional_call(self.model, state, positional, named)
            self.is_random = self.is_random or have_moved(before)
        found = [o for o in _tensors(picked(out, self.select)) if o.is_floating_point()]
        if not found:
            raise ValueError("the model must return floating-point tensors; give `select` to pick them.")
        return found

    def plain(self, values: Mapping[str, Tensor] | None = None, *, mask: int = 0) -> list[Tensor]:
        """Return the outputs outside of autograd."""
        with torch.no_grad():
            return [out.detach() for out in self.outputs(values, mask=mask)]

    def gradients(self) -> dict[str, Tensor]:
        """Return the gradient of a random combination of the outputs, each relative to its largest entry."""
        leaves = {name: value.clone().requires_grad_() for name, value in self.parameters.items()}
        with torch.enable_grad():
            total: Any = 0
            for out in self.outputs(leaves):
                draw = torch.randn(out.shape, generator=self.generator, dtype=torch.float64).to(out)
                total = total + (draw * out).sum() / out.detach().abs().max().clamp_min(1e-300)
            if not total.requires_grad:
                return {name: torch.zeros_like(value) for name, value in leaves.items()}
            found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        return {
            name: torch.zeros_like(value) if grad is None else grad.detach().to_dense()
            for (name, value), grad in zip(leaves.items(), found, strict=True)
        }


def deviation(outputs: list[Tensor], wanted: list[Tensor]) -> float:
    """Return the largest difference, each output relative to its largest entry; NaN counts as infinite."""
    largest = 0.0
    for one, other in zip(outputs, wanted, strict=True):
        if one.shape != other.shape:
            return float("inf")
        if not one.numel():
            continue
        same = (one == other) | (one.isnan() & other.isnan())
        size = torch.where(other.isfinite(), other.abs(), 0).max().clamp_min(torch.finfo(other.dtype).tiny)
        error = torch.where(same, 0, (one - other).abs()).max() / size
        largest = max(largest, float(error.nan_to_num(float("inf"), float("inf"))))
    return largest


def as_call(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and named arguments: a tuple is the former, a mapping with names the latter."""
    if isinstance(batch, tuple) and not hasattr(batch, "_fields"):  # a packed sequence is one argument
        return batch, {}
    if isinstance(batch, Mapping):
        return (), dict(batch)
    return (batch,), {}


def _double(
    model: nn.Module, batch: Any
) -> tuple[nn.Module, tuple[tuple[Any, ...], dict[str, Any]], Widening]:
    """The copy and the batch in float64, or as they are if the model cannot be called in float64."""
    if not any(p.is_floating_point() for p in model.parameters()):
        raise ValueError("the model must have floating-point parameters; it has none.")
    call = as_call(batch)
    copied = _copy(model)
    try:
        positional, named = _cast(call)
        copied = copied.double()
        with torch.no_grad(), torch.random.fork_rng(cuda_devices()), Widening(widen=True):
            copied(*positional, **named)
    except (RuntimeError, TypeError):
        return _copy(model), call, Widening(widen=False)
    return _restored(copied, model), (positional, named), Widening(widen=True)


def _restored(copied: nn.Module, model: nn.Module) -> nn.Module:
    """Put the buffers that the trial call may have changed back to the model's."""
    with torch.no_grad():
        for mine, own in zip(copied.buffers(), model.buffers(), strict=True):
            mine.copy_(own)
    return copied


def _copy(model: nn.Module) -> nn.Module:
    """A deep copy; tensors that are results of a computation, as old weight norms keep them, are detached."""
    try:
        return copy.deepcopy(model, results_by_value(model))
    except Exception as why:
        raise ValueError(
            f"the model must be one that copy.deepcopy can copy, so that it is left as found; it says: {why}."
        ) from why


def _eps_of(model: nn.Module) -> list[tuple[nn.Module, str, Any]]:
    """Every eps of the model: the module, the attribute and its value."""
    found = []
    for module in model.modules():
        for name, value in vars(module).items():
            small = isinstance(value, float) and 0 < value <= _LARGEST_EPS
            # RMSNorm's None stands for the machine epsilon of the data.
            if _EPS.search(name) and (small or (value is None and isinstance(module, nn.RMSNorm))):
                found.append((module, name, value))
    return found


def _cast(value: Any) -> Any:
    """Floating-point tensors of nested tuples, lists and dicts in float64."""
    if isinstance(value, Tensor):
        return value.detach().double() if value.is_floating_point() else value
    if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
        return type(value)(_cast(part) for part in value)
    if isinstance(value, dict):
        return {key: _cast(part) for key, part in value.items()}
    if isinstance(value, torch.nn.utils.rnn.PackedSequence):
        return value.double()
    return value


def _tensors(value: Any) -> list[Tensor]:
    """The tensors of nested tuples, lists, dicts and dataclasses, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, tuple | list):
        return [tensor for part in value for tensor in _tensors(part)]
    return []
