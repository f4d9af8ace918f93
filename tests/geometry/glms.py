"""Named GLMs that the tests share."""

import json
from pathlib import Path

import torch

from normgeom.geometry.families import Bernoulli, Categorical, Gamma, Gaussian, NonCanonical, Poisson
from normgeom.geometry.glm import NormalizedGLM
from normgeom.norms import BatchNorm, InputLayerNorm, LayerNorm, NoNorm, RMSNorm, WeightNorm

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = {case["name"]: case for case in json.loads((GOLDEN / "fisher.json").read_text())["cases"]}
AUDIT = json.loads((GOLDEN / "audit.json").read_text())

NORMS = {
    "none": NoNorm(),
    "wn": WeightNorm(),
    "bn": BatchNorm(),
    "ln": LayerNorm(),
    "rms": RMSNorm(),
    "input_ln": InputLayerNorm(),
}
FAMILIES = {
    "gaussian": Gaussian(0.7),
    "bernoulli": Bernoulli(),
    "categorical": Categorical(),
    "poisson": Poisson(),
    "gamma": NonCanonical.from_mean(Gamma(2.5), torch.exp),
}


def double(values):
    return torch.tensor(values, dtype=torch.float64)


def golden(name):
    """The model, parameters and data of a golden case."""
    case = CASES[name]
    weight, data = double(case["W"]), double(case["X"])
    norm = BatchNorm().freeze(weight, data) if case["norm"] == "bn_frozen" else NORMS[case["norm"]]
    family = Gaussian(case["phi"]) if case["dist"] == "gaussian" else FAMILIES[case["dist"]]
    params = {"weight": weight, "bias": double(case["b"])}
    if case["g"] is not None:
        params["gain"] = double(case["g"])
    return NormalizedGLM(norm, family, case["eps"]), params, data


def problem(norm, family, *, units=4, inputs=5, cases=60, eps=0.0, seed=0, gain=True):
    """A model, parameters away from their initial values, and data."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    data, weight = draw(cases, inputs), draw(units, inputs)
    params = {"weight": weight, "bias": 0.3 * draw(units)}
    if gain and norm != "none":
        params["gain"] = 1 + 0.3 * draw(units)
    chosen = BatchNorm().freeze(weight, data) if norm == "bn_frozen" else NORMS[norm]
    return NormalizedGLM(chosen, FAMILIES[family], eps), params, data
