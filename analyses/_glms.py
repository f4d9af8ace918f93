"""The GLMs that the analyses of the metric share, and how their numbers are written."""

from typing import Any

import torch
from torch import Tensor

import normgeom as ng
from analyses._run import Options
from normgeom.geometry.families import Bernoulli, Categorical, Gaussian, Poisson
from normgeom.geometry.glm import NormalizedGLM, Params

NORMS: dict[str, Any] = {
    "no norm": ng.NoNorm(),
    "weight norm": ng.WeightNorm(),
    "batch norm": ng.BatchNorm(),
    "layer norm": ng.LayerNorm(),
    "RMSNorm": ng.RMSNorm(),
}
FAMILIES: dict[str, Any] = {
    "Gaussian": Gaussian(),
    "Bernoulli": Bernoulli(),
    "categorical": Categorical(),
    "Poisson": Poisson(),
}


def problem(
    norm: str, family: str, options: Options, *, units: int, inputs: int, cases: int
) -> tuple[NormalizedGLM, Params, Tensor]:
    """Return a GLM, parameters away from their initial values, and data; the same draws for every norm.

    Data are normal with mean 1/2, weights normal with variance 1/inputs, gains around 1, biases around 0.
    """
    generator = options.generator()

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(options.device)

    data, weight = draw(cases, inputs) + 0.5, draw(units, inputs) / inputs**0.5
    params = {"weight": weight, "bias": 0.3 * draw(units), "gain": 1 + 0.3 * draw(units)}
    if norm == "no norm":
        del params["gain"]
    return NormalizedGLM(NORMS[norm], FAMILIES[family]), params, data


def ratio(value: float | None, digits: int = 4) -> str:
    """Return a factor to some digits, a dash if there is none."""
    return "–" if value is None else f"{value:.{digits}f}".replace("-", "−")


def small(value: float) -> str:
    """Return a relative error: plain above 0.01 %, else in powers of ten."""
    return f"{value:.2g}" if value >= 1e-4 else ("0" if value == 0 else f"{value:.0e}")
