"""Layers, norms and transforms that would fool a careless check."""

from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import normgeom as ng
from tests.oracles import TABLE_1

Kind = ng.Kind
RESCALE, ROW, CASE = ng.WeightMatrixRescale, ng.WeightVectorRescale, ng.CaseRescale


def kinds(layer, *actions, **options):
    return [v.kind for v in ng.check(layer, actions, **options)]


def masked(weight, data):
    summed = data @ weight.T
    return summed.masked_fill(torch.eye(*summed.shape).bool(), torch.finfo(summed.dtype).min)


def padded(weight, data):
    return torch.cat([data @ weight.T, data.new_full((len(data), 1), -1e30)], 1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("layer", [masked, padded])
def test_a_large_constant_output_hides_nothing(layer, dtype):
    assert kinds(layer, *ng.TABLE_1, dtype=dtype) == [Kind.NOT_INVARIANT] * 6


def test_a_large_bias_hides_nothing():
    bias = torch.zeros(5, dtype=torch.float64).index_fill(0, torch.tensor(0), 1e14)
    row = ng.check(ng.as_layer(ng.LayerNorm(), bias=bias))
    assert row.holds == TABLE_1["LayerNorm"]


def test_a_transform_that_writes_into_its_input_is_refused(point):
    class Double:
        def __call__(self, weight, data):
            weight *= 2
            return weight, data

    before = point[0].clone()
    for call in (
        lambda: ng.check(ng.NoNorm(), [Double()]),
        lambda: ng.invariance_error(ng.NoNorm(), Double(), *point),
    ):
        with pytest.raises(ValueError, match="writes into its input"):
            call()
    assert torch.equal(point[0], before)


def test_a_negative_variance_is_not_invariant_to_anything():
    class Negative:
        def statistics(self, weight, data):
            return 0, -((data @ weight.T) ** 2).mean(axis=1, keepdims=True)

    (verdict,) = ng.check(Negative(), [CASE])
    assert verdict.kind is Kind.UNDECIDED
    assert "not positive" in verdict.reason


def test_statistics_that_compare_have_no_identity():
    class Above:
        def statistics(self, weight, data):
            summed = data @ weight.T
            mean = summed.mean(axis=1, keepdims=True)
            return 0, ((summed > mean) * (summed - mean) ** 2).mean(axis=1, keepdims=True)

    assert kinds(Above(), RESCALE, ROW) == [Kind.INVARIANT, Kind.NOT_INVARIANT]
    (verdict,) = ng.check(Above(), [RESCALE], engines=["symbolic"])
    assert verdict.kind is Kind.UNDECIDED
    assert "they compare values" in verdict.reason


class Clamped(nn.Module):
    """Divide by the length, clamped from below as F.normalize does."""

    eps = 1e-1

    def forward(self, summed):
        return summed / summed.norm(dim=1, keepdim=True).clamp_min(self.eps)


def test_a_clamp_is_an_eps_that_ordinary_points_do_not_show():
    assert kinds(Clamped(), RESCALE, CASE, ROW) == [Kind.UP_TO_EPS, Kind.UP_TO_EPS, Kind.NOT_INVARIANT]


def test_only_what_fades_as_the_weights_grow_is_up_to_eps():
    class Leak(nn.Module):
        eps = 0.1

        def forward(self, summed):
            return F.layer_norm(summed, summed.shape[-1:], eps=0.0) + self.eps * summed

    assert set(kinds(Leak(), *ng.TABLE_1)) == {Kind.NOT_INVARIANT}


class InFloat32(nn.Module):
    """RMS norm that computes in float32 whatever comes, as several libraries do."""

    eps = 0.0

    def forward(self, summed):
        wide = summed.float()
        return (wide * (wide.square().mean(1, keepdim=True) + self.eps).rsqrt()).to(summed.dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_arithmetic_narrower_than_the_type_is_rounding(dtype):
    assert [v.holds for v in ng.check(InFloat32(), dtype=dtype)] == list(TABLE_1["RMSNorm"])


@pytest.mark.parametrize(
    "element",
    [RESCALE(1.0), CASE([1.0] * 6), ng.DatasetRecenter([0.0] * 4), ng.Composition(()), RESCALE(1 + 4e-16)],
)
def test_the_identity_decides_nothing(element):
    (verdict,) = ng.check(ng.NoNorm(), [element])
    assert verdict.kind is Kind.UNDECIDED
    assert "moves neither weight nor data" in verdict.reason


def test_with_eps_a_power_of_the_variance_has_no_degree():
    class Fourth:
        def statistics(self, weight, data):
            return 0, ((data @ weight.T) ** 4).mean(axis=1, keepdims=True)

    assert ng.check(Fourth(), [RESCALE])[0].degree == -1
    assert ng.check(Fourth(), [RESCALE], eps=1.0)[0].degree is None


def test_a_float_constant_in_the_statistics_is_taken_at_its_word():
    class Plus:
        def statistics(self, weight, data):
            summed = data @ weight.T
            mean = summed.mean(axis=1, keepdims=True)
            return mean, ((summed - mean) ** 2).mean(axis=1, keepdims=True) + 1e-5

    row = ng.check(Plus())
    assert [v.kind for v in row] == [Kind.INVARIANT if a is ng.WeightMatrixRecenter else Kind.NOT_INVARIANT
                                     for a in ng.TABLE_1]  # fmt: skip
    assert all(set(v.engines) == {"numeric", "exact", "symbolic"} for v in row)


@pytest.mark.parametrize(
    ("statistics", "message"),
    [
        (lambda w, x: (x @ w.T).mean(axis=1), r"must return \(mean, variance\); got Tensor"),
        (lambda w, x: ((x @ w.T).mean(axis=1), 1), r"of shape \(1 or cases, 1 or units\).*Use keepdims=True"),
        (lambda w, x: None, "must return .* got NoneType"),
    ],
)
def test_statistics_of_the_wrong_form(statistics, message):
    class Wrong:
        pass

    norm = Wrong()
    norm.statistics = statistics
    with pytest.raises(ValueError, match=message):
        ng.check(norm)


def test_group_norm_over_units_is_seen_by_the_numeric_engine():
    class Groups:
        def statistics(self, weight, data):
            parts = (data @ weight.T).reshape(len(data), 2, -1)
            mean = parts.mean(axis=2, keepdims=True) + 0 * parts
            square = ((parts - mean) ** 2).mean(axis=2, keepdims=True) + 0 * parts
            return mean.reshape(len(data), -1), square.reshape(len(data), -1)

    row = ng.check(Groups(), [RESCALE, ROW], units=6)
    assert [v.holds for v in row] == [True, False]


def test_outputs_of_another_width():
    assert kinds(lambda w, x: (x @ w.T)[:, :2], RESCALE, ROW) == [Kind.NOT_INVARIANT] * 2
    assert ng.check(lambda w, x: (x @ w.T).sum(1, keepdim=True), [RESCALE])[0].degree == 1
    with pytest.raises(ValueError, match=r"must return one row .* got shape \(6, 0\)"):
        ng.check(lambda w, x: x[:, :0])


THREE = [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: ng.check(nn.LayerNorm(16), [ROW(THREE)]), ValueError, "is for 16 and .* for 3"),
        (lambda: ng.check(ng.NoNorm(), [ROW(THREE).then(ROW([*THREE, 4.0]).then(RESCALE(2.0)))]),
         ValueError, "WeightVectorRescale is for 3 and WeightVectorRescale for 4"),
        (lambda: ng.as_layer(ng.LayerNorm(), gain=torch.nan), ValueError, "gain must be finite"),
        (lambda: ng.as_layer(ng.LayerNorm(), gain=[1.0] * 7, bias=THREE), ValueError, "one number of units"),
        (lambda: ng.as_layer(nn.LayerNorm(4), eps=-1.0), ValueError, "eps must be a finite number >= 0"),
        (lambda: ng.check(ng.LayerNorm(), "CaseRescale"), TypeError, "must be an action's class.* got 'C'"),
        (lambda: ng.check(ng.LayerNorm(), [int]), TypeError, "must be an action's class.* got <class 'int'>"),
        (lambda: ng.check(ng.LayerNorm(), []), ValueError, "at least one transform"),
        (lambda: ng.check(ng.LayerNorm(), dtype=torch.int32), TypeError, "dtype must be a floating"),
        (lambda: ng.check(ng.LayerNorm(), units=4.0), TypeError, "units must be a whole number; got 4.0"),
        (lambda: ng.check(ng.LayerNorm(), units=0), ValueError, "at least 3 units; got 0"),
        (lambda: ng.invariance_table(ng.LayerNorm()), TypeError, "layers must be a list of layers"),
        (lambda: RESCALE("2"), TypeError, "delta must be real; got '2'"),
        (lambda: CASE([1.0, 2.0]).then(CASE([1.0, 2.0, 3.0])), ValueError, "parameters of one shape"),
        (lambda: RESCALE(2.5)(torch.ones(3, 2).int(), torch.ones(3, 2)), TypeError, "moves floating"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant(call, error, message, unchecked):
    with pytest.raises(error, match=message):
        call()


def test_elements_of_any_number_type(point):
    expected = 2.5 * point[0]
    for delta in (2.5, Fraction(5, 2), np.float32(2.5), torch.tensor(2.5, requires_grad=True)):
        assert torch.equal(RESCALE(delta)(*point)[0], expected)
    scales = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], dtype=torch.bfloat16)
    assert torch.equal(CASE(scales)(*point)[1], scales.double()[:, None] * point[1])
    assert CASE(scales) == CASE(scales.double())
    array = RESCALE(torch.tensor(2.0))(point[0].numpy(), point[1].numpy())[0]
    assert np.array_equal(array, 2 * point[0].numpy())


def test_two_negative_scales_make_a_positive_one():
    assert ng.WeightMatrixNegativeRescale(-2.0).then(ng.WeightMatrixNegativeRescale(-3.0)) == RESCALE(6.0)


def test_underflow_is_undecided_and_no_disagreement(point):
    (verdict,) = ng.check(ng.LayerNorm(), [RESCALE], weight=point[0] * 1e-160, data=point[1])
    assert verdict.kind is Kind.INVARIANT
    assert "leave the range" in verdict.reason


def test_modes_of_the_parts_are_named():
    module = nn.Sequential(nn.LayerNorm(5), nn.BatchNorm1d(5).eval())
    assert ng.as_layer(module).mode == "mixed"


class FirstBatch(nn.Module):
    """Statistics of the first batch it sees, kept in buffers from then on (data-dependent initialization)."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(5))
        self.register_buffer("std", torch.ones(5))

    def forward(self, summed):
        if not self.seen:
            self.seen.fill_(1)
            self.mean.copy_(summed.mean(0))
            self.std.copy_(summed.std(0))
        return (summed - self.mean) / self.std


def test_statistics_of_the_first_batch_are_no_invariance():
    (verdict,) = ng.check(FirstBatch(), [RESCALE])
    assert verdict.kind is Kind.UNDECIDED
    assert "depend on the buffers seen, mean, std" in verdict.reason


def test_attributes_of_a_module_are_left_as_found():
    class Remembers(nn.Module):
        last = None

        def forward(self, summed):
            self.last = summed
            return summed

    module = Remembers()
    ng.check(module, [RESCALE])
    assert module.last is None


def test_a_composition_is_named_by_its_steps():
    eq6 = RESCALE(2.0).then(ng.WeightMatrixRecenter([1.0, 2.0, 3.0, 4.0]))
    row = ng.check(ng.LayerNorm(), [eq6])
    assert row[0].holds
    assert row[eq6].title == "weight matrix re-scaling, then weight matrix re-centering"
