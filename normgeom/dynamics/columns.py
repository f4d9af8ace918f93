"""From what was measured to the tidy table: ratios, angles and rates, NaN where they are undefined."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from normgeom.dynamics.statistics import COLUMNS
from normgeom.optimizers.rules import Rule

RATIOS = ("cosine", "relative_update", "angular_update", "effective_learning_rate")


def tidy(
    labels: Sequence[str],
    steps: np.ndarray,
    measured: np.ndarray,
    rules: Sequence[Sequence[Rule]],
    skipped: np.ndarray,
    extra: Mapping[str, np.ndarray],
    free_norms: Callable[[np.ndarray], np.ndarray] | None = None,
) -> pd.DataFrame:
    """Return a row for every logged step and block.

    Args:
        labels: of the blocks.
        steps: of the logs.
        measured: (logs, columns, blocks), columns as in `COLUMNS`.
        rules: for every log the update rule of each block.
        skipped: for every log whether an AMP scaler left the step out.
        extra: further columns, (logs, blocks) each.
        free_norms: from norms (logs, blocks) those on which effective rates depend; default the same.
    """
    raw = {name: measured[:, k, :].astype(float) for k, name in enumerate(COLUMNS)}
    values = {name: raw[name] for name in ("norm", "gradient_norm")}
    values["cosine"] = _ratio(raw["inner"], raw["norm"] * raw["gradient_norm"])
    values["update_norm"] = raw["update_norm"]
    values["relative_update"] = _ratio(raw["update_norm"], raw["norm"])
    values["angular_update"] = _angles(raw)
    values["learning_rate"] = _learning_rates(rules, len(labels))
    values["effective_learning_rate"] = _effective(
        rules, raw["norm"] if free_norms is None else free_norms(raw["norm"])
    )
    values |= {"column_sum": raw["column_sum"], "column_drift": raw["column_drift"], **extra}
    frame = pd.DataFrame({"step": np.repeat(steps, len(labels)), "block": list(labels) * len(steps)})
    for name, value in values.items():
        frame[name] = value.reshape(-1)
    frame["skipped"] = np.repeat(skipped.astype(bool), len(labels))
    return frame


def _ratio(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """A ratio, NaN where it is of nothing to nothing or of something to nothing."""
    return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom != 0)


def _angles(raw: Mapping[str, np.ndarray]) -> np.ndarray:
    """The angle between the weights before and after, NaN if either is zero."""
    zero = (raw["norm"] == 0) | ((raw["along"] == 0) & (raw["across"] == 0))
    return np.where(zero, np.nan, np.arctan2(raw["across"], raw["along"]))


def _learning_rates(rules: Sequence[Sequence[Rule]], blocks: int) -> np.ndarray:
    """The learning rate of every block's group."""
    rates = [[rule.learning_rate for rule in now] for now in rules]
    return np.array(rates, dtype=float).reshape(len(rules), blocks)


def _effective(rules: Sequence[Sequence[Rule]], norms: np.ndarray) -> np.ndarray:
    """The effective learning rate of every block at its norm, NaN where that is 0."""
    known = np.where(norms > 0, norms, np.nan)
    rates = [
        [rule.effective_learning_rate(norm) for rule, norm in zip(now, lengths, strict=True)]
        for now, lengths in zip(rules, known, strict=True)
    ]
    return np.array(rates, dtype=float).reshape(norms.shape)
