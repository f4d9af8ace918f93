"""The column sums 1ᵀW of a real LN-LSTM: conserved by SGD, with momentum too, and not by Adam."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from analyses._language_model import BLOCKS, Training, task
from analyses._run import Options
from analyses._runs import finished
from normgeom.figures import COLOURS, MARKERS, draw_band, name_ends, save_figure, style
from normgeom.report import to_markdown, write_json, write_text
from normgeom.training import train

FLOOR = 1e-17
HUES = [COLOURS[k] for k in (0, 1, 2, 3, 4, 5, 7)]


@dataclass(frozen=True)
class Case:
    """A cell and how it is trained; `holds` says whether theory has a law for 1ᵀW."""

    name: str
    optimizer: str = "SGD"
    rate: float = 0.5
    decay: float = 0.0
    cell: str = "LN-LSTM"
    dtype: torch.dtype = torch.float64
    holds: bool = True

    @property
    def momentum(self) -> float:
        """Of the optimizer: 0.9 for `SGD with momentum`."""
        return 0.9 if self.optimizer == "SGD with momentum" else 0.0


CASES = (
    Case("SGD"),
    Case("momentum 0.9", "SGD with momentum", 0.1),
    Case("SGD, weight decay", decay=0.02),
    Case("momentum, weight decay", "SGD with momentum", 0.1, 0.01),
    Case("SGD, float32", dtype=torch.float32),
    Case("Adam", "Adam", 0.003, holds=False),
    Case("SGD, no norms", cell="LSTM", holds=False),
)


@dataclass(frozen=True)
class Findings:
    """Sums by step, measured and predicted, and what they come to."""

    rows: list[dict[str, Any]]
    summary: list[dict[str, Any]]


def compute(options: Options) -> Findings:
    """Train, and compare 1ᵀW of both matrices with what it must be, at every step."""
    steps, seeds = (12, 2) if options.quick else (2000, 5) if options.full else (200, 3)
    jobs = [(case, options.seed + k) for case in CASES for k in range(seeds)]

    def rows_of(job: tuple[Case, int]) -> list[dict[str, Any]]:
        case, seed = job
        run = Training(case.cell, case.optimizer, case.rate, case.decay, seed=seed, steps=steps,
                       hidden=8 if options.quick else 32, dtype=case.dtype)  # fmt: skip
        return [
            {"case": case.name, "block": block, "seed": seed, **row}
            for block, sums in column_sums(run, options.device).items()
            for row in compared(sums, predicted(sums[0], case, steps))
        ]

    rows = list(itertools.chain.from_iterable(finished(options, "conservation", jobs, rows_of)))
    return Findings(rows, [summarized(case, rows) for case in CASES])


def column_sums(run: Training, device: str) -> dict[str, Tensor]:
    """Return 1ᵀW (steps + 1, columns) of both matrices, before the first step and after each."""
    model = run.model().to(device)
    weights = {label: model.get_parameter(name) for label, name in BLOCKS.items()}
    found = {label: [weight.detach().double().sum(0)] for label, weight in weights.items()}
    for _ in train(model, task(), run.make_optimizer(model), steps=run.steps):
        for label, weight in weights.items():
            found[label].append(weight.detach().double().sum(0))
    return {label: torch.stack(sums).cpu() for label, sums in found.items()}


def predicted(first: Tensor, case: Case, steps: int) -> Tensor:
    """Return the sums that a gradient with `1ᵀ∇ = 0` leaves: `(1 − ηλ)^t`, with momentum its recursion."""
    sums, velocity, found = first, torch.zeros_like(first), [first]
    for _ in range(steps):
        velocity = case.momentum * velocity + case.decay * sums
        sums = sums - case.rate * velocity
        found.append(sums)
    return torch.stack(found)


def compared(measured: Tensor, said: Tensor) -> list[dict[str, float]]:
    """Return by step how much is left of the sums, and how far they are from the prediction, relatively."""
    first = measured[0].norm()
    logged = sorted({round(t) for t in np.geomspace(1, len(measured) - 1, 40)})
    return [
        {"step": t, "measured": float(measured[t].norm() / first), "predicted": float(said[t].norm() / first),
         "deviation": float((measured[t] - said[t]).norm() / first)}
        for t in logged
    ]  # fmt: skip


def summarized(case: Case, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the largest deviation of one case, and what is left of the sums at the end."""
    own = [row for row in rows if row["case"] == case.name]
    last = [row for row in own if row["step"] == max(r["step"] for r in own)]
    return {
        "case": case.name,
        "holds": case.holds,
        "learning rate": case.rate,
        "weight decay": case.decay,
        **{f"deviation of {b}": max(r["deviation"] for r in own if r["block"] == b) for b in BLOCKS},
        "measured": float(np.mean([r["measured"] for r in last])),
        "predicted": float(np.mean([r["predicted"] for r in last])),
        "steps": last[0]["step"],
    }


def draw(rows: Sequence[dict[str, Any]], summary: Sequence[dict[str, Any]]) -> Figure:
    """Draw what is left of the sums, and how far they are from the prediction, for W_h."""
    own = [row for row in rows if row["block"] == "W_h"]
    with style(
        height=2.75, axes__titlesize=7.5, axes__labelsize=7, xtick__labelsize=6.5, ytick__labelsize=6.5
    ):
        figure, (left, right) = plt.subplots(1, 2, width_ratios=(1, 1.35))
        _draw_left(own, left)
        _draw_deviations(own, summary, right)
        worst = max(s["deviation of W_h"] for s in summary if s["holds"] and "float32" not in s["case"])
        adam = next(s for s in summary if s["case"] == "Adam")
        figure.suptitle(
            "SGD cannot move the column sums 1ᵀW of a layer-normalized LSTM; weight decay shrinks them by\n"
            f"(1 − ηλ)ᵗ: true to {worst:.0e} over {adam['steps']} steps. Adam moves them by "
            f"{adam['deviation of W_h']:.0%} of their length",
            fontsize=7.5,
        )
    return figure


def _draw_left(rows: Sequence[dict[str, Any]], ax: Axes) -> None:
    """Measured (points) and predicted (lines) length of the sums, of the first seed."""
    seed = min(row["seed"] for row in rows)
    for k, case in enumerate(CASES):
        mine = [r for r in rows if (r["case"], r["seed"]) == (case.name, seed)]
        steps = [r["step"] for r in mine]
        ax.plot(steps, [r["measured"] for r in mine], MARKERS[k], ms=2.6, mew=0.6, mfc="none", color=HUES[k])
        if case.holds:
            ax.plot(steps, [r["predicted"] for r in mine], "-", lw=0.8, color=HUES[k])
    ax.set_xlabel("step", labelpad=1)
    ax.set_ylabel(r"$\|1^T W_h\|$, at the start 1")
    ax.set_ylim(bottom=0)
    ax.text(0.03, 0.97, "lines: theory\nmarks: measured", transform=ax.transAxes, size=6, va="top")


def _draw_deviations(rows: Sequence[dict[str, Any]], summary: Sequence[dict[str, Any]], ax: Axes) -> None:
    """A band over seeds for every case, named at its end."""
    ends = []
    for k, case in enumerate(summary):
        mine = [{**r, "deviation": max(r["deviation"], FLOOR)} for r in rows if r["case"] == case["case"]]
        draw_band(mine, ax, x="step", y="deviation", colour=HUES[k], line="-" if case["holds"] else "--")
        ends.append(float(np.median([r["deviation"] for r in mine if r["step"] == case["steps"]])))
        marks = [r for r in mine if r["seed"] == rows[0]["seed"]][:: max(1, len(mine) // 25)]
        ax.plot([r["step"] for r in marks], [r["deviation"] for r in marks], MARKERS[k], ms=2.6, mew=0.6,
                mfc="none", color=HUES[k])  # fmt: skip
    names = [case["case"] if case["holds"] else f"{case['case']}: no law" for case in summary]
    name_ends(ax, float(summary[0]["steps"]), ends, names, HUES)
    ax.set_yticks([1e-16, 1e-12, 1e-8, 1e-4, 1])
    ax.set_xlabel("step", labelpad=1)
    ax.set_ylabel("distance from the prediction, relative")


def write(options: Options) -> list[Path]:
    """Write conservation.{json,md,pdf,png}."""
    stem, found = options.stem(__file__), compute(options)
    write_json(f"{stem}.json", {"rows": found.rows, "summary": found.summary})
    write_text(f"{stem}.md", f"# Column sums that training conserves\n\n{explain(found)}")
    texts = [Path(f"{stem}.{kind}") for kind in ("json", "md")]
    return [*texts, *save_figure(draw(found.rows, found.summary), stem)]


def explain(found: Findings) -> str:
    """Say what the numbers show."""
    header = ["case", "η", "λ", "left, predicted", "left, measured", "deviation, W_h", "deviation, W_x"]
    table = [
        [s["case"], f"{s['learning rate']:g}", f"{s['weight decay']:g}",
         f"{s['predicted']:.6f}" if s["holds"] else "–", f"{s['measured']:.6f}",
         *(f"{s[f'deviation of {b}']:.1e}" for b in BLOCKS)]
        for s in found.summary
    ]  # fmt: skip
    exact = [s[f"deviation of {b}"] for s in found.summary if s["holds"] for b in BLOCKS
             if "float32" not in s["case"]]  # fmt: skip
    broken = [s["deviation of W_h"] for s in found.summary if not s["holds"]]
    plain = found.summary[-1]
    return f"""\
An LN-LSTM learns the novel for {plain["steps"]} steps. Layer norm does not see a shift of all summed
inputs, so `1ᵀ∇ = 0`: SGD leaves `1ᵀW`, with momentum too, and weight decay makes it `(1 − ηλ)^t` of what
it was (with momentum the optimizer's recursion). Left: the length of `1ᵀW_h`. Right: the distance of the
vector from the prediction, relative to its length at the start; bands over
{len({r["seed"] for r in found.rows})} seeds. float64 but where named.

{to_markdown(header, table)}

* In float64 the law holds to {max(exact):.1e} (both matrices, all seeds and steps).
* Adam divides every coordinate by a number of its own: `1ᵀW_h` moves by up to {broken[0]:.0%} of its
  length.
* Without norms there is no law: `1ᵀW_h` moves by up to {broken[1]:.0%}, `1ᵀW_x` by
  {plain["deviation of W_x"]:.0%} of its length."""
