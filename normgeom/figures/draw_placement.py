"""The eight placements of the LSTM's norms: curves of the held-out bits, and effects of each norm."""

import itertools
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from normgeom.figures.bands import draw_seed_band, draw_seeds, seed_band
from normgeom.figures.labels import label_ends
from normgeom.figures.log_axes import plain_log_ticks
from normgeom.figures.style import COLOURS

PLACES = ("input", "recurrent", "cell")
INK: dict[tuple[bool, ...], str] = {
    (False, False): "#555555",
    (True, False): COLOURS[1],
    (False, True): COLOURS[2],
    (True, True): COLOURS[0],
}
"""Colours by norms at (input, recurrent)."""


def draw_placement_curves(rows: Sequence[dict[str, Any]], ax: Axes) -> Axes:
    """Draw held-out bits against the step for all placements, each named at its end with its last value.

    Colour tells input and recurrent norm; lines are solid with the norm at the cell state, dashed without.

    Args:
        rows: dicts with `input`, `recurrent`, `cell` (whether there is a norm), `seed`, `step` and `bits`.
        ax: where to draw, the bits on a log axis.
    """
    ax.set_yscale("log")
    bands = {}
    for on in itertools.product((False, True), repeat=3):
        mine = [row for row in rows if tuple(row[place] for place in PLACES) == on and row["step"] > 0]
        if mine:
            bands[on] = seed_band(mine, x="step", y="bits")
            draw_seed_band(bands[on], ax, colour=INK[on[:2]], line="-" if on[2] else (0, (3, 1.5)))
    plain_log_ticks(ax)
    ends = [
        (f"{_name(on)}  {band.centre[-1]:.2f}", float(band.centre[-1]), INK[on[:2]])
        for on, band in bands.items()
    ]
    label_ends(ends, ax, gap=0.075, heading="norms, bits")
    return ax


def _name(on: Sequence[bool]) -> str:
    """`I R C` with a dash for each norm that is off."""
    return " ".join(place[0].upper() if norm else "–" for place, norm in zip(PLACES, on, strict=True))


def draw_placement_effects(rows: Sequence[dict[str, Any]], ax: Axes) -> Axes:
    """Draw every effect: its seeds as dots, their mean, and a bar of two standard errors to either side.

    Args:
        rows: dicts with `term`, `seed` and `effect`.
        ax: where to draw; the first term is at the top.
    """
    terms = list(dict.fromkeys(row["term"] for row in rows))
    ax.axvline(0, color="#999999", lw=0.8)
    for k, term in enumerate(terms):
        values = [row["effect"] for row in rows if row["term"] == term]
        draw_seeds(values, k, ax, colour="#777777" if "×" in term else "black", across=True)
    ax.set_yticks(range(len(terms)), [_short(term) for term in terms])
    ax.set_ylim(len(terms) - 0.4, -0.6)
    return ax


def _short(term: str) -> str:
    """A main effect by its name and letter, an interaction by letters."""
    places = term.split(" × ")
    return f"{term} ({term[0].upper()})" if len(places) == 1 else " × ".join(p[0].upper() for p in places)
