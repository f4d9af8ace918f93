"""Small networks and loops that the tests of the dynamics train, and the slow way to measure a step."""

import math

import torch
from torch import nn

CASES, INPUTS, UNITS = 12, 6, 8


def network(eps=0.0, dtype=torch.float32, seed=0):
    """A layer with layer norm, and an output layer without."""
    net = nn.Sequential(
        nn.Linear(INPUTS, UNITS, bias=False), nn.LayerNorm(UNITS, eps=eps), nn.Tanh(), nn.Linear(UNITS, 3)
    ).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in net.parameters():
            value.copy_(torch.randn(value.shape, generator=generator, dtype=torch.float64) / 2)
    return net


def batches(steps, dtype=torch.float32, seed=1):
    """Inputs and targets of some steps."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(steps, CASES, INPUTS, generator=generator, dtype=torch.float64).to(dtype)
    return x, torch.randint(0, 3, (steps, CASES), generator=generator)


def train(net, optimizer, steps=4, *, mode="plain", seen=None, scaler=None):
    """A loop in one of the usual manners; `seen(net, when)` is called before and after every step."""
    x, y = batches(steps, next(net.parameters()).dtype)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5) if mode == "scheduler" else None
    scaler = scaler or (torch.amp.GradScaler("cpu", init_scale=64.0) if mode == "amp" else None)
    losses = []
    for k in range(steps):
        optimizer.zero_grad()
        halves = (slice(0, 6), slice(6, 12)) if mode == "accumulated" else (slice(None),)
        for half in halves:
            loss = nn.functional.cross_entropy(net(x[k, half]), y[k, half]) / len(halves)
            (scaler.scale(loss) if scaler else loss).backward()
        if mode == "clipped":
            nn.utils.clip_grad_norm_(net.parameters(), 0.01)
        _step(optimizer, scaler, net, seen)
        if scheduler:
            scheduler.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def _step(optimizer, scaler, net, seen):
    if scaler and seen:
        scaler.unscale_(optimizer)
    if seen:
        seen(net, "before")
    (scaler.step(optimizer) if scaler else optimizer.step())
    if seen:
        seen(net, "after")
    if scaler:
        scaler.update()


class Oracle:
    """Copies of the weights around every step, and what follows from them by the textbook formulas."""

    def __init__(self, name):
        self.name, self.rows = name, []

    def __call__(self, net, when):
        value = net.get_parameter(self.name)
        if when == "before":
            self.before = value.detach().double().clone()
            grad = value.grad.to_dense() if value.grad.is_sparse else value.grad
            self.grad = grad.detach().double().clone()
            return
        w, g, new = self.before.flatten(), self.grad.flatten(), value.detach().double().flatten()
        cosine = float(w @ new / (w.norm() * new.norm()))
        self.rows.append(
            {
                "norm": float(w.norm()),
                "gradient_norm": float(g.norm()),
                "cosine": float(w @ g / (w.norm() * g.norm())),
                "update_norm": float((new - w).norm()),
                "relative_update": float((new - w).norm() / w.norm()),
                "angular_update": math.acos(min(1.0, cosine)),
            }
        )


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, for the tests."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                sign = (first * mean + (1 - first) * p.grad).sign()
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * sign)
                mean.mul_(second).add_(p.grad, alpha=1 - second)
