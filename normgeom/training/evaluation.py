"""How well a model does on what it was not trained on."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from normgeom.processes import total
from normgeom.training.tasks import IGNORED, Batch, Task, check_model_and_task


@dataclass(frozen=True)
class HeldOut:
    """Mean bits a target and share of targets whose most probable class is the right one."""

    bits: float
    accuracy: float
    targets: int


def evaluate(model: nn.Module, task: Task) -> HeldOut:
    """Return bits per target on the held-out part, for a text the bits per character.

    `bits = -1/N sum_t log2 p(x_{t+1} | x_1 ... x_t)` over the N targets: the mean code length when the
    model drives an arithmetic coder. The model is in eval mode meanwhile and then as found. With
    `torch.distributed`, every process evaluates its share and gets the result of all.

    Args:
        model: a model of the task.
        task: with its held-out part.

    Raises:
        TypeError: for what is no module, or no task.
        ValueError: if the model tells another number of classes apart than the task has.

    Source: Graves 2013 (arXiv:1308.0850), section 3.1.

    >>> from normgeom.models import CharLM
    >>> from normgeom.training import Corpus, NextCharacter
    >>> model = CharLM(nn.LSTM(4, 8), 4)
    >>> _ = [nn.init.zeros_(p) for p in model.readout.parameters()]  # all 4 characters equally probable
    >>> evaluate(model, NextCharacter(Corpus.from_string("abcd" * 9), length=2, batch_size=2)).bits
    2.0
    """
    check_model_and_task(model, task)
    sums = torch.zeros(3, dtype=torch.float64)
    state = None
    with torch.no_grad(), in_eval_mode(model):
        for batch in task.held_out():
            logits, state = task.predict(model, batch, None if batch.fresh else state)
            sums += _sums(logits, batch, task).cpu()
    device = next(model.parameters()).device
    nats, right, targets = total(sums.to(device, torch.float64)).tolist()
    return HeldOut(nats / math.log(2) / targets, right / targets, round(targets))


def mean_nats(logits: Tensor, batch: Batch, task: Task) -> Tensor:
    """Return the mean negative log probability of the targets of a batch."""
    check_classes(logits, task)
    return functional.cross_entropy(logits.flatten(0, -2), batch.targets.flatten(), ignore_index=IGNORED)


def check_classes(logits: Tensor, task: Task) -> None:
    """Raise an error for logits of another number of classes than the task has."""
    if logits.shape[-1] != task.classes:
        raise ValueError(
            f"the model must tell the {task.classes} classes of the task apart; it has {logits.shape[-1]}."
        )


def _sums(logits: Tensor, batch: Batch, task: Task) -> Tensor:
    """Sums over the targets of a batch: nats, right answers, and 1."""
    check_classes(logits, task)
    logits, targets = logits.flatten(0, -2).double(), batch.targets.flatten()
    nats = functional.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
    right = (logits.argmax(-1) == targets).sum()
    return torch.stack((nats, right.double(), (targets != IGNORED).sum().double()))


@contextmanager
def in_eval_mode(model: nn.Module) -> Iterator[Any]:
    """Put a model in eval mode, and every part of it back in the mode it was found in."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
