"""Layers without statistics: squashing functions, softmax, and nothing at all."""

from typing import Any

import torch

from normgeom.norms import NoNorm
from normgeom.variants.batch import NOTHING, SCALES_ALONG
from normgeom.variants.variant import INVARIANT, NO, Claims, Symmetry, Variant, summed

FAMILY = "pointwise"


def _trade(
    c: float, weight: torch.Tensor, data: torch.Tensor, options: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    return c * weight, data, options | {"alpha": options["alpha"] / c}


TRADE = Symmetry("(W, α) → (cW, α/c)", r"(W,\alpha)\to(cW,\alpha/c)", _trade)


def dynamic_tanh(weight: torch.Tensor, data: torch.Tensor, *, alpha: float) -> torch.Tensor:
    """Hyperbolic tangent of the scaled summed inputs."""
    return torch.tanh(alpha * summed(weight, data))


def dynamic_erf(weight: torch.Tensor, data: torch.Tensor, *, alpha: float, shift: float) -> torch.Tensor:
    """Error function of the scaled and shifted summed inputs."""
    return torch.erf(alpha * summed(weight, data) + shift)


def softmax(weight: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Softmax over the units."""
    return torch.softmax(summed(weight, data), 1)


MEMBERS = (
    Variant(
        name="DyT",
        family=FAMILY,
        formula="tanh(alpha a_i)",
        latex=r"\tanh(\alpha a_i)",
        source="Zhu et al. 2025, Transformers without Normalization",
        function=dynamic_tanh,
        claims=NOTHING,
        options={"alpha": 0.5},
        symmetries=(TRADE,),
    ),
    Variant(
        name="Derf",
        family=FAMILY,
        formula="erf(alpha a_i + s)",
        latex=r"\mathrm{erf}(\alpha a_i+s)",
        source="Chen et al. 2025, Stronger Normalization-Free Transformers",
        function=dynamic_erf,
        claims=NOTHING,
        options={"alpha": 0.5, "shift": 0.0},
        symmetries=(TRADE,),
    ),
    Variant(
        name="softmax",
        family=FAMILY,
        formula="exp(a_i)/sum_j exp(a_j)",
        latex=r"e^{a_i}/\textstyle\sum_j e^{a_j}",
        source="Bridle 1990, Probabilistic Interpretation of Feedforward Classification Network Outputs",
        function=softmax,
        claims=Claims(NO, INVARIANT, NO, NO, NO, NO),
    ),
    Variant(
        name="none",
        family=FAMILY,
        formula="a_i",
        latex=r"a_i",
        source="Ba et al. 2016, Layer Normalization",
        function=summed,
        claims=SCALES_ALONG,
        norm=NoNorm(),
    ),
)
