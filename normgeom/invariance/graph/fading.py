"""Whether an eps is all that breaks an invariance: it goes with the eps, and as weights or data grow."""

from collections.abc import Sequence

from normgeom.invariance.graph.digits import NoValue
from normgeom.invariance.graph.eps_places import EpsPlace, replaced
from normgeom.invariance.graph.evaluate import Constants
from normgeom.invariance.graph.exported import operator
from normgeom.invariance.graph.samples import SAME, Sample

GROWN = 2**10, 2**20
SMALLER = 2.0**-20, 2.0**-40
SINGULAR = ("aten.linalg_inv_ex", "aten._linalg_solve_ex", "aten.linalg_cholesky_ex", "aten._linalg_eigh")
SLACK = 2  # what falls as a power of the size does so at large sizes only


def broken_by_eps_alone(here: Sample, places: Sequence[EpsPlace], *, first: bool) -> bool:
    """Return whether the outputs do not change at eps = 0, and less and less as weights or data grow.

    Args:
        here: what changes at a point.
        places: where an eps is added.
        first: whether to see what becomes of it as weights or data grow, which one point shows.

    Raises:
        NoValue: if they have no value at eps = 0, and nothing can be said of how they get there.
    """
    change = change_with(here, replaced(places, 0.0))
    singular = change == float("inf") or any(operator(n) in SINGULAR for n in here.point.graph.needed)
    if change > SAME and not (singular and _goes_with_eps(here, places)):
        if change == float("inf"):
            raise NoValue("without eps there are no outputs at the points drawn: a statistic is 0 there")
        return False
    return not first or any(_fades(here, grown) for grown in ((True, False), (False, True)))


def change_with(here: Sample, constants: Constants) -> float:
    """Return the change at the same point and element with other constants; infinite if there is no value."""
    if not constants:
        return here.change
    try:
        return here.point.moved(here.element, constants).change
    except NoValue:
        return float("inf")


def _goes_with_eps(here: Sample, places: Sequence[EpsPlace]) -> bool:
    """Whether the change falls as eps does: for layers without a value at eps = 0 (singular matrices)."""
    less, least = (
        change_with(here, replaced(places, lambda p, factor=factor: p.value * factor))  # type: ignore[misc]
        for factor in SMALLER
    )
    return 0 < least <= SLACK * less * SMALLER[1] / SMALLER[0] and less < here.change


def _fades(here: Sample, grown: tuple[bool, bool]) -> bool:
    """Whether the change falls at least as the size of the weight, or the data, grows."""
    try:
        less, least = (
            here.point.moved(here.element, grown=tuple(g if grows else 1 for grows in grown)).change
            for g in GROWN
        )
    except NoValue:
        return False
    return least <= SLACK * less * GROWN[0] / GROWN[1] + float(SAME)
