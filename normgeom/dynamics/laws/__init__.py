"""Exact laws of training a block whose scale or shift the function does not see, one law a file."""

from normgeom.dynamics.laws.check import LawCheck, LawReport
from normgeom.dynamics.laws.conserved_sums import ConservedSums
from normgeom.dynamics.laws.equivalence import scale_equivalence
from normgeom.dynamics.laws.norm_growth import NormGrowth

__all__ = ["ConservedSums", "LawCheck", "LawReport", "NormGrowth", "scale_equivalence"]
