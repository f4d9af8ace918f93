"""Which transforms leave a layer unchanged: three engines, one verdict a cell."""

from normgeom.invariance.check import assert_invariant, check, invariance_error, invariance_table
from normgeom.invariance.measure import condition_number, eps_law
from normgeom.invariance.table import InvarianceRow, InvarianceTable
from normgeom.invariance.verdict import EnginesDisagree, Kind, Proof, Verdict, Witness

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
    "condition_number",
    "eps_law",
    "invariance_error",
    "invariance_table",
]
