"""What norms are given inside a layer that runs its cells without calling their norms: seen on a twin of it.

A hook on such a norm would take the layer off its kernel, and so change the last digits of the run.
"""

import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from normgeom.copies import computes_a_weight, twin


def place_to_hook(known: Mapping[str, nn.Module], name: str) -> str:
    """Return the module whose call tells what a norm is given: the norm, or the layer that must be replayed.

    A cell computes its products itself (`project`, `step`). A layer that lists it in `cells()` does not call
    it; and a cell may normalize its weights in place of the products with ids, one for every word.
    """
    parent, _, own = name.rpartition(".")
    cell = known[parent]
    if not name or not (hasattr(cell, "project") and hasattr(cell, "step")):
        return name
    owner = parent.rpartition(".")[0]
    cells = getattr(known[owner], "cells", None) if parent else None
    if inspect.ismethod(cells) and any(each is cell for each in cells().values()):
        return owner
    return parent if own == "norm_input" else name


def replay(
    layer: nn.Module,
    looks: Mapping[str, Callable[[nn.Module, tuple[Any, ...]], None]],
    inputs: tuple[Any, ...],
    options: Mapping[str, Any],
) -> None:
    """Run a layer once more, with the same random numbers, and look at modules inside.

    Args:
        layer: about to be called; neither it nor the random state is changed.
        looks: by the name of the module within the layer, called with it and its inputs.
        inputs: of the call. Ids become one-hot vectors where the norm of their products is meant.
        options: the named inputs of the call.
    """
    copied = _twin(layer)
    for name, look in looks.items():
        copied.get_submodule(name).register_forward_pre_hook(look)
    # Taps collect what passes: a second pass would collect twice.
    options = {name: value for name, value in options.items() if name != "taps"}
    first, *rest = inputs or (options.pop("x"),)
    if any(name.endswith("norm_input") for name in looks):
        first = _as_features(layer, first)
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.no_grad(), torch.random.fork_rng(devices):
        copied.forward(first, *rest, **options)


def _twin(module: nn.Module) -> nn.Module:
    """A module with the same parameters, buffers of its own, and no hooks but those that compute weights."""
    made = twin(module)
    for part in made.modules():
        kept = {key: hook for key, hook in part._forward_pre_hooks.items() if computes_a_weight(hook)}
        for name in [name for name in vars(part) if "_hooks" in name]:
            vars(part)[name] = OrderedDict()
        part._forward_pre_hooks.update(kept)
    return made


def _as_features(layer: Any, x: Any) -> Any:
    """Ids as one-hot vectors; features as they are."""
    if isinstance(x, PackedSequence):
        data = _as_features(layer, x.data)
        return PackedSequence(data, x.batch_sizes, x.sorted_indices, x.unsorted_indices)
    if not isinstance(x, Tensor) or x.is_floating_point():
        return x
    return F.one_hot(x.long(), layer.input_size).to(next(layer.parameters()).dtype)
