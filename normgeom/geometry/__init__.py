"""The Fisher metric of normalized models: section 5.2 of the paper, exact.

Everything is called as `(model, params, data)`, options by keyword. The functions `fisher`, `null_space` and
`gain_metric` have the names of the files they stand in; the names here are the functions.
"""

from normgeom.geometry.closed_form import closed_form_fisher, eq13_as_printed
from normgeom.geometry.families import (
    Bernoulli,
    Binomial,
    Categorical,
    Family,
    Gamma,
    Gaussian,
    MeanVarianceGaussian,
    NegativeBinomial,
    NonCanonical,
    NotFinite,
    Poisson,
)
from normgeom.geometry.fisher import (
    empirical_fisher,
    fisher,
    fisher_diagonal,
    fisher_trace,
    monte_carlo_fisher,
)
from normgeom.geometry.gain_metric import (
    eq35_as_printed,
    gain_metric,
    gain_metric_as_printed,
    radial_metric,
    two_gain_kl,
)
from normgeom.geometry.glm import NormalizedGLM
from normgeom.geometry.matrix import FisherMatrix, ParameterOrder
from normgeom.geometry.metric import (
    KLComparison,
    StepInNats,
    curvature,
    kl_against_quadratic,
    kl_divergence,
    length,
    step_in_nats,
)
from normgeom.geometry.null_space import NullSpace, annihilation_error, null_space, tangent_directions
from normgeom.geometry.operator import Estimate, FisherOperator
from normgeom.geometry.per_case import PerCaseFisher
from normgeom.geometry.per_example import PerExampleFisher, per_example_fisher
from normgeom.geometry.scaling import BlockScaling, scaling_exponents
from normgeom.geometry.summary import FisherSummary, fisher_summary

__all__ = [
    "Bernoulli",
    "Binomial",
    "BlockScaling",
    "Categorical",
    "Estimate",
    "Family",
    "FisherMatrix",
    "FisherOperator",
    "FisherSummary",
    "Gamma",
    "Gaussian",
    "KLComparison",
    "MeanVarianceGaussian",
    "NegativeBinomial",
    "NonCanonical",
    "NotFinite",
    "NormalizedGLM",
    "NullSpace",
    "ParameterOrder",
    "PerCaseFisher",
    "PerExampleFisher",
    "Poisson",
    "StepInNats",
    "annihilation_error",
    "closed_form_fisher",
    "curvature",
    "empirical_fisher",
    "eq13_as_printed",
    "eq35_as_printed",
    "fisher",
    "fisher_diagonal",
    "fisher_summary",
    "fisher_trace",
    "gain_metric",
    "gain_metric_as_printed",
    "kl_against_quadratic",
    "kl_divergence",
    "length",
    "monte_carlo_fisher",
    "null_space",
    "per_example_fisher",
    "radial_metric",
    "scaling_exponents",
    "step_in_nats",
    "tangent_directions",
    "two_gain_kl",
]
