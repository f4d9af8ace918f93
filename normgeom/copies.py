"""Copies of modules whose weights are computed, as by pruning, weight norm and spectral norm."""

from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.utils import prune
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

M = TypeVar("M", bound=nn.Module)


def computes_a_weight(hook: Any) -> bool:
    """Whether a forward pre-hook is one of torch's that set a weight, and ignore the inputs."""
    return isinstance(hook, prune.BasePruningMethod | SpectralNorm | WeightNorm)


def results_by_value(module: nn.Module) -> dict[int, Any]:
    """Return the memo for `copy.deepcopy` with a copy of every tensor of a module that hangs on a graph.

    >>> import copy
    >>> layer = nn.utils.prune.identity(nn.Linear(2, 2), "weight")
    >>> copied = copy.deepcopy(layer, results_by_value(layer))
    >>> torch.equal(copied.weight, layer.weight)
    True
    """
    parts = [value for part in module.modules() for value in vars(part).values()]
    hanging = [v for v in parts if isinstance(v, torch.Tensor) and not v.is_leaf]
    return {id(value): value.detach().clone() for value in hanging}


def twin(module: M) -> M:
    """Return a module with modes, hooks and buffers of its own, and parameters that share their memory.

    Every parameter is a leaf that requires a gradient; parameters and parts that are tied stay so. Unlike a
    deep copy, nothing that a hook refers to is copied.
    """
    found: M = _twin(module, {})
    return found


def _twin(value: Any, memo: dict[int, Any]) -> Any:
    if id(value) in memo or value is None:
        return memo.get(id(value))
    if isinstance(value, nn.Parameter):
        memo[id(value)] = nn.Parameter(value.detach(), value.is_floating_point() or value.is_complex())
    elif isinstance(value, torch.Tensor):
        memo[id(value)] = value.clone()
    else:
        memo[id(value)] = found = object.__new__(type(value))
        found.__dict__.update({k: v.copy() if isinstance(v, dict) else v for k, v in vars(value).items()})
        for kind in ("_parameters", "_buffers", "_modules"):
            found.__dict__[kind] = {k: _twin(v, memo) for k, v in vars(value)[kind].items()}
    return memo[id(value)]
