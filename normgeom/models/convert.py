"""Weights of `torch.nn.RNN`, `LSTM` and `GRU` in the order of the un-normalized cells, and back."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from normgeom.models.placement import Placement
from normgeom.models.recurrent import LNGRU, LNLSTM, LNRNN, Recurrent

# The place in torch's stack of each gate of ours, and its sign: torch's update gate is 1 - s(z) = s(-z).
_ORDER: dict[type[nn.Module], tuple[tuple[int, int], ...]] = {
    LNRNN: ((0, 1),),
    LNLSTM: ((1, 1), (0, 1), (3, 1), (2, 1)),
    LNGRU: ((1, -1), (0, 1), (2, 1)),
}
_TWINS: dict[type[Recurrent], type[nn.RNNBase]] = {LNRNN: nn.RNN, LNLSTM: nn.LSTM, LNGRU: nn.GRU}
_NAMES = {
    "weight_input": "weight_ih",
    "weight_recurrent": "weight_hh",
    "norm_input.bias": "bias_ih",
    "norm_recurrent.bias": "bias_hh",
}


def from_torch(module: nn.RNNBase) -> Recurrent:
    """Return the un-normalized twin of a recurrent module of torch, with the same parameters.

    Args:
        module: an `nn.RNN` with tanh, `nn.LSTM` or `nn.GRU`, without projection.

    Raises:
        TypeError: for any other module.
        ValueError: for an option that the cells do not have.

    >>> lstm = nn.LSTM(3, 4)
    >>> x = torch.ones(7, 5, 3)
    >>> torch.allclose(from_torch(lstm)(x)[0], lstm(x)[0], atol=1e-6)
    True
    """
    kinds = [kind for kind, theirs in _TWINS.items() if type(module) is theirs]
    if not kinds:
        raise TypeError(f"the module must be an nn.RNN, nn.LSTM or nn.GRU; got {type(module).__name__}.")
    if getattr(module, "nonlinearity", "tanh") != "tanh" or module.proj_size:
        raise ValueError(f"the module must have tanh and no projection (proj_size=0); got {module}.")
    weight = module.weight_ih_l0
    ours = kinds[0](**_options(module), placement=Placement.none(), device=weight.device, dtype=weight.dtype)  # type: ignore[arg-type]
    theirs = dict(module.named_parameters())
    _check_registered(theirs, [_torch_name(name) for name, _ in ours.named_parameters()])
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            parameter.copy_(_reordered(theirs[_torch_name(name)], _ORDER[kinds[0]]))
    return ours.train(module.training)


def to_torch(module: Recurrent) -> nn.RNNBase:
    """Return the recurrent module of torch that computes what an un-normalized one does.

    The inverse of `from_torch`: the parameters of `to_torch(from_torch(module))` are bit-identical.

    Raises:
        TypeError: if the module is no LNRNN, LNLSTM or LNGRU.
        ValueError: if it has a norm, for which torch has no module.

    >>> gru = nn.GRU(3, 4)
    >>> torch.equal(to_torch(from_torch(gru)).weight_hh_l0, gru.weight_hh_l0)
    True
    """
    if type(module) not in _TWINS:
        raise TypeError(f"the module must be an LNRNN, LNLSTM or LNGRU; got {type(module).__name__}.")
    if module.placement != Placement.none():
        raise ValueError(
            f"torch has no layer-normalized cell: placement must be none; got {module.placement}."
        )
    options, own = _options(module), dict(module.named_parameters())
    kinds = [kind for kind in _NAMES if options["bias"] or not kind.endswith("bias")]
    _check_registered(own, [f"{cell}.{kind}" for cell in module.cells() for kind in kinds])
    weight = module.get_parameter("layer0.weight_input")
    theirs = _TWINS[type(module)](**options, device=weight.device, dtype=weight.dtype)
    places = _ORDER[type(module)]
    inverse = [(ours, sign) for _, ours, sign in sorted((k, n, sign) for n, (k, sign) in enumerate(places))]
    values = dict(theirs.named_parameters())
    with torch.no_grad():
        for name, parameter in own.items():
            values[_torch_name(name)].copy_(_reordered(parameter, inverse))
    return theirs.train(module.training)


def _check_registered(parameters: dict[str, nn.Parameter], names: Sequence[str]) -> None:
    """Raise an error for weights that are computed from others, or tied to them."""
    missing = sorted(set(names) - parameters.keys())
    if missing:
        raise ValueError(
            f"every weight must be a parameter of its own; {', '.join(missing)} are not. Pruning is made "
            "permanent by prune.remove, a parametrization by parametrize.remove_parametrizations."
        )


def _options(module: Any) -> dict[str, Any]:
    """The options that both have."""
    names = ("input_size", "hidden_size", "num_layers", "batch_first", "dropout", "bidirectional")
    bias = any("bias" in name for name, _ in module.named_parameters())
    return {name: getattr(module, name) for name in names} | {"bias": bias}


def _torch_name(name: str) -> str:
    """`layer1_reverse.weight_input` is torch's `weight_ih_l1_reverse`."""
    layer, _, rest = name.partition(".")
    return f"{_NAMES[rest]}_{layer.replace('layer', 'l')}"


def _reordered(stacked: torch.Tensor, places: Sequence[tuple[int, int]]) -> torch.Tensor:
    """Return the gates of a stack in another order, some negated."""
    parts = stacked.chunk(len(places))
    return torch.cat([parts[k] if sign > 0 else -parts[k] for k, sign in places])
