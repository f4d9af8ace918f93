"""The effective learning rate of a real LN-LSTM falls as its weights grow, and the turn of a step with it."""

import copy
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from analyses._effective_lr_figure import NAMES, PANELS, SCALES, draw, of_panel, times
from analyses._language_model import (
    BLOCKS,
    Training,
    geometric_mean,
    loss_of,
    records,
    slope,
    windows,
)
from analyses._run import Options
from analyses._runs import finished
from normgeom.dynamics import angular_update
from normgeom.figures import save_figure
from normgeom.models import CharLM
from normgeom.report import atomic, to_markdown, write_json, write_text

COLUMNS = ("step", "norm", "gradient_norm", "cosine", "effective_learning_rate", "angular_update",
           "predicted", "bits")  # fmt: skip


@dataclass(frozen=True)
class Findings:
    """Rows of the curves, steps from rescaled weights, and what they say, a row for every panel."""

    rows: list[dict[str, Any]]
    rescaled: list[dict[str, Any]]
    summary: list[dict[str, Any]]


def runs(options: Options) -> list[Training]:
    """Return every run: cells and optimizers, initial scales, seeds."""
    steps, seeds = (20, 2) if options.quick else (4000, 5) if options.full else (400, 3)
    return [
        Training(cell, optimizer, rate, scale=scale, seed=options.seed + k, steps=steps,
                 hidden=16 if options.quick else 64)
        for (cell, optimizer, rate), scale, k in itertools.product(PANELS, SCALES, range(seeds))
    ]  # fmt: skip


def compute(options: Options) -> Findings:
    """Train all runs, look at every step, and step once more from rescaled weights."""

    def found_in(run: Training) -> tuple[pd.DataFrame, list[dict[str, Any]], list[dict[str, Any]]]:
        frame, model = run.run(options.device)
        label: dict[str, Any] = {"cell": run.cell, "optimizer": run.optimizer, "scale": run.scale}
        label["seed"] = run.seed
        checks = [
            {**label, "block": block, "growth": growth(frame[frame["block"] == block])} for block in BLOCKS
        ]
        frame["predicted"] = predicted_angle(run, frame)
        points = steps_of_rescaled(run, model) if run.scale == 1 else ()
        rescaled = [{**label, **point} for point in points]
        return windows(frame[["block", *COLUMNS]], ["block"]).assign(**label), rescaled, checks

    found = list(finished(options, "effective_lr_lstm", runs(options), found_in))
    rows = records(pd.concat([frame for frame, *_ in found]))
    rescaled = [row for _, points, _ in found for row in points]
    checks = [row for *_, own in found for row in own]
    return Findings(rows, rescaled, [summarized(panel, rows, rescaled, checks) for panel in PANELS])


def predicted_angle(run: Training, frame: pd.DataFrame) -> Any:
    """Return the angle of every step that theory gives a scale-invariant block.

    SGD: `arctan(rate ‖∇‖‖w‖)`, rate times the gradient at unit length. Adam: `rate √C √((1−β₁)/(1+β₁))`,
    as if gradients were independent of each other. None for weights whose length matters.
    """
    rate = frame["effective_learning_rate"]
    if run.cell != "LN-LSTM":
        return np.nan
    if run.optimizer == "SGD":
        return np.arctan(rate * frame["gradient_norm"] * frame["norm"])
    return rate * np.sqrt(frame["C"] * 0.1 / 1.9)


def growth(own: pd.DataFrame) -> float:
    """Return the growth of a matrix over what its gradient alone says: `(‖w_T‖² − ‖w₀‖²) / Σ η²‖∇‖²`."""
    squared = own["norm"].to_numpy() ** 2
    said = (own["learning_rate"] * own["gradient_norm"]).to_numpy()[:-1] ** 2
    return float((squared[-1] - squared[0]) / said.sum())


def steps_of_rescaled(run: Training, model: CharLM) -> list[dict[str, float]]:
    """Return the size of the tangent of one step's angle, from the trained weights with W_h rescaled."""
    points = []
    for delta in np.geomspace(1 / 8, 8, 7).tolist():
        moved = copy.deepcopy(model)
        weight = moved.get_parameter(BLOCKS["W_h"])
        with torch.no_grad():
            weight.mul_(delta)
        before, optimizer = weight.detach().clone(), run.make_optimizer(moved)
        loss_of(moved, run.steps)[0].backward()
        optimizer.step()
        angle = float(angular_update(before, weight))
        points.append({"norm": float(before.norm()), "delta": delta, "tangent": abs(math.tan(angle))})
    return points


def summarized(
    panel: tuple[str, str, float],
    rows: Sequence[dict[str, Any]],
    rescaled: Sequence[dict[str, Any]],
    checks: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Return slopes over all scales and seeds, how far the rate fell, and the checks of one panel."""
    cell, optimizer, rate = panel
    mine, points, own = (of_panel(each, panel) for each in (rows, rescaled, checks))
    mine = [row for row in mine if row["block"] == "W_h"]
    found = {
        f"{name} at {NAMES[scale]}": _change(mine, column, scale)
        for name, column in {"rate": "effective_learning_rate", "angle": "angular_update"}.items()
        for scale in SCALES
    }
    return {
        "cell": cell,
        "optimizer": optimizer,
        "learning rate": rate,
        "slope of rate": slope((r["norm"] for r in mine), (r["effective_learning_rate"] for r in mine)),
        "slope of angle": slope((r["norm"] for r in mine), (r["angular_update"] for r in mine)),
        "slope of rescaled": slope((r["norm"] for r in points), (r["tangent"] for r in points)),
        "8 times as long": _ratio(points, 8, 1),
        **found,
        **{f"growth of {block}": [c["growth"] for c in own if c["block"] == block] for block in BLOCKS},
        "angle over predicted": None if cell == "LSTM" else _over_predicted(mine),
    }


def _over_predicted(rows: Sequence[dict[str, Any]]) -> list[float]:
    """Least, mean and largest ratio of angles to those predicted, over windows of steps."""
    ratios = np.array([row["angular_update"] / row["predicted"] for row in rows])
    return [float(ratios.min()), float(geometric_mean(ratios)), float(ratios.max())]


def _ratio(points: Sequence[dict[str, Any]], longer: float, shorter: float) -> float:
    """The step's tangent at one length over that at another, the geometric mean of the seeds."""
    ends = [[p["tangent"] for p in points if abs(p["delta"] / d - 1) < 1e-6] for d in (longer, shorter)]
    return geometric_mean(ends[0]) / geometric_mean(ends[1])


def _change(rows: Sequence[dict[str, Any]], column: str, scale: float) -> float:
    """Last over first value, the geometric mean of the seeds."""
    mine = [row for row in rows if row["scale"] == scale]
    seeds = {row["seed"] for row in mine}
    curves = [[row[column] for row in mine if row["seed"] == seed] for seed in seeds]
    return geometric_mean(curve[-1] / curve[0] for curve in curves)


def explain(found: Findings, options: Options) -> str:
    """Say what the numbers show."""
    first, adam, plain = found.summary
    own = runs(options)
    grown = [value for block in BLOCKS for value in first[f"growth of {block}"]]
    header = ["run", "slope of rate", "slope of a step's angle", "rate over the run, from W₀/4, W₀, 4W₀",
              "angle over the run"]  # fmt: skip
    table = [
        [f"{s['cell']}, {s['optimizer']}", f"{s['slope of rate']:.3f}", f"{s['slope of rescaled']:.3f}",
         *(", ".join(times(s[f"{what} at {name}"]) for name in NAMES.values())
           for what in ("rate", "angle"))]
        for s in found.summary
    ]  # fmt: skip
    ratio = adam["angle over predicted"]
    unit = [times(first[f"angle at {name}"] / first[f"rate at {name}"]) for name in NAMES.values()]
    return f"""\
A character model (one layer, {own[0].hidden} units) learns the novel for {own[0].steps} steps from three
lengths of its two weight matrices, with {len({run.seed for run in own})} seeds (lines: geometric means,
bands: least to most). Rows: bits, lengths, effective learning rate of W_h, angle by which a step turns
W_h, and rate and angle against the length. The diamonds are single steps from the weights at the end, W_h
rescaled: the same direction, another length.

{to_markdown(header, table)}

* With SGD, `‖w‖²` grew by `Σ η²‖∇‖²` times {min(grown):.5f} to {max(grown):.5f} in the LN-LSTM (theory:
  1). In the LSTM without norms it was {_span(plain["growth of W_h"])} for W_h and
  {_span(plain["growth of W_x"])} for W_x.
* With SGD the angle is arctan(rate × gradient at unit length): measured over predicted
  {first["angle over predicted"][0]:.6f} to {first["angle over predicted"][2]:.6f}.
  The gradient at unit length itself changed over the run: {", ".join(unit)} (from W₀/4, W₀, 4W₀).
* **Differs from theory.** With Adam the angle is {ratio[1]:.2f} times that of independent gradients
  (windows of steps: {ratio[0]:.2f} to {ratio[2]:.2f}). Theory takes the gradients of following steps as
  independent; whether that is what fails here was not measured.
* In the LSTM without norms, where W_h is made 8 times as long, the tangent of one step's angle is
  {plain["8 times as long"]:.0f} times as large; for a scale-invariant block it is 1/64. `η/‖w‖²` is no
  effective rate there: from W₀/4 it went {times(plain["rate at W₀/4"])} while the angle went
  {times(plain["angle at W₀/4"])}."""


def _span(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


def write(options: Options) -> list[Path]:
    """Write effective_lr_lstm.{csv,json,md,pdf,png}."""
    stem, found = options.stem(__file__), compute(options)
    with atomic(f"{stem}.csv") as file:
        pd.DataFrame(found.rows).to_csv(file, index=False, float_format="%.6g")
    write_json(f"{stem}.json", {"summary": found.summary, "rescaled": found.rescaled})
    write_text(f"{stem}.md", f"# The effective learning rate of a real LN-LSTM\n\n{explain(found, options)}")
    texts = [Path(f"{stem}.{kind}") for kind in ("csv", "json", "md")]
    return [*texts, *save_figure(draw(found.rows, found.rescaled, found.summary), stem)]
