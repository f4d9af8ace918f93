"""The metric of the gains, exact and as printed."""

import pytest
import torch

from normgeom.geometry.closed_form import closed_form_fisher
from normgeom.geometry.gain_metric import (
    eq35_as_printed,
    gain_metric,
    gain_metric_as_printed,
    radial_metric,
    two_gain_kl,
)
from normgeom.geometry.glm import NormalizedGLM
from normgeom.norms import NoNorm, WeightNorm
from tests.geometry.glms import AUDIT, FAMILIES, problem


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
