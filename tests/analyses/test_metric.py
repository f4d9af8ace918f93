"""The analyses of the metric: their numbers are right, and their files are written."""

import json

import matplotlib.pyplot as plt
import pytest
import torch

from analyses import __main__ as main
from analyses import (
    _run,
    curvature_vs_norm,
    eigen_spectrum,
    eq13_gap,
    fisher_blocks,
    gain_metric,
    kl_vs_quadratic,
)
from analyses._glms import FAMILIES, NORMS, problem, ratio, small
from tests.geometry.glms import AUDIT

NAMES = ("fisher_blocks", "curvature_vs_norm", "gain_metric", "eq13_gap", "kl_vs_quadratic", "eigen_spectrum")


@pytest.fixture
def options(tmp_path):
    return _run.Options(tmp_path, quick=True)


@pytest.mark.parametrize("name", NAMES)
def test_files_are_written_and_in_the_manifest(name, tmp_path):
    assert main.main([name, "--quick", "--out", str(tmp_path)]) == 0
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert set(manifest) == {f"{name}.{kind}" for kind in ("json", "md", "pdf", "png")}
    assert {file.name for file in tmp_path.iterdir()} == {*manifest, "manifest.json"}
    assert b"/Type3" not in (tmp_path / f"{name}.pdf").read_bytes()
    text = (tmp_path / f"{name}.md").read_text()
    assert not any(wrong in text for wrong in ("nan", "None", "inf ", "−0.000"))


def test_a_figure_can_be_drawn_from_its_saved_rows(options):
    eq13_gap.write(options)
    rows = json.loads((options.out / "eq13_gap.json").read_text())
    figure = eq13_gap.draw(rows)
    assert len(figure.axes) == 2
    plt.close(figure)


@pytest.mark.parametrize("name", NORMS)
def test_all_norms_get_the_same_weights_and_data(name, options):
    _, params, data = problem(name, "Gaussian", options, units=3, inputs=2, cases=4)
    _, expected, same = problem("layer norm", "Gaussian", options, units=3, inputs=2, cases=4)
    assert all(torch.equal(params[n], expected[n]) for n in params)
    assert torch.equal(data, same)
    assert ("gain" in params) == (name != "no norm")


def test_numbers_are_written_to_their_size():
    assert (ratio(-0.5, 1), ratio(None), small(0.25), small(3e-16), small(0)) == (
        "−0.5",
        "–",
        "0.25",
        "3e-16",
        "0",
    )


# --- fisher_blocks -----------------------------------------------------------------------------------------


def test_null_dimensions_are_those_of_the_invariance_groups(options):
    found = fisher_blocks.compute(options)
    nullity = {s["norm"]: s["nullity"] for s in found.summary if s["family"] == "Bernoulli"}
    expected = {"no norm": 0, "weight norm": 3, "batch norm": 3, "layer norm": 4, "RMSNorm": 1}
    assert nullity == expected | {fisher_blocks.PRINTED: 0}


def test_only_norms_over_units_couple_independent_outputs(options):
    found = fisher_blocks.compute(options)
    share = {s["norm"]: s["between units"] for s in found.summary if s["family"] == "Bernoulli"}
    assert share["layer norm"] > 0.1 < share["RMSNorm"]
    assert share["weight norm"] == share["batch norm"] == share[fisher_blocks.PRINTED] == 0


def test_matrix_rows_are_neuron_major(options):
    rows = [r for r in fisher_blocks.compute(options).rows if r["norm"] == "layer norm"]
    assert [(r["letter"], r["unit"]) for r in rows[:6]] == [*[("w", 1)] * 3, ("b", 1), ("g", 1), ("w", 2)]


# --- curvature_vs_norm -------------------------------------------------------------------------------------


def test_slopes_are_those_of_theory(options):
    laws = curvature_vs_norm.compute(options).laws
    normed = [law for law in laws if law["norm"] != "no norm"]
    assert len(normed) == 24
    assert all(law["fitted"] == pytest.approx(law["theory"], abs=1e-9) for law in normed)


def test_doubling_the_weights_quarters_ww_and_halves_wg_and_the_length(options):
    found = curvature_vs_norm.compute(options)
    doubled = {law["block"]: law["doubled"] for law in found.laws if law["norm"] == "layer norm"}
    expected = {"ww": 1 / 4, "wb": 1 / 2, "wg": 1 / 2, "bb": 1, "bg": 1, "gg": 1}
    assert doubled == pytest.approx(expected)
    assert [r["ratio"] for r in found.lengths if r["norm"] != "no norm"] == pytest.approx([0.5] * 4)


def test_without_a_norm_only_gaussian_outputs_have_a_law(options):
    laws = [law for law in curvature_vs_norm.compute(options).laws if law["norm"] == "no norm"]
    assert {(law["family"], law["law"]) for law in laws} == {
        ("Gaussian", "power law"),
        ("categorical", "no power law"),
    }


def test_one_row_alone_has_a_law_for_norms_per_unit_only(options):
    rows = {(r["norm"], r["block"]): r["exponent"] for r in curvature_vs_norm.compute(options).rows}
    assert rows["batch norm", "w₁w₁"] == pytest.approx(-2)
    assert rows["weight norm", "w₁wⱼ"] == pytest.approx(-1)
    assert rows["layer norm", "w₁w₁"] is None is rows["RMSNorm", "w₁w₁"]


# --- gain_metric -------------------------------------------------------------------------------------------


def test_doubling_the_data_quadruples_two_methods_and_leaves_two(options):
    points = gain_metric.compute(options).points
    doubled = {p["method"]: p["ratio"] for p in points if p["delta"] == 2 and p["family"] == "Gaussian"}
    assert doubled == pytest.approx({"standard GLM": 4, "weight norm": 4, "batch norm": 1, "layer norm": 1})
    audit = AUDIT["eq35"]["gaussian"]["ratio_when_X_doubled"]
    assert list(doubled.values()) == pytest.approx([audit[key] for key in ("standard", "wn", "bn", "ln")])


def test_weight_norm_with_the_right_gains_has_the_metric_of_the_standard_glm(options):
    traces = {
        (p["method"], p["delta"]): p["trace"]
        for p in gain_metric.compute(options).points
        if p["family"] == "categorical"
    }
    for (method, delta), trace in traces.items():
        if method == "standard GLM":
            assert trace == pytest.approx(traces["weight norm", delta])


def test_of_the_printed_gain_metrics_eq_32_alone_is_off(options):
    errors = {(e["equation"], e["family"]): e["error"] for e in gain_metric.printed_errors(options)}
    assert errors[32, "Gaussian"] < 1e-14
    assert min(errors[32, family] for family in FAMILIES if family != "Gaussian") > 0.1
    assert max(error for (equation, _), error in errors.items() if equation != 32) < 1e-14


# --- eq13_gap ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["layer norm", "RMSNorm"])
def test_the_error_of_one_case_meets_the_law_at_many_units(norm, options):
    row = eq13_gap.compare(norm, 128, options)[0]
    assert row["one case"] == pytest.approx(row["law"], rel=2e-3)
    assert 0.5 * row["law"] < row["error"] < row["law"]


def test_null_directions_are_null_and_not_as_printed(options):
    rows = eq13_gap.compute(options)
    assert {(r["norm"], r["direction"]) for r in rows} == {
        ("layer norm", "W"),
        ("layer norm", "1γᵀ"),
        ("RMSNorm", "W"),
    }
    assert max(abs(r["exact"]) for r in rows) < 1e-14
    assert min(r["printed"] for r in rows) > 0.05
    assert min(r["printed"] for r in rows if r["units"] == 32) > 0.8


# --- kl_vs_quadratic ---------------------------------------------------------------------------------------


def test_the_order_is_3_and_the_direction_has_length_1(options):
    rows = kl_vs_quadratic.compute(options)
    orders = [r["order"] for r in rows if r["order"] is not None]
    assert orders == pytest.approx([3] * len(orders), abs=0.1)
    assert [r["quadratic"] / r["size"] ** 2 for r in rows] == pytest.approx([0.5] * len(rows))
    assert {(r["norm"], r["family"]) for r in rows if r["order"] is None} == {("no norm", "Gaussian")}


# --- eigen_spectrum ----------------------------------------------------------------------------------------


def test_the_null_dimension_is_that_of_theory_before_and_after_training(options):
    for s in eigen_spectrum.compute(options).summary:
        assert s["nullity"] == s["expected nullity"] == (38 if s["norm"] == "layer norm" else 17)
        assert s["annihilation"] < 1e-14
        assert s["gap"] > 1e6


def test_the_null_directions_are_independent(options):
    data = eigen_spectrum.digits(options)
    model = eigen_spectrum.network("layer norm", options)
    params = {n: p.detach() for n, p in model.named_parameters()}
    directions = eigen_spectrum.null_directions("layer norm", params, data)
    flat = [
        torch.cat([d.get(n, torch.zeros_like(p)).to(p).flatten() for n, p in params.items()])
        for d in directions
    ]
    assert int(torch.linalg.matrix_rank(torch.stack(flat))) == len(directions) == 38


def test_training_teaches_both_networks(options):
    accuracy = {(s["norm"], s["time"]): s["accuracy"] for s in eigen_spectrum.compute(options).summary}
    for norm in eigen_spectrum.NETWORKS:
        assert accuracy[norm, "trained"] > accuracy[norm, "at start"] + 0.1
