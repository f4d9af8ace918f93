"""The effective learning rate: how fast an optimizer turns a block whose length does not matter."""

import torch
from torch import Tensor, optim

from normgeom.optimizers.rules import Rule, group_of, rule_of


def effective_learning_rate(
    optimizer: optim.Optimizer, parameter: Tensor, *, part: Tensor | None = None, rule: Rule | None = None
) -> float:
    """Return the effective learning rate of a block, by the optimizer's own definition.

    SGD `η/‖w‖²`; with momentum α (plain or Nesterov, dampening τ) `η(1−τ)/((1−α)‖w‖²)`; Adam, AdamW, NAdam,
    RAdam, Adamax, SparseAdam, Muon, Lion `η/‖w‖`; RMSprop `η/((1−α)‖w‖)`; for others NaN. It has a meaning
    where the function does not depend on ‖w‖: `scale_invariance` finds out.

    Args:
        optimizer: any torch optimizer; the settings of the parameter's group are read as they are now.
        parameter: one of the optimizer's parameters.
        part: the rows of it that are meant, a view; default all.
        rule: the update rule of an optimizer that is not known, such as `NormalizedRule(learning_rate)`.

    Returns:
        A number, NaN where there is no definition or the block is zero.

    Raises:
        TypeError: if the first argument is no torch optimizer, or the second no tensor.
        ValueError: if the parameter is in no group of the optimizer.

    Source: van Laarhoven 2017 (SGD); Wan et al. 2021 (momentum); Kosson et al. 2024 (Adam, AdamW, Lion).

    >>> import torch
    >>> w = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> round(effective_learning_rate(torch.optim.SGD([w], lr=0.5, momentum=0.9), w), 6)
    0.2
    >>> round(effective_learning_rate(torch.optim.AdamW([w], lr=0.5), w), 6)
    0.1
    """
    if not isinstance(optimizer, optim.Optimizer) or not isinstance(parameter, Tensor):
        raise TypeError(
            "effective_learning_rate takes (a torch.optim.Optimizer, one of its parameters); got "
            f"{type(optimizer).__name__} and {type(parameter).__name__}."
        )
    rule = rule or rule_of(optimizer, group_of(optimizer, parameter))
    block = (parameter if part is None else part).detach()
    norm = float(torch.linalg.vector_norm(block, dtype=torch.promote_types(block.dtype, torch.float64)))
    return float(rule.effective_learning_rate(norm)) if norm else float("nan")
