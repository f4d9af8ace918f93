"""The normalized generalized linear model: one normalized layer whose outputs are natural parameters.

`eta = gain * z + bias` with `z` the normalized summed inputs, and y distributed as the family says given
eta. Source: Ba et al. 2016, section 5.2.1.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from normgeom.geometry.arguments import (
    check_count,
    check_family,
    check_generator,
    check_inputs,
    check_params_dict,
    check_values,
)
from normgeom.geometry.families import Family
from normgeom.norms import NoNorm, Norm, check_shapes, normalize

if TYPE_CHECKING:
    from normgeom.geometry.fit import FitResult

Params = dict[str, Tensor]
NAMES = ("weight", "bias", "gain")
"""The parameters of a GLM in the paper's order, whatever the order of the dict."""


@dataclass(frozen=True)
class NormalizedGLM:
    """A generalized linear model with normalized summed inputs: `eta = gain * (a - mu)/sigma + bias`.

    Parameters are a dict with `weight` (units, inputs), `bias` and `gain` (units,). Without a normalization
    a gain would only repeat what the weight can do: `NormalizedGLM(NoNorm(), ...)` has none unless the
    dict holds one. Batch-norm statistics are functions of the weights over the data given; for evaluation
    mode freeze them: `NormalizedGLM(BatchNorm().freeze(weight, data), family)`.

    Source: Ba et al. 2016, section 5.2.1, eq. 9 to 11. The paper has no eps.

    Args:
        norm: a norm, an object with `statistics(weight, data)`.
        family: how y is distributed given eta.
        eps: added to the variance, inside the root.

    >>> from normgeom.geometry.families import Bernoulli
    >>> from normgeom.norms import RMSNorm
    >>> glm = NormalizedGLM(RMSNorm(), Bernoulli())
    >>> params = {"weight": torch.tensor([[3.0], [4.0]]), "bias": torch.zeros(2), "gain": torch.ones(2)}
    >>> glm(params, torch.tensor([[1.0]])) * 12.5**0.5
    tensor([[3., 4.]])
    """

    norm: Norm
    family: Family
    eps: float = 0.0

    def __post_init__(self) -> None:
        """Raise an error for what is not a norm, a family and an eps."""
        if isinstance(self.norm, type) or not hasattr(self.norm, "statistics"):
            raise TypeError(
                "the norm must be an object with statistics(weight, data), for example LayerNorm(); "
                f"got {self.norm!r}."
            )
        check_family(self.family)
        if not 0 <= self.eps < float("inf"):
            raise ValueError(f"eps must be a finite number >= 0; got {self.eps}.")

    def init(
        self,
        inputs: int,
        units: int,
        *,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> Params:
        """Return new parameters: normal weights of variance 1/inputs, bias 0 and gain 1.

        Gain 1 and bias 0 are right; the paper's supplement has the two values swapped.
        """
        check_generator(generator)
        check_count("inputs", inputs)
        check_count("units", units)
        weight = torch.randn(units, inputs, generator=generator, dtype=dtype, device=generator.device)
        weight = weight.to(device or generator.device) / inputs**0.5
        params = {"weight": weight, "bias": weight.new_zeros(units)}
        return params if isinstance(self.norm, NoNorm) else params | {"gain": weight.new_ones(units)}

    def __call__(self, params: Params, data: Tensor, /) -> Tensor:
        """Return the natural parameters eta, (cases, units)."""
        check_params(params, data)
        z = self.normalized(params, data)
        return (z * params["gain"] if "gain" in params else z) + params["bias"]

    def normalized(self, params: Params, data: Tensor, /) -> Tensor:
        """Return the normalized summed inputs z, (cases, units)."""
        return normalize(self.norm, params["weight"], data, eps=self.eps)

    def log_likelihood(self, params: Params, data: Tensor, targets: Tensor) -> Tensor:
        """Return log p(y_n | x_n) of every case, of shape (cases,)."""
        return self.family.log_prob(targets, self(params, data))

    def sample(self, params: Params, data: Tensor, *, generator: torch.Generator) -> Tensor:
        """Draw y for every case."""
        check_generator(generator)
        eta = self(params, data)
        self.family.check(eta)
        return self.family.sample(eta, generator=generator)

    def fit(self, params: Params, data: Tensor, targets: Tensor, **options: Any) -> "FitResult":
        """Minimize the mean negative log-likelihood from `params`; see `normgeom.geometry.fit.fit`."""
        from normgeom.geometry.fit import fit

        return fit(self, params, data, targets, **options)


def check_params(params: Params, data: Tensor) -> None:
    """Raise a ValueError unless the parameters are those of a GLM for this data."""
    check_params_dict(params)
    if not {"weight", "bias"} <= params.keys() <= {"weight", "bias", "gain"}:
        raise ValueError(
            "the parameters of a GLM are 'weight', 'bias' and, if it has one, 'gain'; "
            f"got {sorted(params)}. NormalizedGLM.init makes them."
        )
    check_shapes(params["weight"], data)
    units = params["weight"].shape[0]
    for name in params.keys() - {"weight"}:
        if tuple(params[name].shape) != (units,):
            raise ValueError(
                f"{name} must have one number a unit, shape ({units},) for this weight; "
                f"got {tuple(params[name].shape)}."
            )
    kinds = {str(tensor.dtype) for tensor in (*params.values(), data)}
    if len(kinds) > 1:
        raise ValueError(f"parameters and data must have one dtype; got {', '.join(sorted(kinds))}.")


def check_problem(model: object, params: Params, data: Tensor) -> None:
    """Raise an error unless this is a GLM with finite parameters of the right shapes, and cases of data."""
    if not isinstance(model, NormalizedGLM):
        raise TypeError(
            f"the closed form is that of a NormalizedGLM; got {type(model).__name__}. "
            "fisher() takes any model."
        )
    check_params(params, data)
    check_values(params)
    check_inputs(data)
