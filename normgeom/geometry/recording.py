"""Record how parameters enter a model: through linear maps and norms, each seen with its inputs.

While a model runs on a batch of independent cases, every `F.linear`, `layer_norm`, `rms_norm`, `group_norm`
and evaluation-mode `batch_norm` whose weight is a parameter is replaced by the same function of a constant
weight plus a zero that autograd follows. The derivative of the outputs in that zero is all that a Fisher
matrix needs of the layer; no Jacobian in the weights is formed. A parameter used in any other way stays
connected to the outputs, which is detected: the route then declines.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from normgeom.geometry.evaluator import Evaluator, Params
from normgeom.geometry.factors import Factor, Piece, Rows
from normgeom.geometry.kernels import _REPLACED, PlainKernels


@dataclass(eq=False)
class Use:
    """One use: `seen` is what multiplies the weight, `zero` the followed zero added to the result.

    `axes` are those of a norm's parameters in `seen`, None for a linear map.
    """

    weight: str | None
    bias: str | None
    seen: torch.Tensor | None
    zero: torch.Tensor
    axes: tuple[int, ...] | None
    version: int = 0

    @property
    def changed(self) -> bool:
        """Whether the input was changed in place after it was used."""
        return self.seen is not None and self.seen._version != self.version


@dataclass(eq=False)
class Recording:
    """The outputs of a batch, and the uses of every parameter."""

    eta: torch.Tensor
    uses: list[Use]
    params: Params


class _Recorder(PlainKernels):
    """A mode that notes the uses of parameters, known by their identity."""

    def __init__(self, params: Params) -> None:
        super().__init__()
        self.names = {id(value): name for name, value in params.items()}
        self.uses: list[Use] = []

    def name(self, value: Any) -> str | None:
        """Return the name of a parameter, or None for any other value."""
        return self.names.get(id(value))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record, or pass on."""
        kwargs = kwargs or {}
        if func in _REPLACED:
            with self:
                out = _REPLACED[func](*args, **kwargs)
            if out is not NotImplemented:
                return out
        record = _RECORDED.get(func)
        out = record(self, *args, **kwargs) if record else NotImplemented
        return super().__torch_function__(func, types, args, kwargs) if out is NotImplemented else out

    def note(self, value: torch.Tensor, seen: torch.Tensor, names: tuple[str | None, str | None],
             axes: tuple[int, ...] | None) -> torch.Tensor:  # fmt: skip
        """Add a followed zero to a value and note the use."""
        zero = torch.zeros_like(value, requires_grad=True)
        seen = seen.detach()
        self.uses.append(Use(*names, seen if names[0] else None, zero, axes, seen._version))
        return value + zero

    def linear(self, input: torch.Tensor, weight: Any, bias: Any = None) -> Any:
        """`x W^T + b`."""
        names = self.name(weight), self.name(bias)
        if names == (None, None):
            return NotImplemented
        held = _constant(weight, names[0]), _constant(bias, names[1])
        return self.note(F.linear(input, *held), input, names, None)

    def affine(self, z: torch.Tensor, weight: Any, bias: Any, axes: tuple[int, ...]) -> Any:
        """`g z + b`, the parameters along some axes of z."""
        names = self.name(weight), self.name(bias)
        if names == (None, None):
            return NotImplemented
        shape = [n if k in axes else 1 for k, n in enumerate(z.shape)]
        value = z
        if weight is not None:
            value = value * _constant(weight, names[0]).reshape(shape)
        if bias is not None:
            value = value + _constant(bias, names[1]).reshape(shape)
        return self.note(value, z, names, axes)

    def layer_norm(self, input: torch.Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None,
                   eps: float = 1e-5) -> Any:  # fmt: skip
        """Layer norm over the last axes."""
        if self.name(weight) is None and self.name(bias) is None:
            return NotImplemented
        axes = tuple(range(input.ndim - len(tuple(normalized_shape)), input.ndim))
        return self.affine(F.layer_norm(input, normalized_shape, None, None, eps), weight, bias, axes)

    def rms_norm(
        self, input: torch.Tensor, normalized_shape: Any, weight: Any = None, eps: Any = None
    ) -> Any:
        """RMS norm over the last axes."""
        if self.name(weight) is None:
            return NotImplemented
        axes = tuple(range(input.ndim - len(tuple(normalized_shape)), input.ndim))
        return self.affine(F.rms_norm(input, normalized_shape, None, eps), weight, None, axes)

    def group_norm(self, input: torch.Tensor, num_groups: int, weight: Any = None, bias: Any = None,
                   eps: float = 1e-5) -> Any:  # fmt: skip
        """Group norm, parameters per channel."""
        if self.name(weight) is None and self.name(bias) is None:
            return NotImplemented
        return self.affine(F.group_norm(input, num_groups, None, None, eps), weight, bias, (1,))

    def batch_norm(
        self,
        input: torch.Tensor,
        running_mean: Any,
        running_var: Any,
        weight: Any = None,
        bias: Any = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Any:
        """Batch norm with frozen statistics, parameters per channel."""
        if training or (self.name(weight) is None and self.name(bias) is None):
            return NotImplemented
        return self.affine(
            F.batch_norm(input, running_mean, running_var, None, None, False, momentum, eps),
            weight,
            bias,
            (1,),
        )


_RECORDED: dict[Any, Callable[..., Any]] = {
    F.linear: _Recorder.linear,
    F.layer_norm: _Recorder.layer_norm,
    F.rms_norm: _Recorder.rms_norm,
    F.group_norm: _Recorder.group_norm,
    F.batch_norm: _Recorder.batch_norm,
}


def record(model: Evaluator, inputs: Any) -> Recording | None:
    """Run the model on a batch; return None if a parameter enters in a way that is not recorded."""
    params = {k: v.detach().requires_grad_() for k, v in model.params.items()}
    recorder = _Recorder(params)
    with torch.enable_grad(), recorder:
        eta = model(params, inputs)
    if any(use.changed or use.zero.shape[0] != len(eta) for use in recorder.uses) or not recorder.uses:
        return None
    left_over = (
        torch.autograd.grad(
            eta.sum(), list(params.values()), allow_unused=True, retain_graph=True, materialize_grads=False
        )
        if eta.requires_grad
        else ()
    )
    if any(grad is not None for grad in left_over):
        return None
    return Recording(eta, recorder.uses, params)


def recorded_rows(recording: Recording, cotangents: torch.Tensor, *, keep: bool = True) -> Rows:
    """Return the Jacobian rows of all parameters as factors, for cotangents (rows, cases, ..., outputs)."""
    zeros = [use.zero for use in recording.uses]
    lefts: list[list[torch.Tensor]] = []
    for k, cotangent in enumerate(cotangents):
        again = keep or k + 1 < len(cotangents)
        grads = torch.autograd.grad(recording.eta, zeros, cotangent, retain_graph=again, allow_unused=True)
        lefts.append([torch.zeros_like(z) if g is None else g for z, g in zip(zeros, grads, strict=True)])
    stacked = [torch.stack(parts, 1) for parts in zip(*lefts, strict=True)]
    return _Assembly(recording, len(cotangents)).rows(stacked)


class _Assembly:
    """Turn derivatives in the followed zeros into factors; parameters used more than once are summed."""

    def __init__(self, recording: Recording, rows: int) -> None:
        self.recording, self.row_count = recording, rows
        self.offsets, start = {}, 0
        for name, value in recording.params.items():
            self.offsets[name] = start
            start += value.numel()
        names = [name for use in recording.uses for name in (use.weight, use.bias) if name]
        self.once = {name for name in names if names.count(name) == 1}

    def rows(self, lefts: list[torch.Tensor]) -> Rows:
        """Return one factor a layer where it is used once a case, else one a parameter."""
        factors: list[Factor] = []
        sums: dict[str, torch.Tensor] = {}
        for use, left in zip(self.recording.uses, lefts, strict=True):
            single = use.axes is None and left.ndim == 3 and {use.weight, use.bias} - {None} <= self.once
            if single:
                factors.append(self._linear(use, left))
                continue
            for name, value in self._whole(use, left):
                sums[name] = sums[name] + value if name in sums else value
        for names in self._together(sums):
            factors.append(self._dense(names, sums))
        for name in self.recording.params.keys() - self._known():
            zero = lefts[0].new_zeros(len(lefts[0]), self.row_count, self.recording.params[name].numel())
            factors.append(self._dense((name,), {name: zero}))
        return sorted(factors, key=lambda f: f.pieces[0].start)

    def _known(self) -> set[str]:
        return {name for use in self.recording.uses for name in (use.weight, use.bias) if name}

    def _pieces(self, names: Sequence[str], height: int) -> tuple[Piece, ...]:
        pieces, first = [], 0
        for name in names:
            last = first + self.recording.params[name].numel() // height
            pieces.append(Piece(self.offsets[name], first, last))
            first = last
        return tuple(pieces)

    def _linear(self, use: Use, left: torch.Tensor) -> Factor:
        """A linear map used once: rows `left (x) (x, 1)`."""
        names, height = [name for name in (use.weight, use.bias) if name], left.shape[-1]
        right = use.seen
        if right is not None and use.bias is not None:
            right = torch.cat([right, right.new_ones(len(right), 1)], 1)
        return Factor(left, right, self._pieces(names, height), height)

    def _whole(self, use: Use, left: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
        """The rows of a use written out: shared positions are summed, per-unit parameters multiplied."""
        out = []
        if use.axes is not None:
            others = tuple(k + 1 for k in range(1, left.ndim - 1) if k not in use.axes)
            if use.weight is not None:
                assert use.seen is not None
                out.append((use.weight, _sum(left * use.seen[:, None], others)))
            if use.bias is not None:
                out.append((use.bias, _sum(left, others)))
            return out
        flat = left.reshape(*left.shape[:2], math.prod(left.shape[2:-1]), left.shape[-1])
        if use.weight is not None:
            assert use.seen is not None
            seen = use.seen.reshape(len(flat), flat.shape[2], -1)
            out.append((use.weight, torch.einsum("nrti,ntd->nrid", flat, seen).flatten(2)))
        if use.bias is not None:
            out.append((use.bias, flat.sum(2)))
        return out

    def _together(self, sums: dict[str, torch.Tensor]) -> list[tuple[str, ...]]:
        """Gain and bias of one norm stand unit by unit, as neuron-major wants them."""
        groups: dict[tuple[str, int], list[str]] = {}
        for name in self.recording.params:
            if name in sums:
                rows = self.recording.params[name].shape[:1]
                groups.setdefault((name.rpartition(".")[0], rows[0] if rows else 1), []).append(name)
        return [tuple(names) for names in groups.values()]

    def _dense(self, names: tuple[str, ...], sums: dict[str, torch.Tensor]) -> Factor:
        height = (self.recording.params[names[0]].shape or (1,))[0]
        left = torch.cat([sums[name].unflatten(2, (height, -1)) for name in names], 3).flatten(2)
        return Factor(left, None, self._pieces(names, height), height)


def _constant(value: Any, name: str | None) -> Any:
    return value.detach() if name is not None else value


def _sum(value: torch.Tensor, axes: tuple[int, ...]) -> torch.Tensor:
    return (value.sum(axes) if axes else value).flatten(2)
