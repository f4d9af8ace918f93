"""Models for scans: a function as a module, a norm with a way around it, an auxiliary output."""

from dataclasses import dataclass

import torch
from torch import nn

BATCH = torch.randn(8, 4, generator=torch.Generator().manual_seed(5))


def seeded(make):
    """Make a model with this module's own random numbers."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make()


class Fn(nn.Module):
    """A function as a module; with a size, one with a parameter that multiplies the input first."""

    def __init__(self, function, size=0):
        super().__init__()
        self.function = function
        self.w = nn.Parameter(torch.ones(size)) if size else None

    def forward(self, x):
        return self.function(x if self.w is None else x * self.w)


class Residual(nn.Module):
    """A norm, and beside it a path of some size that sees the length of the weight."""

    def __init__(self, size):
        super().__init__()
        self.a, self.n, self.size = nn.Linear(4, 6, bias=False), nn.LayerNorm(6), size

    def forward(self, x):
        a = self.a(x)
        return torch.tanh(self.n(a) + self.size * a)


@dataclass
class Outputs:
    main: torch.Tensor
    auxiliary: tuple


class TwoOutputs(nn.Module):
    """A dataclass of outputs, one of which sees the hidden layer."""

    def __init__(self):
        super().__init__()
        self.a, self.c = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x):
        hidden = self.a(x).relu()
        return Outputs(self.c(hidden), ({"hidden": hidden.mean()}, "a word"))


class OnlyFloat32(nn.Module):
    """Refuses any other type."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        if next(self.model.parameters()).dtype != torch.float32:
            raise RuntimeError("float32 only")
        return self.model(x)
