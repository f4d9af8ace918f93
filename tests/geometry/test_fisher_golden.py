import json
from pathlib import Path

import pytest
import torch

from normgeom.geometry.families import Bernoulli, Categorical, Gaussian, Poisson
from normgeom.geometry.fisher import fisher
from normgeom.geometry.glm import NormalizedGLM
from normgeom.geometry.operator import FisherOperator
from normgeom.geometry.per_example import per_example_fisher
from normgeom.norms import BatchNorm, LayerNorm, NoNorm, RMSNorm, WeightNorm
from tests.geometry.networks import assert_near

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "fisher.json").read_text())["cases"]
NORMS = {"none": NoNorm(), "wn": WeightNorm(), "ln": LayerNorm(), "rms": RMSNorm(), "bn": BatchNorm()}
FAMILIES = {"bernoulli": Bernoulli(), "categorical": Categorical(), "poisson": Poisson()}


@pytest.fixture(params=GOLDEN, ids=[case["name"] for case in GOLDEN])
def golden(request):
    case = request.param
    data, weight, bias, gain, wanted = (
        None if case[k] is None else torch.tensor(case[k], dtype=torch.float64)
        for k in ("X", "W", "b", "g", "fisher")
    )
    norm = BatchNorm().freeze(weight, data) if case["norm"] == "bn_frozen" else NORMS[case["norm"]]
    family = FAMILIES.get(case["dist"]) or Gaussian(case["phi"])
    params = {"weight": weight, "bias": bias} | ({} if gain is None else {"gain": gain})
    return NormalizedGLM(norm, family, eps=case["eps"]), params, data, wanted


@pytest.mark.parametrize("route", [None, "batch"], ids=["closed form", "autograd"])
def test_golden_fisher(golden, route):
    glm, params, data, wanted = golden
    assert_near(fisher(glm, params, data, route=route).matrix, wanted)


def test_golden_fisher_by_the_chosen_route_and_as_a_function(golden):
    glm, params, data, wanted = golden
    assert_near(fisher(glm, params, data, blocks=list(params)).matrix, wanted)
    function = lambda params, data: glm(params, data)  # noqa: E731
    assert_near(fisher(function, params, data, family=glm.family).matrix, wanted)


def test_golden_per_example_and_operator(golden):
    glm, params, data, wanted = golden
    assert_near(per_example_fisher(glm, params, data).materialize().matrix.mean(0), wanted)
    assert_near(per_example_fisher(glm, params, data, blocks=list(params)).mean().matrix, wanted)
    F = fisher(glm, params, data, order="tensor").matrix
    assert_near(FisherOperator(glm, params, data).to_dense(), F)
