"""Scaling a block and its learning rate together leaves the whole run of the function unchanged."""

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn, optim

from normgeom.copies import results_by_value
from normgeom.dynamics.laws.check import LawCheck
from normgeom.optimizers.rules import AdamRule, LionRule, NormalizedRule, Rule, SGDRule, group_of, rule_of

_SAFETY = 10.0
_VACUOUS = 100.0
_NUDGED_RUNS = 3


def scale_equivalence(
    model: nn.Module,
    optimizer: optim.Optimizer,
    parameter: str,
    run: Callable[[nn.Module, optim.Optimizer], Tensor],
    *,
    factor: float = 2.0,
    generator: torch.Generator | None = None,
) -> LawCheck:
    """Check that `w -> δ w` with its learning rate times δ² (SGD) or δ (Adam, Lion) gives the same run.

    Weight decay goes with 1/δ² (SGD, Adam with L2) or 1/δ (AdamW, Muon, Lion), and Adam's eps with 1/δ. A
    power of two leaves every digit the same. `run` is called six times, each time on fresh copies and with
    the same random state: as it is, with both scaled, three times with weights moved by about one rounding
    before the first and after every step (the largest effect is the tolerance, times 10), and with the
    weights alone scaled, which must make a difference.

    Args:
        model: the model at the start; it is not trained.
        optimizer: its optimizer at the start, without state for the parameter.
        parameter: the block, by the name of its tensor.
        run: the loop, `(model, optimizer) -> losses or outputs` as one tensor; it must use what it is given.
        factor: δ > 0.
        generator: of the roundings; default one with a fixed seed.

    Returns:
        A `LawCheck`: the last number of the run as it is (predicted) and scaled (measured); the error is the
        largest difference over the run, relative to its largest number.

    Raises:
        TypeError: if run returns no tensor.
        ValueError: for an unknown parameter, one in no group, an optimizer with state, a factor <= 0 or 1, or
            with Muon one that is no power of two; or if run returns an empty tensor or numbers not finite.

    Source: `∇L(δw) = ∇L(w)/δ`; van Laarhoven 2017, Ba et al. 2016, section 5.2.2.

    >>> net = nn.Sequential(nn.Linear(3, 4, bias=False), nn.LayerNorm(4, eps=0.0), nn.Linear(4, 1))
    >>> x = torch.randn(8, 3)
    >>> def run(net, optimizer):
    ...     losses = []
    ...     for _ in range(5):
    ...         optimizer.zero_grad()
    ...         losses.append((net(x) - 1).square().mean())
    ...         losses[-1].backward()
    ...         optimizer.step()
    ...     return torch.stack(losses)
    >>> found = scale_equivalence(net, optim.SGD(net.parameters(), lr=0.1), "0.weight", run)
    >>> found.holds, found.error
    (True, 0.0)
    """
    rule = _checked(model, optimizer, parameter, factor)
    generator = generator or torch.Generator().manual_seed(0)
    plain = _run(model, optimizer, parameter, run)
    if not plain.isfinite().all():
        place = int((~plain.isfinite()).nonzero()[0])
        raise ValueError(f"run must return finite numbers; number {place} is {float(plain[place])}.")
    both = _run(model, optimizer, parameter, run, factor, settings=_settings(rule, factor))
    nudged = [_run(model, optimizer, parameter, run, nudges=generator) for _ in range(_NUDGED_RUNS)]
    alone = _run(model, optimizer, parameter, run, factor)
    size = plain.abs().max()
    rounding = max(float((other - plain).abs().max() / size) for other in nudged)
    error, effect = (float((other - plain).abs().max() / size) for other in (both, alone))
    tolerance = _SAFETY * max(rounding, torch.finfo(model.get_parameter(parameter).dtype).eps)
    holds: bool | None = error <= tolerance
    reason = "" if holds else _reason(plain, both, size, tolerance)
    if holds and effect <= max(_VACUOUS * error, tolerance):
        holds, reason = None, "scaling the weights alone changed nothing: does run use what it is given?"
    return LawCheck(
        "scale equivalence", parameter, float(plain[-1]), float(both[-1]), error, tolerance, holds, reason
    )


def _checked(model: nn.Module, optimizer: optim.Optimizer, parameter: str, factor: float) -> Rule:
    """The rule of the block's optimizer, or an error."""
    named = dict(model.named_parameters())
    if parameter not in named:
        raise ValueError(f"the model has no parameter {parameter!r}; it has {', '.join(named)}.")
    if not (math.isfinite(factor) and factor > 0 and factor != 1):
        raise ValueError(f"the factor must be finite, above 0 and not 1; got {factor}.")
    rule = rule_of(optimizer, group_of(optimizer, named[parameter]))
    if isinstance(optimizer, optim.RAdam):
        raise ValueError("no law for this optimizer: its first steps are not divided by the gradient's size.")
    if type(optimizer).__name__ == "Muon" and math.frexp(factor)[0] != 0.5:
        raise ValueError(f"Muon rounds its steps to bfloat16: take a power of two; got {factor}.")
    if not isinstance(rule, SGDRule | AdamRule | LionRule | NormalizedRule):
        raise ValueError(f"no law for this optimizer: {getattr(rule, 'reason', type(rule).__name__)}.")
    if optimizer.state.get(named[parameter]):
        raise ValueError(
            f"the optimizer must be at its start; it has state of earlier steps for {parameter!r}."
        )
    return rule


def _settings(rule: Rule, factor: float) -> dict[str, float]:
    """What each setting of the block's group is multiplied by."""
    if isinstance(rule, SGDRule):
        return {"lr": factor**2, "weight_decay": factor**-2}
    coupled = isinstance(rule, AdamRule | NormalizedRule) and not rule.decoupled
    return {"lr": factor, "weight_decay": factor**-2 if coupled else 1 / factor, "eps": 1 / factor}


def _run(
    model: nn.Module,
    optimizer: optim.Optimizer,
    parameter: str,
    run: Callable[[nn.Module, optim.Optimizer], Tensor],
    factor: float = 1.0,
    *,
    settings: dict[str, float] | None = None,
    nudges: torch.Generator | None = None,
) -> Tensor:
    """The run on copies whose block is scaled or nudged, and whose block's settings are multiplied."""
    own_model, own_optimizer = copy.deepcopy((model, optimizer), results_by_value(model))
    block = own_model.get_parameter(parameter)
    with torch.no_grad():
        block.mul_(factor)
    if settings:
        _split_group(own_optimizer, block, settings)
    if nudges is not None:
        _nudge(block, nudges)
        # Every step rounds anew: one nudge at the start would miss what the later ones add.
        own_optimizer.register_step_post_hook(lambda *_: _nudge(block, nudges))
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        found = run(own_model, own_optimizer)
    if not isinstance(found, Tensor):
        raise TypeError(f"run must return a tensor of losses or outputs; got {type(found).__name__}.")
    if not found.numel():
        raise ValueError("run must return a tensor of losses or outputs; got an empty one.")
    return found.detach().double().reshape(-1).cpu()


def _split_group(optimizer: optim.Optimizer, block: Tensor, settings: dict[str, float]) -> None:
    """Give a parameter a group of its own with settings multiplied."""
    group = group_of(optimizer, block)
    own: dict[str, Any] = {**group, "params": [block]}
    for name, by in settings.items():
        if name in own:
            own[name] = own[name] * by
    group["params"] = [value for value in group["params"] if value is not block]
    optimizer.add_param_group(own)


@torch.no_grad()
def _nudge(value: Tensor, generator: torch.Generator) -> None:
    """Move weights by about one rounding."""
    noise = torch.randn(value.shape, generator=generator, dtype=torch.float64)
    value.mul_(1 + torch.finfo(value.dtype).eps * noise.to(value))


def _reason(plain: Tensor, both: Tensor, size: Tensor, tolerance: float) -> str:
    """Where the runs part."""
    apart = (~((plain - both).abs() <= tolerance * size)).nonzero()[0].item()
    return (
        f"the runs part at number {apart}: the block is not scale invariant, an eps > 0 breaks it, or run "
        "does not use the optimizer it is given"
    )
