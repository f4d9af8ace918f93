"""The angle between weight vector and input in place of their inner product."""

import torch
import torch.nn.functional as F

from normgeom.variants.statistics import Cosine
from normgeom.variants.variant import NO, UP_TO_EPS, Claims, Variant
from normgeom.variants.weight import SHIFT_CASES, SHIFT_ROWS

FAMILY = "cosine"
COSINE_ROW = Claims(UP_TO_EPS, NO, UP_TO_EPS, UP_TO_EPS, NO, UP_TO_EPS)


def cosine_norm(weight: torch.Tensor, data: torch.Tensor, *, eps: float, input_eps: float) -> torch.Tensor:
    """Cosine of the angle between every weight vector and every input, lengths clamped at an eps."""
    return F.normalize(data, dim=1, eps=input_eps) @ F.normalize(weight, dim=1, eps=eps).T


def centred_cosine_norm(
    weight: torch.Tensor, data: torch.Tensor, *, eps: float, input_eps: float
) -> torch.Tensor:
    """Pearson correlation of every weight vector and every input, lengths clamped at an eps."""
    weight, data = (array - array.mean(1, keepdim=True) for array in (weight, data))
    return cosine_norm(weight, data, eps=eps, input_eps=input_eps)


MEMBERS = (
    Variant(
        name="cosine norm",
        family=FAMILY,
        formula="w_i x/(max(|w_i|, eps) max(|x|, eps))",
        latex=r"w_i^\top x/(\|w_i\|\,\|x\|)",
        source="Luo et al. 2018, Cosine Normalization",
        function=cosine_norm,
        claims=COSINE_ROW,
        options={"eps": 1e-12, "input_eps": 1e-12},
        norm=Cosine(),
        eps_power=1,
    ),
    Variant(
        name="centred cosine norm",
        family=FAMILY,
        formula="v_i y/(max(|v_i|, eps) max(|y|, eps)), v_i = w_i - mean w_i, y = x - mean x",
        latex=r"(w_i-\bar w_i)^\top(x-\bar x)/(\|w_i-\bar w_i\|\,\|x-\bar x\|)",
        source="Luo et al. 2018, Cosine Normalization",
        function=centred_cosine_norm,
        claims=COSINE_ROW,
        options={"eps": 1e-12, "input_eps": 1e-12},
        norm=Cosine(centred=True),
        eps_power=1,
        symmetries=(SHIFT_ROWS, SHIFT_CASES),
    ),
)
