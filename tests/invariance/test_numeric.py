"""Rounding, eps, degenerate inputs: what the numeric engine must tell apart."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import normgeom as ng
from normgeom.invariance import eps_law
from tests.oracles import TABLE_1

Kind = ng.Kind


def first(layer, action, **options):
    return ng.check(layer, [action], engines=["numeric"], **options)[0]


def layer_norm(weight, data):
    summed = data @ weight.T
    return F.layer_norm(summed, summed.shape[-1:], eps=0.0)


def one_pass(weight, data):
    """Layer norm with the variance E[x^2] - E[x]^2."""
    a = data @ weight.T
    mean = a.mean(1, keepdim=True)
    return (a - mean) / ((a * a).mean(1, keepdim=True) - mean * mean).clamp_min(0).sqrt()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["BatchNorm", "WeightNorm", "LayerNorm", "RMSNorm"])
def test_rounding_is_never_called_a_broken_invariance(name, dtype):
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        row = ng.check(getattr(ng, name)(), dtype=dtype, engines=["numeric"], generator=generator)
        for verdict, holds in zip(row, TABLE_1[name], strict=True):
            assert verdict.kind in ({Kind.INVARIANT, Kind.UNDECIDED} if holds else {Kind.NOT_INVARIANT})


def offset_data(offset, seed=0):
    """Data whose summed inputs have a large common part against their spread."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(6, 4, generator=generator, dtype=torch.float64) + offset


def parallel_weight():
    """Rows that differ by a tenth of their length: every unit sees nearly the same summed input."""
    generator = torch.Generator().manual_seed(1)
    return 1 + 0.1 * torch.randn(5, 4, generator=generator, dtype=torch.float64)


def test_the_tolerance_grows_with_offset_over_sigma():
    for dtype in (torch.float64, torch.float32):
        tolerances, ratios = [], []
        for offset in (10.0, 1e3):
            point = {"weight": parallel_weight(), "data": offset_data(offset)}
            summed = point["data"] @ point["weight"].T
            ratios.append(float((summed.mean(1).abs() / summed.std(1, correction=0)).max()))
            verdict = first(layer_norm, ng.WeightMatrixRescale, **point, dtype=dtype)
            assert verdict.holds
            tolerances.append(verdict.tolerance)
        assert 0.3 < (tolerances[1] / tolerances[0]) / (ratios[1] / ratios[0]) < 3


def shared_column(offset):
    """A weight whose last column is the same for every unit, and data with a large number there."""
    weight = torch.tensor([[0.25], [-1.5], [0.75], [2.0]], dtype=torch.float64).expand(4, 2) / 2
    weight = torch.cat([weight, torch.ones(4, 1, dtype=torch.float64)], 1)
    data = torch.tensor([[1.0, 1.0, offset], [1.5, 0.5, offset], [0.5, 1.0, offset]], dtype=torch.float64)
    return {"weight": weight, "data": data, "dtype": torch.float32}


@pytest.mark.parametrize("offset", [0.1, 2000.1])
def test_a_large_offset_in_float32(offset):
    """NUM-02: the library's kernel passes, a one-pass variance does not, and the text says why."""
    move = ng.WeightMatrixRecenter(torch.tensor([0.0, 0.0, 3.0], dtype=torch.float64))
    assert first(layer_norm, move, **shared_column(offset)).holds
    verdict = first(one_pass, move, **shared_column(offset))
    assert verdict.holds == (offset < 1)
    assert offset < 1 or "the layer's own arithmetic in float32" in verdict.reason


def test_float32_cannot_hold_everything():
    verdict = first(layer_norm, ng.WeightMatrixRecenter, **shared_column(1e7))
    assert verdict.kind is Kind.UNDECIDED
    assert "use a wider type" in verdict.reason


@pytest.mark.parametrize("scale", [1e19, 1e30])
@pytest.mark.parametrize("norm", [ng.LayerNorm(), ng.RMSNorm()])
def test_overflow_is_no_broken_invariance(norm, scale):
    """NUM-04: a re-scaling that leaves float32's range is proved all the same, and the range is named."""
    (verdict,) = ng.check(norm, [ng.WeightMatrixRescale(scale)], dtype=torch.float32)
    assert verdict.kind is Kind.INVARIANT
    assert "1.8e+19" in verdict.reason
    assert first(norm, ng.WeightMatrixRescale(scale), dtype=torch.float64).holds


def test_underflow_is_no_broken_invariance():
    """HYP-02: squares of 1e-40 vanish in float32 and not in float64."""
    data = torch.tensor([[1.0, 2.0], [3.0, -4.0], [1.0, 5.0]]) * 1e-40
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    options = {"weight": weight.double(), "data": data.double()}
    assert first(ng.RMSNorm(), ng.DatasetRescale, **options).kind is Kind.INVARIANT
    assert first(ng.RMSNorm(), ng.DatasetRescale, **options, dtype=torch.float32).kind is Kind.UNDECIDED


@pytest.mark.parametrize("eps", [1e-12, 1e-8, 1e-5, 1e-3])
@pytest.mark.parametrize("delta", [1e-3, 0.3, 2.5, 1e3])
def test_the_breaking_by_eps_is_the_predicted_one(eps, delta, point):
    verdict = first(
        ng.as_layer(ng.LayerNorm(), eps=eps), ng.WeightMatrixRescale(delta), weight=point[0], data=point[1]
    )
    summed = point[1] @ point[0].T
    v = summed.var(1, correction=0, keepdim=True)
    z = ng.normalize(ng.LayerNorm(), *point, eps=eps)
    law = delta * (v + eps).sqrt() / (delta**2 * v + eps).sqrt()
    expected = float(((law - 1) * z).abs().max() / z.abs().max())
    assert verdict.kind is Kind.UP_TO_EPS or expected <= verdict.tolerance
    assert verdict.error == pytest.approx(expected, rel=1e-6, abs=verdict.tolerance)


def test_the_law_of_eps_is_the_ratio_of_outputs():
    """NUM-13 and HYP-04: one row at two eps, and one row at two scales."""
    v = torch.tensor([1e-4, 1.0], dtype=torch.float64)
    assert eps_law(v, v * 1e30, 1e-5).tolist() == pytest.approx([1.0488088, 1.000005], rel=1e-7)
    assert 1 / eps_law(v, v * 1e30, 1e-3)[0] == pytest.approx(0.301511, rel=1e-5)
    a, x = 0.5, torch.tensor([[0.0, 0.0, 0.0, 1.0]], dtype=torch.float64)
    f = nn.LayerNorm(4, elementwise_affine=False, dtype=torch.float64)
    u = x.var(correction=0)
    torch.testing.assert_close(f(a * x), eps_law(u, a * a * u, 1e-5) * f(x))


@pytest.mark.parametrize(
    ("module", "holds"),
    [
        (nn.LayerNorm(5), (1, 1, 0, 1, 0, 1)),
        (nn.BatchNorm1d(5), (1, 0, 1, 1, 1, 0)),
        (nn.RMSNorm(5, eps=1e-6), (1, 0, 0, 1, 0, 1)),
        (nn.GroupNorm(1, 5), (1, 1, 0, 1, 0, 1)),
    ],
    ids=lambda v: type(v).__name__,
)
def test_library_modules_hold_up_to_their_eps(module, holds):
    row = ng.check(module)
    assert [v.holds for v in row] == [bool(h) for h in holds]
    assert row[0].kind is Kind.UP_TO_EPS


@pytest.mark.parametrize("action", ng.TABLE_1, ids=lambda a: a.__name__)
def test_eps_is_found_in_the_parts_of_a_module(action):
    module = nn.Sequential(nn.LayerNorm(5), nn.ReLU(), nn.Linear(5, 3))
    verdict = first(module, action)
    assert verdict.holds == TABLE_1["LayerNorm"][ng.TABLE_1.index(action)]
    assert verdict.kind is not Kind.INVARIANT or action is ng.WeightMatrixRecenter


def test_rms_norm_s_default_eps_depends_on_the_type():
    """NUM-12: float32's machine epsilon, which small inputs feel, and float64's, which they do not."""
    weight, data = torch.eye(3, 4, dtype=torch.float64) * 1e-4, torch.randn(
        6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )  # fmt: skip
    narrow = first(nn.RMSNorm(3), ng.WeightMatrixRescale, weight=weight, data=data, dtype=torch.float32)
    wide = first(nn.RMSNorm(3), ng.WeightMatrixRescale, weight=weight, data=data)
    assert narrow.kind is Kind.UP_TO_EPS
    assert narrow.error > 1e-2 > 1e-6 > wide.error


def test_frozen_statistics_of_a_module():
    """SEM-09: training is invariant up to eps, evaluation with fixed buffers is not."""
    module = nn.BatchNorm1d(5)
    assert first(module, ng.WeightMatrixRescale).holds
    assert "running_mean" in first(module, ng.DatasetRecenter).reason
    verdict = first(module.eval(), ng.WeightMatrixRescale)
    assert (verdict.holds, verdict.mode) == (False, "eval")


@pytest.mark.parametrize(("delta", "flips"), [(2.0, False), (-2.0, True)])
def test_signs(delta, flips):
    """SEM-11: invariant for delta > 0, a flip for delta < 0."""
    (verdict,) = ng.check(ng.RMSNorm(), [ng.WeightMatrixRescale(delta)])
    assert (verdict.holds, verdict.flips) == (not flips, flips)


def test_weight_standardization_that_multiplies():
    """SEM-03: dividing by rsqrt makes degree 2; re-centering alone would not notice."""

    def bad(weight, data):
        mean = weight.mean(1, keepdim=True)
        return data @ ((weight - mean) / (weight.var(1, correction=0, keepdim=True) + 1e-10).rsqrt()).T

    assert first(bad, ng.WeightMatrixRescale).degree == 2
    assert first(bad, ng.WeightVectorRecenter).holds


def test_a_constant_channel_with_a_big_value():
    """NUM-09: a failure on near-constant channels is rounding over a root of eps, not a broken invariance."""
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    data[:, 0] = 0.7e7
    options = {"weight": torch.eye(3, dtype=torch.float64), "data": data, "dtype": torch.float32}
    move = ng.DatasetRecenter(torch.tensor([1e3, 0.0, 0.0], dtype=torch.float64))
    assert first(nn.BatchNorm1d(3), move, **options).kind is not Kind.NOT_INVARIANT


@pytest.mark.parametrize("module", [nn.GroupNorm(5, 5), nn.GroupNorm(5, 5, affine=False)])
def test_one_value_a_statistic_is_vacuous(module):
    """NUM-07: every output is zero, so every invariance would hold."""
    for verdict in ng.check(module):
        assert verdict.kind is Kind.UNDECIDED
        assert "holds vacuously" in verdict.reason


def test_zero_variance_is_undecided():
    weight, data = torch.ones(3, 2, dtype=torch.float64), torch.ones(4, 2, dtype=torch.float64)
    verdict = first(ng.LayerNorm(), ng.CaseRescale, weight=weight, data=data)
    assert verdict.kind is Kind.UNDECIDED
    assert "a variance is 0 there" in verdict.reason


def test_a_zero_row_in_half_precision_is_undecided():
    """NUM-11: F.normalize's eps of 1e-12 is 0 in float16, and 0/0 is not a number."""

    def cosine(weight, data):
        return data @ F.normalize(weight, dim=1).T

    weight = torch.tensor([[0.0, 0.0], [1.0, 2.0], [2.0, -1.0]])
    options = {"weight": weight, "data": torch.tensor([[1.0, 2.0], [0.5, 1.0], [3.0, 1.0]])}
    assert first(cosine, ng.WeightMatrixRescale, **options, dtype=torch.float16).kind is Kind.UNDECIDED
    assert first(cosine, ng.WeightMatrixRescale, **options).holds


def test_a_clamp_hides_lost_digits():
    """NUM-14: a clamped one-pass variance is finite and far off; that is not called invariant."""
    weight = torch.eye(4, 5, dtype=torch.float64) * 2.0**-6 * torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    weight[:, 4] = 1.0
    data = torch.ones(6, 5, dtype=torch.float64)
    data[:, 4] = 2.0**10 + 0.3 + 0.013 * torch.arange(6)
    options = {"weight": weight, "data": data, "dtype": torch.float32}
    move = ng.WeightMatrixRecenter(torch.tensor([0, 0, 0, 0, 1.0], dtype=torch.float64))
    assert not first(one_pass, move, **options).holds


def test_random_and_stateful_layers_are_no_functions():
    state = []

    def drifting(weight, data):
        state.append(1)
        return data @ weight.T + len(state)

    for layer in (nn.Dropout(0.5), drifting):
        verdict = first(layer, ng.WeightMatrixRescale, units=5)
        assert verdict.kind is Kind.UNDECIDED
        assert "not a function of weight and data" in verdict.reason
