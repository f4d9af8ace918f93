"""Curvature, KL, null space, scaling exponents and gains; Table 1 tied to the metric."""

import pytest
import torch

from normgeom.geometry.closed_form import closed_form_fisher
from normgeom.geometry.families import Gaussian
from normgeom.geometry.gain_metric import (
    eq35_as_printed,
    gain_metric,
    gain_metric_as_printed,
    radial_metric,
    two_gain_kl,
)
from normgeom.geometry.glm import NormalizedGLM
from normgeom.geometry.metric import curvature, kl_against_quadratic, kl_divergence, length, step_in_nats
from normgeom.geometry.null_space import annihilation_error, null_space, tangent_directions
from normgeom.geometry.scaling import compare_blocks, scale, scaling_exponents
from normgeom.norms import BatchNorm, NoNorm, WeightNorm
from normgeom.transforms import (
    CaseRescale,
    WeightMatrixRecenter,
    WeightMatrixRescale,
    WeightVectorRecenter,
    WeightVectorRescale,
)
from tests.geometry.glms import AUDIT, FAMILIES, problem

# Table 1, the weight's columns, and the dimension of the group that they make.
GROUPS = {
    "none": ([], 0),
    "wn": ([WeightMatrixRescale, WeightVectorRescale], 4),
    "bn": ([WeightMatrixRescale, WeightVectorRescale], 4),
    "ln": ([WeightMatrixRescale, WeightMatrixRecenter], 6),
    "rms": ([WeightMatrixRescale], 1),
    # The norm of the input W LN(x) leaves W unnormalized; LN(x) sums to 0, so a constant row drops out.
    "input_ln": ([WeightVectorRecenter], 4),
}


def noise(params, seed=5):
    generator = torch.Generator().manual_seed(seed)
    return {n: torch.randn(p.shape, generator=generator, dtype=p.dtype) for n, p in params.items()}


@pytest.mark.parametrize("family", ["gaussian", "bernoulli", "poisson", "categorical"])
@pytest.mark.parametrize("norm", GROUPS)
def test_table_1_and_the_metric_agree(norm, family):
    model, params, data = problem(norm, family)
    fisher = closed_form_fisher(model, params, data)
    transforms, dimension = GROUPS[norm]
    tangents = [{"weight": d} for t in transforms for d in tangent_directions(t, params["weight"], data)]
    nulls = tangents + joint_nulls(norm, params) + family_nulls(norm, family, params, data)
    assert all(annihilation_error(fisher, direction) < 1e-14 for direction in nulls)
    assert rank_of(tangents) == dimension
    found = null_space(fisher)
    assert found.nullity == rank_of(nulls)
    assert found.gap > 1e6
    assert all(found.contains(fisher, direction) for direction in nulls)


def joint_nulls(norm, params):
    """Without a normalization of the weight, a unit's gain only repeats its weight's length."""
    if norm != "input_ln":
        return []
    units = torch.eye(4, dtype=torch.float64)
    return [{"weight": u[:, None] * params["weight"], "gain": -u * params["gain"]} for u in units]


def family_nulls(norm, family, params, data):
    """Class probabilities do not see a number added to all logits of a case: a constant, or gamma^T x."""
    if family != "categorical":
        return []
    affine = (
        [] if norm in ("ln", "rms") else [linear_shift(norm, params, data, g) for g in torch.eye(5).double()]
    )
    return [{"bias": torch.ones(4, dtype=torch.float64)}, *affine]


def linear_shift(norm, params, data, gamma):
    """The change that adds gamma^T x to every output of a norm with outputs linear in x (or in LN(x))."""
    weight, gain = params["weight"], params.get("gain", torch.ones(4, dtype=torch.float64))
    if norm in ("none", "input_ln"):
        return {"weight": gamma / gain[:, None]}
    metric = torch.eye(5, dtype=torch.float64) if norm == "wn" else data.T.cov(correction=0)
    # eta_i = g_i w_i^T x / s_i with s_i^2 = w_i^T metric w_i: the gain makes up for the change of s_i.
    spread = ((weight @ metric) * weight).sum(1).sqrt()
    return {"weight": (spread / gain)[:, None] * gamma, "gain": weight @ metric @ gamma / spread}


def rank_of(directions):
    if not directions:
        return 0
    rows = [torch.cat([d.get(n, torch.zeros(s)).double().flatten() for n, s in SIZES]) for d in directions]
    return int(torch.linalg.matrix_rank(torch.stack(rows), rtol=1e-9))


SIZES = (("weight", (4, 5)), ("bias", (4,)), ("gain", (4,)))


@pytest.mark.parametrize("norm", ["wn", "bn", "ln", "rms"])
def test_eps_leaves_curvature_along_the_radial_direction_only(norm):
    model, params, data = problem(norm, "gaussian", eps=0.1)
    fisher = closed_form_fisher(model, params, data)
    assert annihilation_error(fisher, {"weight": params["weight"]}) > 1e-5
    if norm == "ln":
        shifts = tangent_directions(WeightMatrixRecenter, params["weight"], data)
        assert all(annihilation_error(fisher, {"weight": d}) < 1e-14 for d in shifts)


def test_frozen_statistics_leave_only_what_gain_and_weight_share():
    model, params, data = problem("bn_frozen", "gaussian")
    fisher = closed_form_fisher(model, params, data)
    assert annihilation_error(fisher, {"weight": params["weight"]}) > 1e-3
    shift = params["gain"] * model.norm.mean / model.norm.variance.sqrt()
    units = torch.eye(4, dtype=torch.float64)
    shared = [
        {"weight": u[:, None] * params["weight"], "gain": -u * params["gain"], "bias": -u * shift}
        for u in units
    ]
    assert all(annihilation_error(fisher, direction) < 1e-14 for direction in shared)
    assert null_space(fisher).nullity == rank_of(shared) == 4


def test_transforms_of_the_data_have_no_direction():
    with pytest.raises(ValueError, match="CaseRescale moves the data, not the weight"):
        tangent_directions(CaseRescale, torch.ones(2, 2), torch.ones(2, 2))


@pytest.mark.parametrize("norm", ["none", "bn", "ln"])
def test_curvature_is_the_quadratic_form(norm):
    model, params, data = problem(norm, "categorical")
    direction = noise(params)
    expected = closed_form_fisher(model, params, data).quadratic(direction)
    torch.testing.assert_close(curvature(model, params, data, direction), expected)
    torch.testing.assert_close(length(model, params, data, direction) ** 2, expected)
    weight_only = {"weight": direction["weight"]}
    expected = closed_form_fisher(model, params, data).quadratic(
        {n: direction[n] * (n == "weight") for n in params}
    )
    torch.testing.assert_close(curvature(model, params, data, weight_only), expected)


def test_curvature_of_a_function_and_a_module():
    model, params, data = problem("ln", "poisson")
    direction, module = noise(params), torch.nn.Linear(5, 4).double()
    as_function = curvature(lambda p, x: model(p, x), params, data, direction, family=model.family)
    torch.testing.assert_close(as_function, curvature(model, params, data, direction))
    own = {n: p.detach() for n, p in module.named_parameters()}
    linear = curvature(module, own, data, {n: direction[n] for n in own}, family=Gaussian())
    change = data @ direction["weight"].T + direction["bias"]
    torch.testing.assert_close(linear, change.pow(2).sum(1).mean())


def test_doubling_the_weights_halves_the_length_of_a_step_in_them():
    model, params, data = problem("ln", "categorical")
    step = {"weight": noise(params)["weight"]}
    doubled = {**params, "weight": 2 * params["weight"]}
    ratio = length(model, doubled, data, step) / length(model, params, data, step)
    assert ratio.item() == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize("family", ["bernoulli", "poisson", "categorical"])
@pytest.mark.parametrize("norm", ["none", "wn", "bn", "ln", "rms"])
def test_the_error_of_the_quadratic_form_is_of_third_order(norm, family):
    model, params, data = problem(norm, family)
    direction = {n: 0.1 * d for n, d in noise(params).items()}
    found = kl_against_quadratic(model, params, data, direction)
    assert found.order == pytest.approx(3, abs=0.1)
    assert found.relative_errors[-1] < found.relative_errors[0] / 100


def test_a_linear_gaussian_model_has_no_error():
    model, params, data = problem("none", "gaussian")
    found = kl_against_quadratic(model, params, data, noise(params))
    assert found.order is None
    assert max(found.relative_errors) < 1e-12


def test_step_in_nats_measures_both_ways():
    model, params, data = problem("ln", "bernoulli")
    after = {n: params[n] + 1e-3 * d for n, d in noise(params).items()}
    step = step_in_nats(model, params, data, after)
    assert step.kl == float(kl_divergence(model, params, data, after))
    assert step.reverse_kl == float(kl_divergence(model, after, data, params))
    assert step.quadratic == pytest.approx(step.kl, rel=1e-2)
    assert step.length == pytest.approx((2 * step.quadratic) ** 0.5)


def test_a_direction_must_fit_the_parameters():
    model, params, data = problem("ln", "bernoulli")
    with pytest.raises(ValueError, match="names of parameters, weight, bias, gain; got gian"):
        curvature(model, params, data, {"gian": params["gain"]})
    with pytest.raises(ValueError, match=r"direction\['gain'\] must have.* shape \(4,\); got \(3,\)"):
        curvature(model, params, data, {"gain": params["gain"][:3]})


# --- scaling exponents ---------------------------------------------------------------------------------

LETTERS = {"w": "weight", "b": "bias", "g": "gain"}


def our_block(block):
    """The audit's `wb[01]` as our names: unit 0 is scaled, unit 1 stands for the others."""
    names = [LETTERS[letter] for letter in block[:2]]
    if "[" not in block:
        return tuple(names)
    return tuple(
        f"{n}[{'0' if place == '0' else 'others'}]" for n, place in zip(names, block[3:5], strict=True)
    )


@pytest.mark.parametrize("key", [key for key in AUDIT["scaling_exponents"] if key.endswith("=2.0")])
def test_exponents_are_the_audits(key):
    norm, family, which, _ = key.split("|")
    row = 0 if which == "row0" else None
    model, params, data = problem(norm, family)
    found = exponents(norm, model, params, data, row)
    for block, expected in AUDIT["scaling_exponents"][key].items():
        ours = found[our_block(block)]
        if expected is None:
            assert ours.law == "zero", block
        elif expected["proportional"] and round(expected["exponent"], 9) in (-2, -1, 0):
            assert ours.law == "power law", block
            assert ours.exponent == pytest.approx(expected["exponent"], abs=1e-10), block
        else:
            # One number is proportional to another, but by no law: the second delta says so.
            assert ours.law == "no power law", block


def exponents(norm, model, params, data, row):
    """Frozen statistics are those of the scaled weights, as in the audit."""
    if norm != "bn_frozen":
        return scaling_exponents(model, params, data, row=row)
    matrices = []
    for delta in (1.0, 2.0, 3.0):
        weight = scale(params["weight"], delta, row)
        frozen = NormalizedGLM(BatchNorm().freeze(weight, data), model.family)
        matrices.append(closed_form_fisher(frozen, {**params, "weight": weight}, data))
    return compare_blocks(matrices[0], matrices[1:], (2.0, 3.0), row=row)


def test_the_weight_block_changes_by_a_quarter_not_a_half():
    model, params, data = problem("ln", "categorical")
    found = scaling_exponents(model, params, data)
    assert found["weight", "weight"].ratios[0] == pytest.approx(1 / 4)
    assert found["weight", "gain"].ratios[0] == pytest.approx(1 / 2)


def test_scaling_exponents_of_a_module():
    module = torch.nn.Sequential(torch.nn.Linear(5, 4, bias=False), torch.nn.LayerNorm(4, eps=0.0)).double()
    params = {name: value.detach() for name, value in module.named_parameters()}
    _, _, data = problem("ln", "bernoulli")
    found = scaling_exponents(module, params, data, name="0.weight", family=FAMILIES["bernoulli"])
    assert found["0.weight", "0.weight"].exponent == pytest.approx(-2)
    assert found["0.weight", "1.bias"].exponent == pytest.approx(-1)
    assert found["1.weight", "1.weight"].exponent == pytest.approx(0, abs=1e-12)


def test_one_delta_cannot_tell_a_power_law():
    with pytest.raises(ValueError, match=r"two or more numbers other than 0, 1 and -1; got \(2.0,\)"):
        scaling_exponents(*problem("ln", "gaussian"), deltas=(2.0,))


# --- the metric of the gains ---------------------------------------------------------------------------


@pytest.mark.parametrize("row", AUDIT["gain_metric"], ids=lambda row: f"{row['norm']}-{row['dist']}")
def test_printed_gain_metrics_are_exact_where_the_audit_says(row):
    model, params, data = problem(row["norm"], row["dist"])
    exact, printed = gain_metric(model, params, data), gain_metric_as_printed(model, params, data)
    torch.testing.assert_close(exact, closed_form_fisher(model, params, data)["gain", "gain"])
    gap = float((printed - exact).norm() / exact.norm())
    assert gap < 1e-13 if row["rel_err_full"] < 1e-14 else 0.05 < gap < 2
    if (row["norm"], row["dist"]) == ("bn", "gaussian"):
        torch.testing.assert_close(exact.diagonal(), torch.tensor(row["exact_diag"]).double())


def test_only_three_norms_have_a_printed_gain_metric():
    with pytest.raises(TypeError, match="for BatchNorm, LayerNorm and WeightNorm; got RMSNorm"):
        gain_metric_as_printed(*problem("rms", "gaussian"))


@pytest.mark.parametrize("family", AUDIT["eq35"])
def test_eq35_weight_norm_gains_are_the_radial_metric(family):
    _, params, data = problem("none", family)
    standard = NormalizedGLM(NoNorm(), FAMILIES[family])
    normed = NormalizedGLM(WeightNorm(), FAMILIES[family])
    with_gain = {**params, "gain": params["weight"].norm(dim=1)}
    radial = radial_metric(standard, params, data)
    torch.testing.assert_close(gain_metric(normed, with_gain, data), radial)
    doubled = radial_metric(standard, {**params, "weight": 2 * params["weight"]}, data)
    assert torch.allclose(doubled, radial) == (AUDIT["eq35"][family]["radial_change_when_W_doubled"] == 0)
    with pytest.raises(ValueError, match="without a gain; got WeightNorm with a gain"):
        radial_metric(normed, with_gain, data)


@pytest.mark.parametrize("family", AUDIT["eq35"])
def test_eq35_doubling_the_data(family):
    _, params, data = problem("none", family)
    radial = lambda x: radial_metric(NormalizedGLM(NoNorm(), FAMILIES[family]), params, x)  # noqa: E731
    ratios = {"standard": float(radial(2 * data).trace() / radial(data).trace())}
    for norm in ("wn", "bn", "ln"):
        model, with_gain, _ = problem(norm, family)
        if norm == "wn":
            with_gain = {**params, "gain": params["weight"].norm(dim=1)}
        at = [gain_metric(model, with_gain, x).trace() for x in (data, 2 * data)]
        ratios[norm] = float(at[1] / at[0])
    audit = AUDIT["eq35"][family]["ratio_when_X_doubled"]
    assert ratios["wn"] == pytest.approx(ratios["standard"])
    assert (ratios["bn"], ratios["ln"]) == (pytest.approx(audit["bn"]), pytest.approx(audit["ln"]))
    assert ratios["standard"] == pytest.approx(audit["standard"]) or family == "categorical"
    assert ratios["standard"] > 1


def test_eq35_keeps_one_cross_term_of_a_quadratic_form():
    model, params, data = problem("wn", "categorical")
    metric, units, steps = gain_metric(model, params, data), (0, 2), (0.3, -0.2)
    exact = closed_form_fisher(model, params, data).quadratic(
        {
            "weight": 0 * params["weight"],
            "bias": 0 * params["bias"],
            "gain": torch.tensor([0.3, 0, -0.2, 0]).double(),
        }
    )
    assert two_gain_kl(metric, units, steps).item() == pytest.approx(exact.item() / 2)
    assert eq35_as_printed(metric, units, steps).item() == pytest.approx(-0.03 * metric[0, 2].item())
    # As in the audit: the quadratic form is positive, the printed side need not be.
    assert AUDIT["eq35_two_neuron"]["paper_rhs"] < 0 < AUDIT["eq35_two_neuron"]["full_quadratic"]
    assert two_gain_kl(metric, units, (0.3, 0.2)) > 0 > eq35_as_printed(metric, units, (0.3, 0.2))


def test_curvature_and_kl_take_batches():
    model, params, data = problem("ln", "poisson")
    direction = noise(params)
    other = {name: params[name] + 0.1 * step for name, step in direction.items()}
    loader = [data[:2], data[2:]]
    assert float(curvature(model, params, loader, direction)) == pytest.approx(
        float(curvature(model, params, data, direction)), rel=1e-12
    )
    assert float(kl_divergence(model, params, loader, other)) == pytest.approx(
        float(kl_divergence(model, params, data, other)), rel=1e-12
    )
    assert step_in_nats(model, params, loader, other).kl == pytest.approx(
        step_in_nats(model, params, data, other).kl, rel=1e-12
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_order_is_fitted_to_rounding_along_a_null_direction(dtype):
    model, params, data = problem("wn", "poisson")
    params = {name: value.to(dtype) for name, value in params.items()}
    found = kl_against_quadratic(model, params, data.to(dtype), {"weight": params["weight"]})
    assert found.order is None


def test_errors_name_what_is_wrong():
    model, params, data = problem("ln", "poisson")
    fisher = closed_form_fisher(model, params, data)
    with pytest.raises(TypeError, match="Pass F itself"):
        null_space(fisher.matrix)
    with pytest.raises(ValueError, match="must not be zero"):
        annihilation_error(fisher, {"bias": torch.zeros(4)})
    with pytest.raises(ValueError, match="name must be a parameter, of"):
        scaling_exponents(model, params, data, name="kernel")
    with pytest.raises(ValueError, match="one of the 4 rows of weight; got 4"):
        scaling_exponents(model, params, data, row=4)
    with pytest.raises(ValueError, match="tolerance must not be negative"):
        scaling_exponents(model, params, data, tolerance=-1.0)
    with pytest.raises(ValueError, match=r"after must have names of parameters, .*; got kernel"):
        step_in_nats(model, params, data, {"kernel": params["weight"]})
    with pytest.raises(TypeError, match="read several times, an iterator only once"):
        step_in_nats(model, params, iter([data]), params)
