"""What model and optimizer a run is of, in words: what a state dict does not say."""

from typing import Any

from torch import nn
from torch.optim import Optimizer

_LISTED = 3


def kinds(model: nn.Module, optimizer: Optimizer, scheduler: Any) -> dict[str, str]:
    """Return the kind and the options of every part, and the type of every tensor of the model, by name.

    >>> import torch
    >>> kinds(nn.Dropout(0.1), torch.optim.SGD([torch.ones(1)]), None)
    {'the model': 'Dropout(p=0.1, inplace=False)', 'the optimizer': 'SGD', 'the scheduler': 'NoneType'}
    """
    found = {k or "the model": f"{type(m).__name__}({m.extra_repr()})" for k, m in model.named_modules()}
    frozen = {k for k, p in model.named_parameters(remove_duplicate=False) if not p.requires_grad}
    for name, value in model.state_dict().items():
        found[name] = f"{getattr(value, 'dtype', type(value).__name__)}{', frozen' * (name in frozen)}"
    return found | {"the optimizer": type(optimizer).__name__, "the scheduler": type(scheduler).__name__}


def refuse_others(saved: dict[str, str], own: dict[str, str]) -> None:
    """Raise an error if a run would go on with other parts than it began with.

    Raises:
        ValueError: which names the parts that differ, the first few of many.
    """
    names = [name for name in {**saved, **own} if saved.get(name) != own.get(name)]
    if names:
        listed = [f"{k} {saved.get(k, 'absent')}, not {own.get(k, 'absent')}" for k in names[:_LISTED]]
        listed += [f"and {len(names) - _LISTED} others"] * (len(names) > _LISTED)
        raise ValueError(f"a run must go on with its own model and optimizer; it has {'; '.join(listed)}.")
