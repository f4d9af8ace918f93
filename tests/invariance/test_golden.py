"""Golden vectors through the public API: outputs, changes, and yes or no, computed with 50 digits."""

import json
from pathlib import Path

import pytest
import torch

import normgeom as ng

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "invariance.json").read_text())
DATA, WEIGHT, GAIN, BIAS, GAMMA, XI = (
    torch.tensor(GOLDEN[k], dtype=torch.float64) for k in ("X", "W", "g", "b", "gamma", "xi")
)
PRE_BIAS = {
    "none": 0.0,
    "const": GOLDEN["pre_bias_const"],
    "vector": torch.tensor(GOLDEN["pre_bias_vector"], dtype=torch.float64),
}
NORMS = {
    "none": ng.NoNorm(), "bn": ng.BatchNorm(), "wn": ng.WeightNorm(), "ln": ng.LayerNorm(),
    "rms": ng.RMSNorm(), "ln_input": ng.InputLayerNorm(),
}  # fmt: skip


def only(index, size, delta):
    return torch.ones(size, dtype=torch.float64).index_fill(0, torch.tensor(index), delta)


def transform(name, delta):
    row, case = GOLDEN["row_scaled"], GOLDEN["case_scaled"]
    return {
        "weight_matrix_rescale": lambda: ng.WeightMatrixRescale(delta),
        "weight_matrix_recenter": lambda: ng.WeightMatrixRecenter(GAMMA),
        "weight_matrix_rescale_and_recenter_eq6": lambda: ng.WeightMatrixRescale(delta).then(
            ng.WeightMatrixRecenter(GAMMA)
        ),
        "weight_vector_rescale": lambda: ng.WeightVectorRescale(only(row, GOLDEN["H"], delta)),
        "dataset_rescale": lambda: ng.DatasetRescale(delta),
        "dataset_recenter": lambda: ng.DatasetRecenter(XI),
        "single_case_rescale": lambda: ng.CaseRescale(only(case, GOLDEN["N"], delta)),
    }[name]()


def layer(result, bias_before):
    """The layer of a result; a bias before W LN(x) is the same as one after, before the gain."""
    options = {"eps": result["eps"], "gain": GAIN, "bias": BIAS}
    if result["norm"] == "ln_input":
        return ng.as_layer(ng.InputLayerNorm(), **options | {"bias": BIAS + GAIN * bias_before})
    if result["norm"] == "bn_frozen":
        start = PRE_BIAS["vector" if result["pre_bias"] == "vector_scaled_with_W" else result["pre_bias"]]
        norm = ng.BatchNorm().freeze(WEIGHT, DATA, start)
        return ng.as_layer(norm, **options, bias_before=bias_before)
    return ng.as_layer(NORMS[result["norm"]], **options, bias_before=bias_before)


def biases(result):
    """The bias before, before and after the transform: it may be scaled with the weights."""
    if result["pre_bias"] != "vector_scaled_with_W":
        return (PRE_BIAS[result["pre_bias"]],) * 2
    start, delta = PRE_BIAS["vector"], result["delta"]
    scale = {
        "weight_matrix_rescale": delta,
        "weight_matrix_rescale_and_recenter_eq6": delta,
        "weight_vector_rescale": only(GOLDEN["row_scaled"], GOLDEN["H"], delta),
    }.get(result["transform"], 1.0)
    return start, start * scale


def name(result):
    return "-".join(str(result[k]) for k in ("norm", "pre_bias", "eps", "delta", "transform"))


@pytest.mark.parametrize("result", GOLDEN["results"], ids=name)
def test_output_and_change(result):
    element = transform(result["transform"], result["delta"])
    start, moved = biases(result)
    before = layer(result, start)(WEIGHT, DATA)
    after = layer(result, moved)(*element(WEIGHT, DATA))
    torch.testing.assert_close(
        after, torch.tensor(result["abar"], dtype=torch.float64), rtol=1e-12, atol=1e-12
    )
    assert float((after - before).abs().max()) == pytest.approx(result["max_abs_change"], rel=1e-9, abs=1e-13)


@pytest.mark.parametrize(
    "result", [r for r in GOLDEN["results"] if r["pre_bias"] != "vector_scaled_with_W"], ids=name
)
def test_verdict(result):
    """`exactly` is the golden yes or no; a sign flip and an eps are told apart from a plain No."""
    element = transform(result["transform"], result["delta"])
    (verdict,) = ng.check(
        layer(result, biases(result)[0]), [element], engines=["numeric"], weight=WEIGHT, data=DATA
    )
    assert verdict.exactly == result["invariant"]
    if result["eps"] == 0 and result["sign_flip_of_normalised_part"]:
        assert not verdict.holds


@pytest.mark.parametrize(("short", "row"), GOLDEN["table1"].items())
def test_table_1(short, row):
    verdicts = ng.check(NORMS[short])
    assert [v.holds for v in verdicts] == list(row.values())
