"""Whether an eps is all that breaks an invariance: it goes with the eps, and as weights or data grow."""

from collections.abc import Sequence
from fractions import Fraction

from normgeom.invariance.graph.digits import NoValue
from normgeom.invariance.graph.eps_places import EpsPlace, replaced
from normgeom.invariance.graph.evaluate import Constants
from normgeom.invariance.graph.exported import Graph
from normgeom.invariance.graph.samples import SAME, Sample, sample

GROWN = 2**10, 2**20
SMALLER = 2.0**-20, 2.0**-40
SLACK = 2  # what falls as a power of the size does so at large sizes only


def broken_by_eps_alone(graph: Graph, here: Sample, places: Sequence[EpsPlace]) -> bool:
    """Return whether the outputs do not change at eps = 0, and less and less as weights or data grow.

    Raises:
        NoValue: if they have no value at eps = 0, and nothing can be said of how they get there.
    """
    change = change_with(graph, here, replaced(places, 0.0))
    if change > SAME and not _goes_with_eps(graph, here, places):
        if change == float("inf"):
            raise NoValue(
                "without eps there are no outputs at the points drawn: a statistic is singular there"
            )
        return False
    return any(_fades(graph, here, *grown) for grown in ((1, 0), (0, 1)))


def change_with(graph: Graph, here: Sample, constants: Constants) -> float:
    """Return the change at the same point and element with other constants; infinite if there is no value."""
    if not constants:
        return here.change
    try:
        return sample(graph, here.element, here.weight, here.data, constants=constants).change
    except NoValue:
        return float("inf")


def _goes_with_eps(graph: Graph, here: Sample, places: Sequence[EpsPlace]) -> bool:
    """Whether the change falls as eps does: for layers without a value at eps = 0 (singular matrices)."""
    less, least = (
        change_with(graph, here, replaced(places, lambda p, factor=factor: p.value * factor))  # type: ignore[misc]
        for factor in SMALLER
    )
    return 0 < least <= SLACK * less * SMALLER[1] / SMALLER[0] and less < here.change


def _fades(graph: Graph, here: Sample, weight: int, data: int) -> bool:
    """Whether the change falls at least as the size of the weight, or the data, grows."""
    try:
        less, least = (
            sample(
                graph, here.element, here.weight * Fraction(g) ** weight, here.data * Fraction(g) ** data
            ).change
            for g in GROWN
        )
    except NoValue:
        return False
    return least <= SLACK * less * GROWN[0] / GROWN[1] + float(SAME)
