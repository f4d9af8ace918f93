"""The effective learning rate of a real LN-LSTM falls as its weights grow, and the turn of a step with it."""

import copy
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analyses._language_model import (
    BLOCKS,
    Training,
    geometric_mean,
    loss_of,
    records,
    slope,
    windows,
    with_progress,
)
from analyses._run import Options
from normgeom.dynamics import angular_update
from normgeom.figures import SCALE_COLOURS, draw_against_norm, draw_band, draw_power, save_figure, style
from normgeom.models import CharLM
from normgeom.report import atomic, to_markdown, write_json, write_text

SCALES = (0.25, 1.0, 4.0)
NAMES = {0.25: "W₀/4", 1.0: "W₀", 4.0: "4W₀"}
PANELS = (("LN-LSTM", "SGD", 1.0), ("LN-LSTM", "Adam", 0.003), ("LSTM", "SGD", 1.0))
THEORY = {"SGD": -2, "Adam": -1}
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
    frames, rescaled, checks = [], [], []
    for run in with_progress(runs(options), "effective_lr_lstm"):
        frame, model = run.run(options.device)
        label = {"cell": run.cell, "optimizer": run.optimizer, "scale": run.scale, "seed": run.seed}
        checks += [
            {**label, "block": block, "growth": growth(frame[frame["block"] == block])} for block in BLOCKS
        ]
        frame["predicted"] = predicted_angle(run, frame)
        frames.append(windows(frame[["block", *COLUMNS]], ["block"]).assign(**label))
        if run.scale == 1:
            rescaled += [{**label, **point} for point in steps_of_rescaled(run, model)]
    rows = records(pd.concat(frames))
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


def of_panel(rows: Sequence[dict[str, Any]], panel: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Return the rows of one cell and optimizer."""
    return [row for row in rows if (row["cell"], row["optimizer"]) == panel[:2]]


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


def draw(
    rows: Sequence[dict[str, Any]], rescaled: Sequence[dict[str, Any]], summary: Sequence[dict[str, Any]]
) -> Figure:
    """Draw a column for each panel: bits, lengths, effective rate, angle; and rate and angle over length."""
    small: dict[str, Any] = {
        "axes__titlesize": 7.5,
        "axes__labelsize": 7,
        "xtick__labelsize": 6,
        "ytick__labelsize": 6,
    }
    with style(height=7.2, **small):
        figure, grid = plt.subplots(5, 3, sharex="row", sharey="row")
        for column, (panel, said) in enumerate(zip(PANELS, summary, strict=True)):
            mine = of_panel(rows, panel)
            _draw_curves(mine, grid[:4, column])
            recurrent = [row for row in mine if row["block"] == "W_h"]
            _draw_lengths(recurrent, of_panel(rescaled, panel), said, grid[4, column])
            cell = "LN-LSTM" if panel[0] == "LN-LSTM" else "plain LSTM"
            grid[0, column].set_title(f"{cell}, {panel[1]} (η = {panel[2]:g})")
        _name_axes(grid)
        _annotate(grid, summary)
        fell = [1 / said["rate at W₀/4"] for said in summary]
        figure.suptitle(
            "The weights of a layer-normalized LSTM grow in training, and this slows it: begun at W₀/4, the "
            "effective\n"
            f"learning rate falls {fell[0]:.0f}-fold with SGD and {fell[1]:.1f}-fold with Adam, and "
            "the angle of a step with it",
            fontsize=7.5,
        )
    return figure


def _draw_curves(rows: Sequence[dict[str, Any]], axes: Sequence[Axes]) -> None:
    """Everything against the step."""
    for colour, scale in zip(SCALE_COLOURS, SCALES, strict=True):
        own = {b: [r for r in rows if (r["scale"], r["block"]) == (scale, b)] for b in BLOCKS}
        columns = ("bits", "norm", "effective_learning_rate", "angular_update")
        for ax, y in zip(axes, columns, strict=True):
            draw_band(own["W_h"], ax, x="step", y=y, colour=colour)
        draw_band(own["W_x"], axes[1], x="step", y="norm", colour=colour, line=":")
        if rows[0]["cell"] == "LN-LSTM":
            steps = sorted({r["step"] for r in own["W_h"]})
            said = [geometric_mean(r["predicted"] for r in own["W_h"] if r["step"] == t) for t in steps]
            axes[3].plot(steps, said, "--", color="black", lw=0.7)


def _draw_lengths(
    rows: Sequence[dict[str, Any]], rescaled: Sequence[dict[str, Any]], said: dict[str, Any], ax: Axes
) -> None:
    """Rate in training, and angle of one step from rescaled weights, over the length, with theory's lines."""
    draw_against_norm(rows, ax, y="effective_learning_rate")
    lengths, tangents = [r["norm"] for r in rescaled], [r["tangent"] for r in rescaled]
    ax.plot(lengths, tangents, "D", ms=3.2, mew=0.7, color="#777777", mfc="white")
    normalized, exponent = said["cell"] == "LN-LSTM", THEORY[said["optimizer"]]
    for points, y in ((rows, "effective_learning_rate"), (rescaled, "tangent")):
        if y == "tangent" and not normalized:
            continue
        x = [r["norm"] for r in points]
        middle = geometric_mean(x), geometric_mean(r[y] for r in points)
        draw_power(ax, through=middle, exponent=float(exponent), ends=(min(x), max(x)))
    law = "η/‖W‖²" if exponent == -2 else "η/‖W‖"
    text = f"● {law}: slope {said['slope of rate']:.2f}\n◇ measured: slope {said['slope of rescaled']:.2f}"
    if not normalized:
        text = f"◇ no law: at 8‖W‖ tan ∠ is\n× {said['8 times as long']:.0f}, and not ÷ 64"
    ax.text(0.03, 0.03, text.replace("-", "−"), transform=ax.transAxes, size=6, va="bottom")


def _name_axes(grid: Any) -> None:
    """Name axes, with ticks that can be read."""
    names = ("bits per character", "length", "effective\nlearning rate", "angle of a step (rad)")
    for ax, name in zip(grid[:4, 0], names, strict=True):
        ax.set_ylabel(name)
    grid[4, 0].set_ylabel("● effective rate\n◇ tan ∠ of one step")
    for row in grid[:3]:
        for ax in row:
            ax.tick_params(labelbottom=False)
    for ax in grid[3]:
        ax.set_xlabel("step", labelpad=1)
    for ax in grid[4]:
        ax.set_xlabel(r"$\|W_h\|$ (◇ rescaled)", labelpad=1)
    for ax, ticks in ((grid[0, 0], (2.5, 3, 4, 5)), (grid[1, 0], (2, 5, 10, 20, 40))):
        ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
    grid[3, 0].set_ylim(top=15)
    grid[4, 0].set_ylim(bottom=1e-6)


def _annotate(grid: Any, summary: Sequence[dict[str, Any]]) -> None:
    """Name curves, and say what each panel shows."""
    where = {"size": 6, "bbox": {"fc": "white", "ec": "none", "alpha": 0.7, "pad": 0.5}}
    for colour, name, height in zip(SCALE_COLOURS, NAMES.values(), (0.32, 0.19, 0.06), strict=True):
        ax = grid[0, 0]
        ax.text(0.05, height, name, color=colour, size=7, transform=ax.transAxes, weight="bold")
    ax = grid[1, 0]
    ax.text(0.04, 0.82, r"— $\|W_h\|$   ··· $\|W_x\|$", transform=ax.transAxes, va="top", **where)
    rates = (r"$\eta/\|W_h\|^2$", r"$\eta/\|W_h\|$", r"$\eta/\|W_h\|^2$: not a rate here,"
             "\nthe length itself matters")  # fmt: skip
    for ax, text, height in zip(grid[2], rates, (0.04, 0.92, 0.04), strict=True):
        ax.text(0.03, height, text, transform=ax.transAxes, va="bottom" if height < 0.5 else "top", **where)
    for ax, said in zip(grid[3], summary, strict=True):
        rate, angle = (said[f"{what} at W₀/4"] for what in ("rate", "angle"))
        line = (
            "– – rate × gradient at unit length"
            if said["optimizer"] == "SGD"
            else "– – independent gradients"
        )
        text = f"W₀/4: rate {_times(rate)}, angle {_times(angle)}"
        text = text if said["cell"] == "LSTM" else f"{line}\n{text}"
        ax.text(0.98, 0.99, text, transform=ax.transAxes, ha="right", va="top", **where)


def _times(factor: float) -> str:
    return f"× {factor:.2g}" if factor > 1 else f"÷ {1 / factor:.2g}"


def explain(found: Findings, options: Options) -> str:
    """Say what the numbers show."""
    first, adam, plain = found.summary
    own = runs(options)
    grown = [value for block in BLOCKS for value in first[f"growth of {block}"]]
    header = ["run", "slope of rate", "slope of a step's angle", "rate over the run, from W₀/4, W₀, 4W₀",
              "angle over the run"]  # fmt: skip
    table = [
        [f"{s['cell']}, {s['optimizer']}", f"{s['slope of rate']:.3f}", f"{s['slope of rescaled']:.3f}",
         *(", ".join(_times(s[f"{what} at {name}"]) for name in NAMES.values())
           for what in ("rate", "angle"))]
        for s in found.summary
    ]  # fmt: skip
    ratio = adam["angle over predicted"]
    unit = [_times(first[f"angle at {name}"] / first[f"rate at {name}"]) for name in NAMES.values()]
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
  (windows of steps: {ratio[0]:.2f} to {ratio[2]:.2f}): gradients of following steps agree, most of all at
  the start.
* In the LSTM without norms, where W_h is made 8 times as long, the tangent of one step's angle is
  {plain["8 times as long"]:.0f} times as large; for a scale-invariant block it is 1/64. `η/‖w‖²` is no
  effective rate there: from W₀/4 it went {_times(plain["rate at W₀/4"])} while the angle went
  {_times(plain["angle at W₀/4"])}."""


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
