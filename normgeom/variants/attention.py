"""Attention logits of one head. The weight stacks W_Q over W_K; the data are the tokens, one a case.

With `q_n = W_Q x_n`, `k_m = W_K x_m`, the outputs are the logits of token n on every token m, of shape
(cases, cases).
"""

from typing import Any

import torch
import torch.nn.functional as F

from normgeom.variants.variant import INVARIANT, NO, UP_TO_EPS, Claim, Claims, Symmetry, Variant, summed

FAMILY = "attention"
UNITS = 6  # heads of three: with two, a centred vector keeps a sign only
SQUARE = Claim("not invariant", 2)
Moved = tuple[torch.Tensor, torch.Tensor, dict[str, Any]]


def _heads(weight: torch.Tensor, data: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    query, key = summed(weight, data).chunk(2, 1)
    return query, key


def attention_logits(weight: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Inner products of queries and keys over the root of their number of entries."""
    query, key = _heads(weight, data)
    return query @ key.T / query.shape[1] ** 0.5


def l2_qk_norm(weight: torch.Tensor, data: torch.Tensor, *, gain: float, eps: float) -> torch.Tensor:
    """A gain times the cosine of query and key."""
    query, key = (F.normalize(part, dim=1, eps=eps) for part in _heads(weight, data))
    return gain * query @ key.T


def rms_qk_norm(weight: torch.Tensor, data: torch.Tensor, *, eps: float) -> torch.Tensor:
    """Attention logits of queries and keys after RMSNorm."""
    query, key = (F.rms_norm(part, part.shape[1:], eps=eps) for part in _heads(weight, data))
    return query @ key.T / query.shape[1] ** 0.5


def layer_qk_norm(weight: torch.Tensor, data: torch.Tensor, *, eps: float) -> torch.Tensor:
    """Attention logits of queries and keys after layer norm."""
    query, key = (F.layer_norm(part, part.shape[1:], eps=eps) for part in _heads(weight, data))
    return query @ key.T / query.shape[1] ** 0.5


def _mix(c: float, weight: torch.Tensor, data: torch.Tensor, options: dict[str, Any]) -> Moved:
    query, key = weight.chunk(2)
    mixing = torch.eye(len(query)).to(weight) * c + torch.ones(len(query), len(query)).to(weight)
    return torch.cat([mixing @ query, torch.linalg.inv(mixing).T @ key]), data, options


def _turn(c: float, weight: torch.Tensor, data: torch.Tensor, options: dict[str, Any]) -> Moved:
    query, key = weight.chunk(2)
    axis = torch.arange(1, len(query) + 1).to(weight)
    plane = torch.outer(axis, axis.flip(0))
    rotation = torch.linalg.matrix_exp(c * (plane - plane.T) / len(query))
    return torch.cat([rotation @ query, rotation @ key]), data, options


def _scale_query(c: float, weight: torch.Tensor, data: torch.Tensor, options: dict[str, Any]) -> Moved:
    query, key = weight.chunk(2)
    return torch.cat([c * query, key]), data, options


def _shift_query(c: float, weight: torch.Tensor, data: torch.Tensor, options: dict[str, Any]) -> Moved:
    query, key = weight.chunk(2)
    steps = torch.arange(1, weight.shape[1] + 1).to(weight)
    return torch.cat([query + c * steps, key]), data, options


MIX = Symmetry("(W_Q, W_K) → (M W_Q, M⁻ᵀ W_K)", r"(W_Q,W_K)\to(MW_Q,M^{-\top}W_K)", _mix)
TURN = Symmetry("(W_Q, W_K) → (R W_Q, R W_K), R a rotation", r"(W_Q,W_K)\to(RW_Q,RW_K)", _turn)
SCALE = Symmetry("(W_Q, W_K) → (c W_Q, W_K)", r"(W_Q,W_K)\to(cW_Q,W_K)", _scale_query)
SHIFT = Symmetry("(W_Q, W_K) → (W_Q + 1γᵀ, W_K)", r"(W_Q,W_K)\to(W_Q+\mathbf 1\gamma^\top,W_K)", _shift_query)

QK_ROW = Claims(UP_TO_EPS, NO, NO, UP_TO_EPS, NO, UP_TO_EPS)

MEMBERS = (
    Variant(
        name="attention logits, no norm",
        family=FAMILY,
        formula="q_n k_m/sqrt(d)",
        latex=r"q_n^\top k_m/\sqrt d",
        source="Vaswani et al. 2017, Attention Is All You Need",
        function=attention_logits,
        claims=Claims(SQUARE, NO, NO, SQUARE, NO, NO),
        units=UNITS,
        symmetries=(MIX,),
    ),
    Variant(
        name="QK-norm, L2",
        family=FAMILY,
        formula="g q_n k_m/(max(|q_n|, eps) max(|k_m|, eps))",
        latex=r"g\,q_n^\top k_m/(\|q_n\|\,\|k_m\|)",
        source="Henry et al. 2020, Query-Key Normalization for Transformers",
        function=l2_qk_norm,
        claims=QK_ROW,
        options={"gain": 10.0, "eps": 1e-12},
        units=UNITS,
        eps_power=1,
        symmetries=(SCALE, TURN),
    ),
    Variant(
        name="QK-norm, RMS",
        family=FAMILY,
        formula="RMSNorm(q_n) RMSNorm(k_m)/sqrt(d)",
        latex=r"\mathrm{RMS}(q_n)^\top\mathrm{RMS}(k_m)/\sqrt d",
        source="OLMo Team 2024, 2 OLMo 2 Furious",
        function=rms_qk_norm,
        claims=QK_ROW,
        options={"eps": 1e-6},
        units=UNITS,
        eps_power=2,
        symmetries=(SCALE, TURN),
    ),
    Variant(
        name="QK-norm, LN",
        family=FAMILY,
        formula="LN(q_n) LN(k_m)/sqrt(d)",
        latex=r"\mathrm{LN}(q_n)^\top\mathrm{LN}(k_m)/\sqrt d",
        source="Dehghani et al. 2023, Scaling Vision Transformers to 22 Billion Parameters",
        function=layer_qk_norm,
        claims=Claims(UP_TO_EPS, INVARIANT, NO, UP_TO_EPS, NO, UP_TO_EPS),
        options={"eps": 1e-6},
        units=UNITS,
        eps_power=2,
        symmetries=(SCALE, SHIFT),
    ),
)
