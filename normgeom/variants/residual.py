"""Where the norm stands in a residual block. The block's module is `W x`, and x is its input.

Blocks that add `W x` to x need as many units as inputs; the data are the residual
stream, one position a case.
"""

from typing import Any

import torch
import torch.nn.functional as F

from normgeom.norms import InputLayerNorm
from normgeom.variants.statistics import ResidualLayerNorm
from normgeom.variants.variant import INVARIANT, LINEAR, NO, UP_TO_EPS, Claims, Symmetry, Variant, summed
from normgeom.variants.weight import SHIFT_CASES, SHIFT_ROWS

FAMILY = "residual"
WIDTH = 4
POST_ROW = Claims(NO, INVARIANT, NO, UP_TO_EPS, NO, UP_TO_EPS)


def pre_norm(weight: torch.Tensor, data: torch.Tensor, *, eps: float) -> torch.Tensor:
    """The branch of a pre-norm block: the module of the normalized input."""
    return summed(weight, F.layer_norm(data, data.shape[1:], eps=eps))


def post_norm(weight: torch.Tensor, data: torch.Tensor, *, alpha: float, eps: float) -> torch.Tensor:
    """Layer norm of the scaled input plus the module's output."""
    a = alpha * data + summed(weight, data)
    return F.layer_norm(a, a.shape[1:], eps=eps)


def sandwich_norm(weight: torch.Tensor, data: torch.Tensor, *, eps: float, input_eps: float) -> torch.Tensor:
    """The input plus layer norm of the module of the normalized input."""
    branch = summed(weight, F.layer_norm(data, data.shape[1:], eps=input_eps))
    return data + F.layer_norm(branch, branch.shape[1:], eps=eps)


def peri_norm(weight: torch.Tensor, data: torch.Tensor, *, eps: float, input_eps: float) -> torch.Tensor:
    """The input plus RMSNorm of the module of the input after RMSNorm."""
    branch = summed(weight, F.rms_norm(data, data.shape[1:], eps=input_eps))
    return data + F.rms_norm(branch, branch.shape[1:], eps=eps)


def _trade(
    c: float, weight: torch.Tensor, data: torch.Tensor, options: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    return c * weight, data, options | {"alpha": c * options["alpha"]}


TRADE = Symmetry("(W, α) → (cW, cα)", r"(W,\alpha)\to(cW,c\alpha)", _trade)
DEPTH = 8

MEMBERS = (
    Variant(
        name="pre-norm",
        family=FAMILY,
        formula="w_i LN(x), LN(x) = (x - mean x)/sqrt(var x + eps)",
        latex=r"w_i^\top\mathrm{LN}(x)",
        source="Xiong et al. 2020, On Layer Normalization in the Transformer Architecture",
        function=pre_norm,
        claims=Claims(LINEAR, NO, LINEAR, UP_TO_EPS, NO, UP_TO_EPS),
        options={"eps": 1e-5},
        norm=InputLayerNorm(),
        eps_power=2,
        symmetries=(SHIFT_ROWS, SHIFT_CASES),
    ),
    Variant(
        name="post-norm",
        family=FAMILY,
        formula="LN(alpha x + W x), alpha = 1",
        latex=r"\mathrm{LN}(x+Wx)",
        source="Vaswani et al. 2017, Attention Is All You Need",
        function=post_norm,
        claims=POST_ROW,
        options={"alpha": 1.0, "eps": 1e-5},
        norm=ResidualLayerNorm(),
        units=WIDTH,
        inputs=WIDTH,
        eps_power=2,
        symmetries=(TRADE,),
    ),
    Variant(
        name="DeepNorm",
        family=FAMILY,
        formula=f"LN(alpha x + W x), alpha = (2 L)^(1/4), L = {DEPTH} layers",
        latex=r"\mathrm{LN}(\alpha x+Wx),\ \alpha=(2L)^{1/4}",
        source="Wang et al. 2022, DeepNet",
        function=post_norm,
        claims=POST_ROW,
        options={"alpha": (2 * DEPTH) ** 0.25, "eps": 1e-5},
        norm=ResidualLayerNorm((2 * DEPTH) ** 0.25),
        units=WIDTH,
        inputs=WIDTH,
        eps_power=2,
        symmetries=(TRADE,),
    ),
    Variant(
        name="sandwich norm",
        family=FAMILY,
        formula="x + LN(W LN(x))",
        latex=r"x+\mathrm{LN}(W\,\mathrm{LN}(x))",
        source="Ding et al. 2021, CogView",
        function=sandwich_norm,
        claims=Claims(UP_TO_EPS, INVARIANT, NO, NO, NO, NO),
        options={"eps": 1e-5, "input_eps": 1e-5},
        units=WIDTH,
        inputs=WIDTH,
        eps_power=2,
        symmetries=(SHIFT_ROWS,),
    ),
    Variant(
        name="peri-norm",
        family=FAMILY,
        formula="x + RMSNorm(W RMSNorm(x))",
        latex=r"x+\mathrm{RMS}(W\,\mathrm{RMS}(x))",
        source="Kim et al. 2025, Peri-LN",
        function=peri_norm,
        claims=Claims(UP_TO_EPS, NO, NO, NO, NO, NO),
        options={"eps": 1e-6, "input_eps": 1e-6},
        units=WIDTH,
        inputs=WIDTH,
        eps_power=2,
    ),
)
