"""How several engines settle one cell.

Engines that decide must decide alike: a disagreement is an error, never a vote. An engine with a tolerance
cannot see an eps below it, so its *invariant* is compatible with an exact engine's *invariant up to eps*.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from normgeom.invariance.verdict import MAY_BE_NOTHING, NOT_A_FUNCTION, Kind, Verdict


class EnginesDisagree(RuntimeError):
    """Two engines decided one cell differently: one of them, or the layer's statistics, is wrong."""


def settle(verdicts: Sequence[Verdict]) -> Verdict:
    """Merge the verdicts of several engines on one cell.

    Raises:
        EnginesDisagree: if two engines decided differently, with all they said.
    """
    if no_function := [v for v in verdicts if v.reason.endswith(NOT_A_FUNCTION)]:
        return no_function[0]
    decided = [v for v in verdicts if v.kind is not Kind.UNDECIDED]
    reasons = _reasons(verdicts, decided)
    if not decided:
        return dataclasses.replace(verdicts[0], reason=reasons)
    kind = _common_kind(verdicts, decided)
    return Verdict(
        layer=decided[0].layer,
        transform=decided[0].transform,
        title=decided[0].title,
        kind=kind,
        error=_first(decided, "error"),
        tolerance=_first(decided, "tolerance"),
        predicted=_first(decided, "predicted"),
        degree=_first(decided, "degree"),
        flips=any(v.flips for v in decided if v.degree is not None),
        # what says how to check it by hand goes first
        witness=min(
            (v.witness for v in decided if v.witness), key=lambda w: (not w.detail, len(str(w))), default=None
        ),
        proof=_first(decided, "proof"),
        engines=tuple(e for v in decided for e in v.engines),
        mode=decided[0].mode,
        reason=reasons,
    )


def _reasons(verdicts: Sequence[Verdict], decided: Sequence[Verdict]) -> str:
    """The reasons of all, those of the undecided as such where the numeric engine decides alone."""
    alone = len(verdicts) > 1 and [v.engines for v in decided] == [("numeric",)] and decided[0].holds
    reasons = _joined(verdicts)
    if alone:
        missing = _joined([v for v in verdicts if v is not decided[0]])
        by_rounding = f"decided by the numeric engine alone: {missing}" if missing else ""
        reasons = "; ".join(filter(None, [decided[0].reason, by_rounding]))
    return reasons.replace(MAY_BE_NOTHING, "") if any(v.witness for v in decided) else reasons


def _common_kind(verdicts: Sequence[Verdict], decided: Sequence[Verdict]) -> Kind:
    """The kind that all who decided agree on, or the error that they do not."""
    kinds = {v.kind for v in decided if not _below_tolerance(v, decided)}
    if len(kinds) > 1 or len({v.degree for v in decided if v.degree is not None}) > 1:
        said = "\n".join(f"[{', '.join(v.engines)}] {v}" for v in verdicts)
        raise EnginesDisagree("engines must agree on every cell; they said:\n" + said + _advice(verdicts))
    return kinds.pop()


def _joined(verdicts: Sequence[Verdict]) -> str:
    """The reasons of verdicts in a row, each once."""
    given = list(dict.fromkeys(v.reason for v in verdicts if v.reason))
    return "; ".join(r for r in given if not any(r in other for other in given if other != r))


def _advice(verdicts: Sequence[Verdict]) -> str:
    """What to look at where engines disagree: statistics, if there are any."""
    if not any({"exact", "symbolic"} & set(v.engines) for v in verdicts):
        return ""
    return (
        "\nCheck that statistics() is a function of (weight, data) alone and is written with operators only."
    )


def _below_tolerance(verdict: Verdict, all_of: Sequence[Verdict]) -> bool:
    """Whether an *invariant* comes from an engine too coarse to see the eps that another one names."""
    return (
        verdict.kind is Kind.INVARIANT
        and verdict.tolerance is not None
        and any(v.kind is Kind.UP_TO_EPS for v in all_of)
    )


def _first(verdicts: Sequence[Verdict], name: str) -> Any:
    return next((v for v in (getattr(w, name) for w in verdicts) if v is not None), None)
