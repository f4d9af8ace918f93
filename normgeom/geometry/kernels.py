"""Fused kernels written out, so that every derivative the metric needs exists and is right.

`PlainKernels` is a `TorchFunctionMode`: while it is on, the recurrent layers (whose fused kernels have no
batching rule and no forward mode), weight normalization (no forward mode, and a wrong double backward on
CPU) and scaled dot-product attention are replaced by the same functions in elementary operations, and
random operations are refused.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

State = tuple[torch.Tensor, ...]
Step = Callable[[torch.Tensor, State, Sequence[torch.Tensor]], State]


class PlainKernels(TorchFunctionMode):
    """Replace fused kernels by elementary operations while on; refuse what is random.

    With `norms=True` layer norm, batch norm and instance norm are written out too: torch's fused ones are
    right to first order, but silently wrong in nested forward mode from order 2 and in reverse mode from 3.

    >>> x, d = torch.tensor([0.7, -0.2, 0.5, 1.1]), torch.tensor([1.0, 0.0, 2.0, -1.0])
    >>> f = lambda t: F.layer_norm(x + t * d, (4,), eps=0.25) @ torch.tensor([1.0, 2.0, -0.5, 0.3])
    >>> third = torch.func.jacrev(torch.func.jacrev(torch.func.jacrev(f)))
    >>> with PlainKernels(norms=True):
    ...     print(f"{third(torch.tensor(0.3)):.3f}")
    -8.561
    """

    def __init__(self, *, norms: bool = False) -> None:
        super().__init__()
        self.replaced = _REPLACED | _NORMS if norms else _REPLACED

    def __enter__(self) -> "PlainKernels":
        """Turn on, with attention by elementary operations also where it is called inside other functions."""
        self._attention = sdpa_kernel(SDPBackend.MATH)
        self._attention.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        """Turn off."""
        super().__exit__(*error)
        self._attention.__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the replacement of a fused kernel, or the function itself."""
        kwargs = kwargs or {}
        if func in _REFUSED:
            _REFUSED[func](*args, **kwargs)
        replacement = self.replaced.get(func)
        out = replacement(*args, **kwargs) if replacement else NotImplemented
        return func(*args, **kwargs) if out is NotImplemented else out


def weight_norm(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """Return `g v / ||v||`, the length taken over all axes but `dim`; Salimans and Kingma 2016."""
    axes = [axis for axis in range(v.ndim) if axis != dim % v.ndim or dim == -1]
    return v * (g / v.square().sum(axes, keepdim=True).sqrt())


def layer_norm(input: torch.Tensor, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None,
               eps: float = 1e-5) -> torch.Tensor:  # fmt: skip
    """Return layer norm over the last axes; Ba et al. 2016, eq. 3."""
    z = _standardized(input, tuple(range(input.ndim - len(tuple(normalized_shape)), input.ndim)), eps)
    z = z if weight is None else z * weight
    return z if bias is None else z + bias


def batch_norm(input: torch.Tensor, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
               training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> Any:  # fmt: skip
    """Return batch norm with statistics of the batch; with running ones torch's own is right."""
    if not training or running_mean is not None:
        return NotImplemented
    return _per_channel(_standardized(input, (0, *range(2, input.ndim)), eps), weight, bias)


def instance_norm(input: torch.Tensor, running_mean: Any = None, running_var: Any = None, weight: Any = None,
                  bias: Any = None, use_input_stats: bool = True, momentum: float = 0.1,
                  eps: float = 1e-5) -> Any:  # fmt: skip
    """Return instance norm: statistics over positions, per case and channel."""
    if not use_input_stats or running_mean is not None:
        return NotImplemented
    return _per_channel(_standardized(input, tuple(range(2, input.ndim)), eps), weight, bias)


def _standardized(x: torch.Tensor, axes: tuple[int, ...], eps: float) -> torch.Tensor:
    centred = x - x.mean(axes, keepdim=True)
    return centred * (centred.square().mean(axes, keepdim=True) + eps).rsqrt()


def _per_channel(z: torch.Tensor, weight: Any, bias: Any) -> torch.Tensor:
    shape = (-1, *[1] * (z.ndim - 2))
    z = z if weight is None else z * weight.reshape(shape)
    return z if bias is None else z + bias.reshape(shape)


def _lstm_step(x: torch.Tensor, state: State, weights: Sequence[torch.Tensor]) -> State:
    """Gates stacked as (i, f, g, o); `weights` are W_ih, W_hh, b_ih, b_hh and perhaps the projection."""
    h, c = state
    i, f, g, o = (F.linear(x, weights[0], weights[2]) + F.linear(h, weights[1], weights[3])).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    return (F.linear(h, weights[4]) if len(weights) > 4 else h), c


def _gru_step(x: torch.Tensor, state: State, weights: Sequence[torch.Tensor]) -> State:
    """Gates stacked as (r, z, n), the reset gate applied after the recurrent weights."""
    (h,) = state
    from_x = F.linear(x, weights[0], weights[2]).chunk(3, -1)
    from_h = F.linear(h, weights[1], weights[3]).chunk(3, -1)
    r, z = (from_x[0] + from_h[0]).sigmoid(), (from_x[1] + from_h[1]).sigmoid()
    n = (from_x[2] + r * from_h[2]).tanh()
    return (n + z * (h - n),)


def _rnn_step(activation: Callable[[torch.Tensor], torch.Tensor]) -> Step:
    def step(x: torch.Tensor, state: State, weights: Sequence[torch.Tensor]) -> State:
        return (activation(F.linear(x, weights[0], weights[2]) + F.linear(state[0], weights[1], weights[3])),)

    return step


def _recurrent(step: Step, states: int) -> Callable[..., Any]:
    """Return the whole layer stack of a recurrent cell, with the signature of torch's fused function."""

    def run(x: torch.Tensor, hidden: Any, flat: Any, *options: Any) -> Any:
        if isinstance(hidden, torch.Tensor) and not hidden.is_floating_point():
            return NotImplemented  # a packed sequence, with its batch sizes in this place
        biases, layers, dropout, training, both_ways, batch_first = options
        if training and dropout and layers > 1:
            _refuse_dropout()
        initial: State = hidden if states == 2 else (hidden,)
        x = x.transpose(0, 1) if batch_first else x
        ways = 2 if both_ways else 1
        each = len(flat) // (layers * ways)
        last: list[State] = []
        for layer in range(layers):
            outputs = []
            for way in range(ways):
                k = layer * ways + way
                weights = list(flat[k * each : (k + 1) * each])
                if not biases:
                    weights[2:2] = [None, None]
                y, state = _over_time(step, x, tuple(s[k] for s in initial), weights, backwards=way == 1)
                outputs.append(y)
                last.append(state)
            x = torch.cat(outputs, -1)
        ends = [torch.stack(parts) for parts in zip(*last, strict=True)]
        return (x.transpose(0, 1) if batch_first else x, *ends)

    return run


def _over_time(
    step: Step, x: torch.Tensor, state: State, weights: Sequence[torch.Tensor], *, backwards: bool
) -> tuple[torch.Tensor, State]:
    outputs = []
    for t in reversed(range(len(x))) if backwards else range(len(x)):
        state = step(x[t], state, weights)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if backwards else outputs), state


def _refuse_dropout(*_: Any) -> None:
    raise ValueError(
        "the model must be deterministic, but dropout is active (training mode, p > 0), so its Fisher matrix "
        "is that of one random draw. Call model.eval(), or set p = 0."
    )


def _refuse_training(input: Any, p: float = 0.5, training: bool = True, *_: Any, **__: Any) -> None:
    if training and p:
        _refuse_dropout()


def _refuse_attention_dropout(*args: Any, **kwargs: Any) -> None:
    dropout_p = kwargs.get("dropout_p", args[10] if len(args) > 10 else 0.0)
    if dropout_p and kwargs.get("training", args[13] if len(args) > 13 else True):
        _refuse_dropout()


def _refuse_sdpa_dropout(*args: Any, **kwargs: Any) -> None:
    if kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0):
        _refuse_dropout()


def _refuse_max_norm(*args: Any, **kwargs: Any) -> None:
    if kwargs.get("max_norm", args[3] if len(args) > 3 else None) is not None:
        raise ValueError(
            "an embedding with max_norm must not be differentiated: its forward pass changes the weight in "
            "place. Re-normalize the weight once, and build the embedding without max_norm."
        )


_REFUSED: dict[Any, Callable[..., None]] = {
    F.dropout: _refuse_training,
    F.dropout1d: _refuse_training,
    F.dropout2d: _refuse_training,
    F.dropout3d: _refuse_training,
    F.alpha_dropout: lambda input, p=0.5, training=False, *a, **k: _refuse_training(input, p, training),
    F.feature_alpha_dropout: lambda input, p=0.5, training=False, *a, **k: _refuse_training(
        input, p, training
    ),
    F.multi_head_attention_forward: _refuse_attention_dropout,
    F.scaled_dot_product_attention: _refuse_sdpa_dropout,
    F.embedding: _refuse_max_norm,
}

_REPLACED: dict[Any, Callable[..., Any]] = {
    torch.lstm: _recurrent(_lstm_step, 2),
    torch.gru: _recurrent(_gru_step, 1),
    torch.rnn_tanh: _recurrent(_rnn_step(torch.tanh), 1),
    torch.rnn_relu: _recurrent(_rnn_step(torch.relu), 1),
    torch._weight_norm: weight_norm,
}

_NORMS: dict[Any, Callable[..., Any]] = {
    F.layer_norm: layer_norm,
    F.batch_norm: batch_norm,
    F.instance_norm: instance_norm,
}
