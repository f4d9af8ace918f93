"""Character language models on the novel, trained and watched: what the analyses of training share."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn, optim

from normgeom.dynamics import track
from normgeom.models import LNLSTM, CharLM, Placement
from normgeom.training import Corpus, NextCharacter, train

BLOCKS = {"W_h": "core.layer0.weight_recurrent", "W_x": "core.layer0.weight_input"}
LABELS = {name: label for label, name in BLOCKS.items()}
CELLS = {"LN-LSTM": Placement(), "LSTM": Placement.none()}
EPS = 1e-8
"""Of the norms: so small that short weights are scale invariant too, not so small that h = 0 overflows."""


class Lion(optim.Optimizer):
    """`w -= η (sign(β₁ m + (1−β₁)∇) + λ w)`, `m = β₂ m + (1−β₂)∇` (Chen et al. 2023)."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Make a step."""
        for group in self.param_groups:
            first, second = group["betas"]
            for p in (p for p in group["params"] if p.grad is not None):
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                sign = (first * mean + (1 - first) * p.grad).sign()
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * sign)
                mean.mul_(second).add_(p.grad, alpha=1 - second)


OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {
    "SGD": optim.SGD,
    "SGD with momentum": lambda params, **options: optim.SGD(params, momentum=0.9, **options),
    "Adam": optim.Adam,
    "AdamW": optim.AdamW,
    "Lion": Lion,
}


@dataclass(frozen=True)
class Training:
    """One run: a cell, how its two weight matrices begin, and how it is trained."""

    cell: str = "LN-LSTM"
    optimizer: str = "SGD"
    rate: float = 1.0
    decay: float = 0.0
    scale: float = 1.0
    seed: int = 0
    steps: int = 100
    hidden: int = 64
    dtype: torch.dtype = torch.float32
    eps: float = EPS

    def model(self) -> CharLM:
        """Return the model at its start; scales differ in the lengths of W_h and W_x alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            sizes = (task().classes, self.hidden)
            core = LNLSTM(*sizes, placement=CELLS[self.cell], eps=self.eps, dtype=self.dtype)
            model = CharLM(core, task().classes, dtype=self.dtype)
        with torch.no_grad():
            for name in BLOCKS.values():
                model.get_parameter(name).mul_(self.scale)
        return model

    def make_optimizer(self, model: nn.Module) -> optim.Optimizer:
        """Return the optimizer; only W_h and W_x have weight decay."""
        own = [model.get_parameter(name) for name in BLOCKS.values()]
        held = {id(value) for value in own}
        groups = [
            {"params": own, "weight_decay": self.decay},
            {"params": [p for p in model.parameters() if id(p) not in held], "weight_decay": 0.0},
        ]
        return OPTIMIZERS[self.optimizer](groups, lr=self.rate)

    def run(self, device: str = "cpu") -> tuple[pd.DataFrame, CharLM]:
        """Train; return a row for every step and matrix (the tracker's columns, `bits`, C) and the model."""
        model = self.model().to(device)
        optimizer = self.make_optimizer(model)
        with track(model, optimizer, blocks=list(BLOCKS.values())) as tracker:
            bits = [record.bits for record in train(model, task(), optimizer, steps=self.steps)]
        frame = tracker.frame()
        frame["block"] = frame["block"].map(LABELS)
        frame["bits"] = np.repeat(bits, len(BLOCKS))
        frame["C"] = frame["block"].map({k: model.get_parameter(n).numel() for k, n in BLOCKS.items()})
        return frame, model


@cache
def task() -> NextCharacter:
    """Return the novel, 16 streams, 32 characters a step."""
    return NextCharacter(Corpus.from_novel(), length=32, batch_size=16)


def loss_of(model: nn.Module, number: int = 0, state: Any = None) -> tuple[Tensor, Any]:
    """Return the mean nats of a batch, and the recurrent state after it."""
    batch = task().to(next(model.parameters()).device).batch(number)
    logits, state = model(batch.inputs, state)
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten()), state


def windows(frame: pd.DataFrame, by: Sequence[str], count: int = 24) -> pd.DataFrame:
    """Return means over windows of steps, equally long on a log axis; `step` is their geometric middle."""
    steps = frame["step"].max()
    edges = np.unique(np.round(np.geomspace(1, steps + 1, count + 1)).astype(int))
    found = frame.assign(window=np.searchsorted(edges, frame["step"], side="right"))
    means = found.groupby([*by, "window"], sort=False).mean(numeric_only=True).reset_index()
    middle = np.sqrt(edges[means["window"] - 1] * (edges[means["window"]] - 1))
    return means.assign(step=middle).drop(columns="window")


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as dicts."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def slope(x: Iterable[float], y: Iterable[float]) -> float:
    """Return the slope of a straight line through points on log axes."""
    return float(np.polyfit(np.log(list(x)), np.log(list(y)), 1)[0])


def geometric_mean(values: Iterable[float]) -> float:
    """Return `exp mean log`."""
    return math.exp(np.mean(np.log(list(values))))
