"""Which transforms leave a layer unchanged: three engines, one verdict a cell."""

from normgeom.invariance.check import assert_invariant, check, invariance_error, invariance_table
from normgeom.invariance.degree import scaling_degree
from normgeom.invariance.gradients import gradient_identity_error
from normgeom.invariance.measure import eps_law
from normgeom.invariance.settling import EnginesDisagree
from normgeom.invariance.table import InvarianceRow, InvarianceTable
from normgeom.invariance.verdict import Kind, Proof, Verdict, Witness

__all__ = [
    "EnginesDisagree",
    "InvarianceRow",
    "InvarianceTable",
    "Kind",
    "Proof",
    "Verdict",
    "Witness",
    "assert_invariant",
    "check",
    "eps_law",
    "gradient_identity_error",
    "invariance_error",
    "invariance_table",
    "scaling_degree",
]
