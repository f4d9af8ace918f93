"""Layers as people write them, in many styles: the row that each must get, and what must be said of it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import normgeom as ng

EPS = 1e-5
RMS = (True, False, False, True, False, True)
LAYER_NORM = (True, True, False, True, False, True)
BATCH_NORM = (True, False, True, True, True, False)


class Wide(nn.Module):
    """RMS norm in float32 with a gain, an eps under a name of its own, and the type of what came."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 5))
        self.variance_epsilon = 1e-6

    def forward(self, hidden):
        wide = hidden.to(torch.float32)
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * (wide * scale).to(hidden.dtype)


class Written(nn.Module):
    """RMS norm that declares one eps and adds another."""

    def __init__(self, declared, added):
        super().__init__()
        self.eps, self.added = declared, added

    def forward(self, summed):
        return summed / (summed.square().mean(1, keepdim=True) + self.added).sqrt()


class Learned(nn.Module):
    """RMS norm whose eps is a positive function of a parameter."""

    def __init__(self):
        super().__init__()
        self.eps = nn.Parameter(torch.tensor(-11.5))

    def forward(self, summed):
        return summed / (summed.square().mean(1, keepdim=True) + F.softplus(self.eps)).sqrt()


def one_case_after_another(z):
    cases = [(case - case.mean()) / (case.var(correction=0) + EPS).sqrt() for case in z]
    return torch.stack(cases)


def by_median(z):
    centred = z - z.median(1, keepdim=True).values
    return centred / (centred.abs().median(1, keepdim=True).values + EPS)


def causal(z):
    mean = z.cumsum(1) / torch.arange(1, 6)
    return (z - mean) / (z.std(1, keepdim=True) + EPS)


def without_gradient(z):
    with torch.no_grad():
        mean, variance = z.mean(0), z.var(0, correction=0)
    return (z - mean) / (variance + EPS).sqrt()


@torch.no_grad()
def frozen(z):
    return F.layer_norm(z, z.shape[1:])


BY_HAND = {
    "in float32": (Wide(), RMS),
    "an eps that is declared and written again": (Written(1e-5, 1e-5), RMS),
    "another eps than the one declared": (Written(1e-5, 1e-4), RMS),
    "an eps declared and none added": (Written(1e-5, 0.0), RMS),
    "a learned eps": (Learned(), RMS),
    "logarithms": (lambda z: torch.log(z.abs() + EPS) - torch.log(z.abs() + EPS).mean(1, True), RMS),
    "a smooth sign": (lambda z: z / (z.abs() + EPS), (True, False, True, True, False, True)),
    "case after case": (one_case_after_another, LAYER_NORM),
    "medians": (by_median, LAYER_NORM),
    "causal means": (causal, LAYER_NORM),
    "layer norm twice": (lambda z: F.layer_norm(F.layer_norm(z, (5,)), (5,)), LAYER_NORM),
    "batch statistics without gradient": (without_gradient, BATCH_NORM),
    "no gradient": (frozen, LAYER_NORM),
    "a blend of variance and 1": (
        lambda z: (z - z.mean(1, True)) / ((1 - 1e-3) * z.var(1, keepdim=True) + 1e-3).sqrt(), LAYER_NORM
    ),
    "one case left out": (lambda z: torch.cat([F.layer_norm(z[:5], (5,)), z[5:]]), (False,) * 6),
    "a leak of 1e-9": (lambda z: F.layer_norm(z, (5,), eps=0.0) + 1e-9 * z, (False,) * 6),
}  # fmt: skip
SAID = {
    "another eps than the one declared": "+ eps (0.0001), test_by_hand.py:38",
    "a learned eps": "+ eps (1.013e-05), test_by_hand.py:49",
    "case after case": "+ eps (1e-05), test_by_hand.py:53 (6 times)",
    "batch statistics without gradient": "the gradient identity fails",
    "no gradient": "the outputs carry no gradient",
    "medians": "there is no rule for aten.median, test_by_hand.py:58",
}


@pytest.fixture(scope="module")
def rows():
    def layer(subject):
        return subject if isinstance(subject, nn.Module) else lambda w, x: subject(x @ w.T)

    return {name: ng.check(layer(subject)) for name, (subject, _) in BY_HAND.items()}


@pytest.mark.parametrize("name", BY_HAND)
def test_the_row_of_a_layer_written_by_hand(rows, name):
    assert rows[name].holds == BY_HAND[name][1]


@pytest.mark.parametrize("name", SAID)
def test_what_is_said_of_a_layer_written_by_hand(rows, name):
    assert SAID[name] in "\n".join([*rows[name].remarks, *(verdict.reason for verdict in rows[name])])


def test_a_layer_without_faults_has_no_remarks(rows):
    assert [name for name, row in rows.items() if row.remarks] == ["no gradient"]


def test_one_place_is_said_once(rows):
    assert rows["layer norm twice"][0].reason.count("+ eps") == 1
