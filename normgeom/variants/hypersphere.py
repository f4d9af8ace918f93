"""nGPT: weights and hidden states of length 1. The data are hidden states, one position a case."""

import torch

from normgeom.variants.variant import INVARIANT, NO, Claims, Variant, summed
from normgeom.variants.weight import unit_rows

FAMILY = "hypersphere"
WIDTH = 4


def ngpt_projected(weight: torch.Tensor, data: torch.Tensor, *, alpha: float) -> torch.Tensor:
    """A step of size alpha on the sphere, from the hidden state towards the module's output."""
    state = unit_rows(data)
    return unit_rows(state + alpha * (unit_rows(summed(weight, state)) - state))


def ngpt_reparametrized(weight: torch.Tensor, data: torch.Tensor, *, alpha: float) -> torch.Tensor:
    """The same step with the rows of the weight brought to length 1 inside the function."""
    return ngpt_projected(unit_rows(weight), data, alpha=alpha)


MEMBERS = (
    Variant(
        name="nGPT, re-parametrized",
        family=FAMILY,
        formula="N(h + alpha (N(V h) - h)), h = N(x), N(u) = u/|u|, v_i = w_i/|w_i|",
        latex=r"N(h+\alpha(N(Vh)-h)),\ v_i=w_i/\|w_i\|,\ h=N(x)",
        source="Loshchilov et al. 2024, nGPT, with the weights normalized in the forward pass",
        function=ngpt_reparametrized,
        claims=Claims(INVARIANT, NO, INVARIANT, INVARIANT, NO, INVARIANT),
        options={"alpha": 0.05},
        units=WIDTH,
        inputs=WIDTH,
    ),
    Variant(
        name="nGPT, projected after the step",
        family=FAMILY,
        formula="N(h + alpha (N(W h) - h)), h = N(x), N(u) = u/|u|; the optimizer's step ends with "
        "w_i -> w_i/|w_i|",
        latex=r"N(h+\alpha(N(Wh)-h)),\ h=N(x)",
        source="Loshchilov et al. 2024, nGPT, as published",
        function=ngpt_projected,
        claims=Claims(INVARIANT, NO, NO, INVARIANT, NO, INVARIANT),
        options={"alpha": 0.05},
        units=WIDTH,
        inputs=WIDTH,
    ),
)
