"""Output families: what a model's outputs eta say about y, with the exact Fisher information of eta."""

from normgeom.geometry.families.base import Family, NotFinite
from normgeom.geometry.families.categorical import Categorical
from normgeom.geometry.families.continuous import Gamma, Gaussian, MeanVarianceGaussian
from normgeom.geometry.families.discrete import Bernoulli, Binomial, NegativeBinomial, Poisson
from normgeom.geometry.families.transfer import NonCanonical

__all__ = [
    "Bernoulli",
    "Binomial",
    "Categorical",
    "Family",
    "Gamma",
    "Gaussian",
    "MeanVarianceGaussian",
    "NegativeBinomial",
    "NonCanonical",
    "NotFinite",
    "Poisson",
]
