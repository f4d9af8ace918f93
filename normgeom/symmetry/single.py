"""Which blocks of a model can be rescaled without a change of its outputs, found by rescaling them."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from normgeom.symmetry.arguments import check_select, module_given
from normgeom.symmetry.blocks import Block, BlockView, resolve_blocks
from normgeom.symmetry.probe import Probe
from normgeom.symmetry.rescaling import PartKinds, Point
from normgeom.symmetry.result import ScaleInvariance, ScaleInvariances


def scale_invariance(
    model: nn.Module,
    batch: Any,
    *,
    blocks: Sequence[Block | str] | None = None,
    select: Callable[[Any], Any] | None = None,
    generator: torch.Generator | None = None,
) -> ScaleInvariances:
    """Return which blocks can be rescaled without a change of the outputs: `f(delta w) = f(w)`, `delta > 0`.

    Decided by rescaling the block on a copy in float64, and confirmed by the identity `<w, grad> = 0` that
    follows (van Laarhoven 2017; for layer norm, Ba et al. 2016, section 5.1). Every eps that is an attribute
    of a module is taken away for the decision; what it breaks is measured. A parameter that is zero is
    replaced by random numbers first. The model is left as found.

    Args:
        model: any module; its mode is kept, so batch norm in evaluation has no invariance.
        batch: what the model takes: a tensor, a tuple of arguments, or a dict of named arguments.
        blocks: which (default: every trainable tensor).
        select: picks the outputs from what the model returns; default all floating-point tensors.
        generator: of the random numbers used; default one with a fixed seed.

    Raises:
        TypeError: if the model is not a module, or `select` no function.
        ValueError: if a block does not exist, or the model cannot be copied, returns no tensor, or outputs
            that are not finite or nothing but rounding.

    Source: Ba et al. 2016, Table 1 (weight matrix and weight vector re-scaling), for a whole model.

    >>> net = nn.Sequential(nn.Linear(4, 6, bias=False), nn.LayerNorm(6), nn.Linear(6, 2))
    >>> found = scale_invariance(net, torch.randn(8, 4))
    >>> [str(one.kind) for one in found]
    ['whole', 'none', 'none', 'none', 'none']
    """
    model = module_given(model)
    check_select(select)
    views = resolve_blocks(model, blocks)
    generator = generator or torch.Generator().manual_seed(0)
    probe = Probe(model, batch, select=select, generator=generator)
    _fill_zero_parts(probe, views)
    decided = _decide(probe, views)
    return ScaleInvariances(tuple(one for part in decided for one in part), _mode(model))


def _mode(model: nn.Module) -> str:
    return "train" if model.training else "eval"


def _fill_zero_parts(probe: Probe, views: Sequence[BlockView]) -> None:
    """Give parts that are zero random numbers, since a rescaling cannot move them."""
    for view in views:
        value = probe.parameters[view.parameter]
        zero = ~view.split(value).flatten(1).any(1)
        if zero.any():
            other = value.clone()
            probe.fill(other)
            keep = view.scaled(torch.ones_like(value), (~zero).to(value))
            value.copy_(value * keep + other * (1 - keep))


def _decide(probe: Probe, views: Sequence[BlockView]) -> list[list[ScaleInvariance]]:
    probe.without_eps()
    test = Point(probe)
    kinds = [PartKinds(test, view) for view in views]
    probe.with_eps()
    own = probe.plain() if probe.has_eps else test.wanted
    return [kind.results(own) for kind in kinds]
