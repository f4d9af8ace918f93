"""Layer norms written by hand with one classic mistake each: verdict, degree or message tells them apart."""

import pytest
import torch
from torch import nn

import normgeom as ng

Kind = ng.Kind
EPS = 1e-5


def centred(z):
    return z - z.mean(1, keepdim=True)


def variance(z, correction=0):
    return z.var(1, keepdim=True, correction=correction)


class By(nn.Module):
    """A function of the summed inputs as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, summed):
        return self.function(summed)


def in_place(z):
    z -= z.mean(1, keepdim=True)
    return z / (z.square().mean(1, keepdim=True) + EPS).sqrt()


def eps_twice_on_one_line(z):
    return centred(z) / ((variance(z) + EPS) ** 0.25 * (variance(z) + EPS) ** 0.25)


def accumulated_in_half(z):
    return centred(z) / ((z.half() ** 2).mean(1, keepdim=True).to(z.dtype) + EPS).sqrt()


def biased(z):
    return centred(z) / (variance(z) + EPS).sqrt()


MISTAKES = {
    "unbiased variance": lambda z: centred(z) / (variance(z, 1) + EPS).sqrt(),
    "unbiased by hand": lambda z: centred(z) / (centred(z).square().sum(1, True) / 4 + EPS).sqrt(),
    "eps outside the root": lambda z: centred(z) / (variance(z).sqrt() + EPS),
    "eps in both places": lambda z: centred(z) / ((variance(z) + EPS).sqrt() + EPS),
    "eps twice on one line": eps_twice_on_one_line,
    "mean over the cases": lambda z: (z - z.mean(0)) / (variance(z) + EPS).sqrt(),
    "mean over everything": lambda z: (z - z.mean()) / (variance(z) + EPS).sqrt(),
    "variance for deviation": lambda z: centred(z) / (variance(z) + EPS),
    "detached deviation": lambda z: centred(z) / (variance(z) + EPS).sqrt().detach(),
    "detached mean": lambda z: (z - z.mean(1, keepdim=True).detach()) / (variance(z) + EPS).sqrt(),
    "in place": in_place,
    "half precision": accumulated_in_half,
    "a bias before": lambda z: biased(z + torch.linspace(0, 1, 5, dtype=z.dtype)),
    "no mistake": biased,
}
LAYER_NORM = (True, True, False, True, False, True)
OTHER_ROW = {
    "mean over the cases": (True, False, False, True, False, False),
    "mean over everything": (True, False, False, True, False, False),
    "variance for deviation": (False, True, False, False, False, False),
    "a bias before": (False, True, False, False, False, False),
}
SAID = {
    "unbiased variance": "variance (n - 1)/n over the 5 units",
    "unbiased by hand": "variance (n - 1)/n over the 5 units",
    "eps outside the root": "outside the root",
    "eps in both places": "test_mistakes.py:53; + eps (1e-05), test_mistakes.py:53, outside the root",
    "eps twice on one line": "+ eps (1e-05), test_mistakes.py:38 (2 times)",
    "variance for deviation": "at eps = 0 the outputs are ∝δ^-1",
    "detached deviation": "the gradient identity fails, by 0.",
    "detached mean": "the gradient identity fails, by 0.",
    "in place": "the module changes its input in place (test_mistakes.py:33)",
    "half precision": "narrow cast to float16 at test_mistakes.py:42",
}


@pytest.fixture(scope="module")
def rows():
    return {name: ng.check(By(function), units=5) for name, function in MISTAKES.items()}


def said(row):
    return "\n".join([*row.remarks, *(verdict.reason for verdict in row)])


@pytest.mark.parametrize("name", [name for name in MISTAKES if name != "half precision"])
def test_the_row_of_each(rows, name):
    assert rows[name].holds == OTHER_ROW.get(name, LAYER_NORM)


@pytest.mark.parametrize("name", SAID)
def test_what_is_said_of_it_and_of_no_other(rows, name):
    assert SAID[name] in said(rows[name])
    assert SAID[name] not in said(rows["no mistake"])
    assert rows["no mistake"].remarks == ()


def test_where_the_gradient_is_cut_is_said(rows):
    assert "(detached at test_mistakes.py:58)" in rows["detached deviation"]["CaseRescale"].reason


def test_a_right_backward_pass_is_not_blamed(rows):
    assert "gradient" not in "".join(said(row) for name, row in rows.items() if "detached" not in name)


def test_a_claim_of_re_centering_that_is_broken_names_its_line(rows):
    reason = rows["mean over the cases"]["WeightMatrixRecenter"].reason
    assert "stay so after aten.sub, test_mistakes.py:55" in reason
    assert "may be 0" not in reason


@pytest.mark.parametrize(("engines", "told"), [(["abstract"], True), (["abstract", "numeric"], False)])
def test_that_a_shift_may_be_nothing_is_said_without_a_witness(engines, told):
    (verdict,) = ng.check(lambda w, x: 2 * (x @ w.T), [ng.WeightMatrixRecenter], engines=engines)
    assert ("by an amount that may be 0" in verdict.reason) is told
    assert "nothing takes that away after aten.mm, test_mistakes.py" in verdict.reason


@pytest.mark.parametrize("correction", [0, 1])
@pytest.mark.parametrize(("axes", "name"), [((0, 2, 3), "cases"), ((2, 3), "positions")])
def test_the_scale_of_statistics_over_images(correction, axes, name):
    norm = By(
        lambda a: (a - a.mean(axes, keepdim=True)) / a.var(axes, keepdim=True, correction=correction).sqrt()
    )
    layer = ng.on_summed_inputs(norm, kernel=(2, 1), spatial=(3, 3))
    row = ng.check(layer, [ng.WeightMatrixRescale], units=3, engines=["numeric"])
    assert any(f"{name}: a variance is divided by n - 1" in r for r in row.remarks) == bool(correction)


def test_the_degree_of_local_response_norm():
    row = ng.check(nn.LocalResponseNorm(2, k=0.0))
    assert [verdict.degree for verdict in row] == [-0.5, None, None, -0.5, None, -0.5]
    assert row[0].scaling == "∝δ^-0.5"


@pytest.mark.parametrize("power", [1 / 3, -0.25, 1.5])
@pytest.mark.parametrize("engine", ["numeric", "graph", "abstract"])
def test_every_engine_finds_a_degree_that_is_no_whole_number(engine, power):
    (verdict,) = ng.check(lambda w, x: (x @ w.T).abs() ** power, [ng.CaseRescale], engines=[engine])
    assert verdict.degree == pytest.approx(power, abs=1e-15)


def test_a_power_that_is_no_simple_fraction_has_no_degree():
    (verdict,) = ng.check(lambda w, x: (x @ w.T).abs() ** 0.71, [ng.CaseRescale], engines=["numeric"])
    assert verdict.degree is None


def by_size(z):
    if z.shape[1] > 100:
        return z
    return z / z.norm(dim=1, keepdim=True)


def test_code_that_compares_sizes_is_proved_for_one_size():
    row = ng.check(By(by_size), [ng.CaseRescale], units=5)
    assert "this size, since the code compares sizes at test_mistakes.py:158" in str(row[0].proof)
    assert "(test_mistakes.py:158): what is said holds at the sizes of this check" in row.remarks[0]
    plain = ng.check(By(lambda z: z.reshape(*z.shape) / z.norm(dim=1, keepdim=True)), [ng.CaseRescale])
    assert "every size" in str(plain[0].proof)
    assert plain.remarks == ()
