"""Modules of one's own, for several tests."""

import torch
import torch.nn.functional as F
from torch import nn


class Standardized(nn.Module):
    """A user's parametrization."""

    def forward(self, weight):
        return (weight - weight.mean(1, keepdim=True)) / weight.std(1, keepdim=True)


class OwnMatrix(nn.Module):
    """A layer that keeps its weight itself, in no linear part."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 4, generator=torch.Generator().manual_seed(0)))

    def forward(self, data):
        return F.layer_norm(data @ self.weight.T, (5,), eps=0.0)
