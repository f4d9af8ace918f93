"""Layers with an argument that changes an operator's law: rules alone must never call them invariant."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import normgeom as ng


def normed(z):
    return F.layer_norm(z, z.shape[1:])


def square_mean(z):
    return z.pow(2).mean(1, keepdim=True)


def multiplied(x, w, **options):
    return torch.addmm(torch.zeros(len(x), len(w), dtype=x.dtype), x, w.T, **options)


SUMMED = {
    "rounded down": (lambda z: normed(torch.div(z, 0.25, rounding_mode="floor")), ng.WeightMatrixRecenter),
    "rounded to 0": (lambda z: normed(torch.div(z, 0.25, rounding_mode="trunc")), ng.CaseRescale),
    "integer quotient": (lambda z: normed(z // 0.25), ng.WeightMatrixRescale),
    "integers": (lambda z: normed((z * 8).int().to(z.dtype)), ng.WeightMatrixRecenter),
    "a sum of integers": (lambda z: z / (z.abs().sum(1, True, dtype=torch.int32) + 1), ng.CaseRescale),
    "a mean in half precision": (
        lambda z: z - z.mean(1, keepdim=True, dtype=torch.half), ng.WeightMatrixRecenter,
    ),
    "half precision": (lambda z: normed(z.half()).to(z.dtype), ng.WeightMatrixRecenter),
    "half precision again": (lambda z: normed(z.bfloat16().to(z.dtype)), ng.CaseRescale),
    "the bits of numbers": (lambda z: normed(z.view(torch.float32)), ng.CaseRescale),
    "a bound from both sides": (lambda z: z / torch.clamp(square_mean(z), 1e-6, 1.0).sqrt(), ng.CaseRescale),
    "a large multiple of eps": (
        lambda z: z / torch.add(square_mean(z), 1e-3, alpha=1e6).sqrt(), ng.CaseRescale,
    ),
    "a number like a node's": (lambda z: z * 4 - z * z.mean(1, keepdim=True), ng.WeightMatrixRecenter),
    "a tiny power": (lambda z: z.abs() ** 1e-7, ng.CaseRescale),
    "nearly the first power": (lambda z: z / z.abs() ** 1.0000001, ng.CaseRescale),
    "a count as a norm": (lambda z: z / z.norm(p=0, dim=1, keepdim=True), ng.CaseRescale),
    "flipped along two axes": (lambda z: z.flip(0, 1) / z, ng.WeightVectorRescale),
    "flipped along two axes, back": (lambda z: z.flip(1, 0) / z, ng.CaseRescale),
}  # fmt: skip
MULTIPLIED = {
    "a factor of a product": lambda w, x: multiplied(x, w, alpha=2) - x @ w.T,
    "a factor of what is added": lambda w, x: torch.addmm(x @ w.T, x, w.T, beta=2) - 2 * (x @ w.T),
}
POOLED = {
    "a sum for a mean": {"divisor_override": 1},
    "padded": {"padding": 1},
    "zeros not counted": {"padding": 1, "count_include_pad": False, "divisor_override": 3},
}


def by_rules(subject, transform, **sizes):
    (found,) = ng.check(subject, [transform], engines=["abstract"], **sizes)
    return found


@pytest.mark.parametrize("name", SUMMED)
def test_an_argument_that_changes_the_law_is_seen(name):
    function, action = SUMMED[name]
    assert by_rules(lambda w, x: function(x @ w.T), action).kind is ng.Kind.UNDECIDED


@pytest.mark.parametrize("name", MULTIPLIED)
def test_factors_of_a_product_and_what_is_added(name):
    assert not by_rules(MULTIPLIED[name], ng.WeightMatrixRecenter).holds


@pytest.mark.parametrize("name", POOLED)
def test_a_pooling_that_is_no_mean(name):
    def layer(weight, data):
        z = F.conv2d(data, weight)
        pooled = F.avg_pool2d(z, 3, stride=1, **POOLED[name])
        inner = z if "padding" in POOLED[name] else z[:, :, 1:-1, 1:-1]
        return inner - pooled

    subject = ng.function_layer(layer, kernel=(2, 2), spatial=(6, 6))
    assert not by_rules(subject, ng.DatasetRecenter).holds


def test_a_cast_is_named():
    found = by_rules(lambda w, x: normed((x @ w.T).half()).to(x.dtype), ng.WeightMatrixRecenter)
    assert "a cast to torch.float16" in found.reason
    wide = by_rules(lambda w, x: normed((x @ w.T).float()).to(x.dtype), ng.WeightMatrixRecenter)
    assert wide.kind is ng.Kind.INVARIANT


@pytest.mark.parametrize("delta", [-2.0, torch.tensor([-2.0, 3.0, -1.0, 2.0, 5.0])])
def test_the_sign_of_an_element_is_that_of_its_numbers(delta):
    kind = ng.WeightMatrixRescale if isinstance(delta, float) else ng.WeightVectorRescale
    norm = nn.LayerNorm(5) if isinstance(delta, float) else nn.BatchNorm1d(5)
    assert by_rules(norm, kind(delta)).kind is ng.Kind.UNDECIDED
    assert by_rules(norm, kind(abs(delta))).kind is ng.Kind.UP_TO_EPS
    absolute = ng.as_layer(lambda w, x: (x @ w.T).abs() / (x @ w.T).norm(dim=0, keepdim=True))
    assert by_rules(absolute, kind(delta)).kind is ng.Kind.INVARIANT


class Squared(ng.WeightMatrixRescale):
    def _act(self, array):
        return array**2


def test_an_action_that_acts_otherwise_than_its_class_says_is_not_judged():
    assert "not one of normgeom's actions" in by_rules(nn.LayerNorm(5), Squared).reason


def test_an_axis_of_size_1_makes_a_proof_one_of_this_size():
    def proof(spatial, **options):
        layer = ng.on_summed_inputs(nn.GroupNorm(1, 4, eps=0.0), kernel=(2, 2), spatial=spatial)
        return by_rules(layer, ng.WeightMatrixRecenter, **options)

    one = proof((2, 2))
    assert not one.holds or "this size" in str(one.proof)
    assert not proof((4, 4)).holds
    assert "every size" in str(by_rules(nn.LayerNorm(5), ng.WeightMatrixRecenter).proof)
