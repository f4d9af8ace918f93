"""Layers whose lines the messages must name."""

import torch
from torch import nn


def plain(weight, data):
    summed = data @ weight.T
    centred = summed - summed.mean(1, keepdim=True)
    return centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()  # line 10


def clamped(weight, data):
    summed = data @ weight.T
    return summed / summed.norm(dim=1, keepdim=True).clamp_min(1e-6)  # line 15


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.variance_epsilon = nn.Parameter(torch.tensor(1e-4))

    def forward(self, summed):
        return summed * torch.rsqrt(summed.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)  # line 24


def branching(weight, data):
    summed = data @ weight.T
    if summed.sum() > 0:  # line 29
        summed = -summed
    return summed


def sorted_units(weight, data):
    return torch.sort(data @ weight.T, 1).values  # line 35


def noisy(weight, data):
    return data @ weight.T + torch.rand(5)  # line 39


class Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(5))

    def forward(self, summed):
        self.seen.mul_(0.9).add_(summed.mean(0))  # line 48
        return summed - self.seen


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, summed):
        self.calls += 1
        return summed / summed.norm(dim=1, keepdim=True)
