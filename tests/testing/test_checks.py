"""Checks of claims, both ways, and what they say when a claim is wrong."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import normgeom as ng
from normgeom.testing import invariance_checks, strategies
from normgeom.testing.evidence import Evidence

LAYER_NORM = ["WeightMatrixRescale", "WeightMatrixRecenter", "DatasetRescale", "CaseRescale"]


def variance_for_deviation(weight, data):
    """The classic mistake: divided by the variance."""
    a = data @ weight.T
    return (a - a.mean(1, keepdim=True)) / a.var(1, keepdim=True)


def eps_outside(weight, data):
    a = data @ weight.T
    return (a - a.mean(1, keepdim=True)) / (a.std(1, keepdim=True) + 1e-3)


class Uncentred(nn.Module):
    def forward(self, summed):
        return summed / summed.std(1, keepdim=True)


def one_pass(weight, data):
    """Half the digits are lost in E[a^2] - E[a]^2."""
    a = data @ weight.T + 1000
    return (a - a.mean(1, keepdim=True)) / (
        a.square().mean(1, keepdim=True) - a.mean(1, keepdim=True) ** 2
    ).sqrt()


def run(layer, claims, **options):
    """Run all checks; return the texts of those that fail, by id."""
    failed = {}
    for check in invariance_checks(layer, claims, **options):
        try:
            check()
        except AssertionError as why:
            failed[check.id] = str(why)
    return failed


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_right_claims_hold(dtype):
    assert run(ng.LayerNorm(), LAYER_NORM, dtype=dtype, bit_exact=True, examples=8) == {}


@pytest.mark.parametrize(
    ("layer", "claims"),
    [
        (ng.BatchNorm(), ["WeightMatrixRescale", "WeightVectorRescale", "DatasetRescale", "DatasetRecenter"]),
        (ng.as_layer(ng.RMSNorm(), eps=1e-5), ["WeightMatrixRescale", "DatasetRescale", "CaseRescale"]),
        (nn.LayerNorm(4), LAYER_NORM),
        (nn.GroupNorm(1, 4), LAYER_NORM),
    ],
    ids=["batch", "rms with eps", "nn.LayerNorm", "nn.GroupNorm"],
)
def test_right_claims_of_other_layers_hold(layer, claims):
    assert run(layer, claims, examples=5) == {}


def test_a_wrong_claim_fails_with_a_matrix_that_can_be_read():
    failed = run(ng.LayerNorm(), [*LAYER_NORM, "DatasetRecenter"], examples=10)
    (text,) = failed.values()
    assert set(failed) == {"LayerNorm-DatasetRecenter-invariant"}
    assert "claimed to be invariant under DatasetRecenter, but it is not. The layer is to blame" in text
    assert "weight = [[" in text
    assert "action = DatasetRecenter([" in text
    assert "becomes" in text


def test_a_forgotten_claim_fails_and_is_named():
    (text,) = run(ng.LayerNorm(), LAYER_NORM[:-1], examples=3).values()
    assert "Add 'CaseRescale' to claims, or break the invariance" in text


def test_a_law_of_its_own_is_named():
    failed = run(variance_for_deviation, ["DatasetRescale", "WeightMatrixRecenter"], examples=3)
    text = failed["variance_for_deviation-DatasetRescale-invariant"]
    assert "Its outputs follow a law of their own" in text
    assert "delta^-1" in text.replace("δ", "delta")


def test_an_eps_in_the_code_is_excused_in_claims_and_breaks_bits():
    failed = run(eps_outside, ["CaseRescale"], transforms=[ng.CaseRescale], bit_exact=True, examples=3)
    assert set(failed) == {"eps_outside-CaseRescale-bit_exact"}
    assert "identical bits under CaseRescale" in failed["eps_outside-CaseRescale-bit_exact"]


def test_a_broken_claim_of_a_module_names_the_line():
    failed = run(Uncentred(), ["WeightVectorRescale"], transforms=[ng.WeightVectorRescale], examples=2)
    assert "test_checks.py:" in failed["Uncentred-WeightVectorRescale-invariant"]


def test_rounding_is_blamed_for_rounding():
    options = {"transforms": [ng.WeightMatrixRecenter], "dtype": torch.float32, "examples": 3}
    (text,) = run(one_pass, ["WeightMatrixRecenter"], **options).values()
    assert "digits" in text or "rounding" in text


def test_degenerate_points_have_checks_of_their_own():
    ids = [check.id for check in invariance_checks(nn.LayerNorm(4), LAYER_NORM)]
    assert "LayerNorm-equal_units-finite" in ids
    assert "LayerNorm-zero_weight-finite" in ids
    failed = run(ng.LayerNorm(), LAYER_NORM, degenerate=True, examples=1)
    assert set(failed) == {
        "LayerNorm-zero_weight-finite",
        "LayerNorm-equal_units-finite",
        "LayerNorm-zero_case-finite",
    }
    assert "An eps inside the root keeps them so" in failed["LayerNorm-zero_case-finite"]


def test_a_gradient_that_is_not_finite_is_found():
    layer = lambda w, x: x @ w.T / (x @ w.T).norm(dim=1, keepdim=True).clamp_min(1e-6)  # noqa: E731
    layer = ng.as_layer(layer, name="clamped")
    claims = ["WeightMatrixRescale", "DatasetRescale", "CaseRescale"]
    assert run(layer, claims, degenerate=True, examples=2) == {}
    rooted = ng.as_layer(lambda w, x: (x @ w.T).square().sum(1, keepdim=True).sqrt() + 1, name="root")
    failed = run(rooted, [], transforms=[ng.CaseRescale], degenerate=True)
    assert "gradient of the weight" in failed["root-zero_case-finite"]


def test_bad_arguments_are_refused_before_any_check():
    with pytest.raises(ValueError, match="a claim must name an action, of CaseNegativeRescale"):
        invariance_checks(ng.LayerNorm(), ["Rescale"])
    with pytest.raises(ValueError, match="must be an action's class or its name"):
        invariance_checks(ng.LayerNorm(), [3])
    with pytest.raises(ValueError, match="examples must be a whole number"):
        invariance_checks(ng.LayerNorm(), examples=0)
    with pytest.raises(TypeError, match="a layer must be"):
        invariance_checks(3)


@given(strategies.weights(5, 3), strategies.datasets())
def test_points_are_exact_and_well_posed(weight, data):
    assert torch.equal(weight.bfloat16().double(), weight)
    assert (weight.std(1) > 0).all()
    assert torch.pdist(weight).min() > 0
    assert torch.pdist(data).min() > 0


@given(strategies.layers(), strategies.actions(), st.data())
def test_strategies_fit_each_other(layer, action, data):
    weight, inputs = data.draw(strategies.weights()), data.draw(strategies.datasets())
    moved = data.draw(strategies.transforms(action, weight, inputs))(weight, inputs)
    assert layer(*moved).shape == (5, 4)
    assert (
        not all(torch.equal(a, b) for a, b in zip(moved, (weight, inputs), strict=True))
        or action.sign is None
    )


@given(strategies.scales(sign=-1, powers_of_two=True))
def test_powers_of_two(scale):
    assert scale < 0
    assert torch.tensor(-scale).log2() % 1 == 0


class HiddenEps(nn.Module):
    def forward(self, summed):
        return summed / (summed.square().mean(1, keepdim=True) + 1e-5).sqrt()


def test_an_eps_in_the_code_asks_for_degenerate_points_too():
    ids = [check.id for check in invariance_checks(HiddenEps(), [], transforms=[])]
    assert ids == [
        f"HiddenEps-{name}-finite" for name in ("zero_weight", "equal_units", "equal_cases", "zero_case")
    ]
    assert list(invariance_checks(ng.RMSNorm(), [], transforms=[])) == []
    assert list(invariance_checks(Uncentred(), [], transforms=[])) == []


def far_off(weight, data):
    a = data @ weight.T + 30000
    return (a - a.mean(1, keepdim=True)) / a.std(1, keepdim=True)


def test_a_claim_that_no_point_decides_fails():
    """In bfloat16 all digits are gone, whatever the exact engines say of the code."""
    options = {"transforms": [], "dtype": torch.bfloat16, "examples": 4}
    (text,) = run(far_off, ["WeightMatrixRecenter"], **options).values()
    assert "nothing can be decided at any of 4 points" in text
    assert "a variance is 0 there" in text


class Steered(nn.Module):
    """A right norm that cannot be exported, whose eps no rule sees: its control flow asks for values."""

    def __init__(self, inside):
        super().__init__()
        self.inside = inside

    def forward(self, summed):
        if summed.abs().max() > 1e9:
            return summed
        square = summed.square().mean(1, keepdim=True)
        return summed / ((square + 1e-5).sqrt() if self.inside else square.sqrt() + 1e-5)


class Narrow(nn.Module):
    def forward(self, summed):
        low = summed.bfloat16()
        return ((low - low.mean(1, keepdim=True)) / low.std(1, keepdim=True)).to(summed.dtype)


class StrayBias(nn.Module):
    def forward(self, summed):
        moved = summed + torch.arange(4.0).to(summed)
        return (moved - moved.mean(1, keepdim=True)) / moved.std(1, keepdim=True)


@pytest.mark.parametrize(
    ("layer", "blamed"),
    [
        (Steered(True), ("An eps may be to blame", "as for one inside a root", "an attribute `eps`")),
        (Steered(False), ("an eps outside a root, may be to blame", "cannot be exported", "test_checks.py:")),
        (StrayBias(), ("Something added before the norm, or an eps outside a root", "test_checks.py:")),
        (Narrow(), ("rounding is to blame", "narrow cast to bfloat16 at test_checks.py:")),
        (Uncentred(), ("The layer is to blame: neither rounding nor an eps", "test_checks.py:")),
    ],
    ids=["eps inside", "eps outside", "bias", "narrow", "layer"],
)
def test_what_is_to_blame(layer, blamed):
    action = ng.WeightVectorRescale if isinstance(layer, Uncentred) else ng.CaseRescale
    (text,) = run(layer, [action], transforms=[], degenerate=False, examples=3).values()
    assert all(part in text for part in blamed), text


@given(strategies.weights(5, 3), strategies.datasets(), strategies.scales())
def test_nothing_drawn_is_subnormal(weight, data, scale):
    """HYP-02: squares of what is drawn are far from the end of every type's range, half types too."""
    drawn = torch.cat([weight.flatten(), data.flatten(), scale * data.flatten()])
    assert ((drawn == 0) | (drawn.abs() >= 2.0**-6)).all()
    assert drawn.abs().max() < 2.0**8


def test_flushing_subnormals_changes_nothing():
    """HYP-02: there Hypothesis refuses to draw floats; fractions of whole numbers it draws."""
    claims = ["WeightMatrixRescale", "DatasetRescale", "CaseRescale"]
    try:
        torch.set_flush_denormal(True)
        assert run(ng.RMSNorm(), claims, dtype=torch.float32, bit_exact=True, examples=3) == {}
    finally:
        torch.set_flush_denormal(False)


def test_where_a_naive_property_test_shrinks_to_eps_is_to_blame():
    """HYP-04: at the row (0, 0, 0, 1), scaled by 1/2, eps changes layer norm; the claim is not refuted."""
    element, weight = ng.CaseRescale(torch.full((3,), 0.5).double()), torch.eye(4).double()
    data = torch.tensor([[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 2.0, 1.0], [1.0, 0.0, 0.0, 0.0]]).double()
    assert ng.invariance_error(nn.LayerNorm(4), element, weight, data) > 1e-6
    (verdict,) = ng.check(nn.LayerNorm(4), [element], weight=weight, data=data, engines=["numeric"])
    assert verdict.kind is ng.Kind.UP_TO_EPS
    assert Evidence(ng.as_layer(nn.LayerNorm(4)), {"cases": 3, "inputs": 4}).kept_without_rounding(
        element, weight, data
    )


@given(strategies.weights(768, 3), strategies.datasets(5, 768))
def test_large_arrays_repeat_a_few_numbers(weight, data):
    assert (weight.shape, data.shape) == ((768, 3), (5, 768))
    assert torch.equal(weight * 8, (weight * 8).round())
    assert (data.std(1) > 0.25).all()


def test_a_layer_of_many_units_is_attacked_too():
    assert run(nn.LayerNorm(768), LAYER_NORM, examples=2) == {}
    batch = nn.BatchNorm1d(768)
    assert run(batch, ["WeightVectorRescale"], transforms=[], examples=2, bit_exact=True, inputs=200) == {}
    failed = run(nn.RMSNorm(768), ["WeightMatrixRecenter"], transforms=[], examples=2)
    assert "RMSNorm-WeightMatrixRecenter-invariant" in failed
