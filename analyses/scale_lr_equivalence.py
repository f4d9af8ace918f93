"""Longer weights with a larger learning rate: the same run of a normalized function."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn, optim

from analyses._language_model import BLOCKS, Training, geometric_mean, task
from analyses._run import Options
from analyses._runs import finished
from normgeom.dynamics import LawCheck, scale_equivalence
from normgeom.figures import COLOURS, draw_band, name_ends, save_figure, style
from normgeom.report import to_markdown, write_json, write_text

DELTA = 3.0
FLOOR = 1e-17
RATES = {"SGD": 0.25, "Adam": 0.003}


@dataclass(frozen=True)
class Case:
    """What is scaled, and how: `W -> δW`, `η -> δ^power η`, for W_h and W_x."""

    name: str
    optimizer: str
    power: int
    cell: str = "LN-LSTM"
    eps: float = 0.0
    delta: float = DELTA
    same: bool = True


CASES = (
    Case("SGD, η → δ²η", "SGD", 2),
    Case("SGD, η → δ²η, δ = 4", "SGD", 2, delta=4.0),
    Case("Adam, η → δη", "Adam", 1),
    Case("SGD, η → δ²η, eps = 1e-5", "SGD", 2, eps=1e-5),
    Case("SGD, η → δ²η, eps = 1e-9", "SGD", 2, eps=1e-9),
    Case("SGD, η kept", "SGD", 0, same=False),
    Case("Adam, η → δ²η", "Adam", 2, same=False),
    Case("no norms, SGD, η → δ²η", "SGD", 2, cell="LSTM", same=False),
)


@dataclass(frozen=True)
class Findings:
    """Deviations by step, what they come to, and the library's own checks of the law on W_h."""

    rows: list[dict[str, Any]]
    summary: list[dict[str, Any]]
    checks: list[dict[str, Any]]


def compute(options: Options) -> Findings:
    """Train from W and from δW in float64, and compare the logits of every step."""
    steps, seeds = (8, 2) if options.quick else (1500, 5) if options.full else (150, 3)
    logged = sorted({round(t) for t in np.geomspace(1, steps, 30)})
    jobs = [(case, options.seed + k) for k in range(seeds) for case in CASES]
    references: dict[Training, list[tuple[Tensor, float]]] = {}

    def rows_of(job: tuple[Case, int]) -> list[dict[str, Any]]:
        case, seed = job
        start = Training(case.cell, case.optimizer, RATES[case.optimizer], seed=seed, steps=steps,
                         eps=case.eps, hidden=16 if options.quick else 32, dtype=torch.float64)  # fmt: skip
        if start not in references:
            references[start] = trajectory(*begin(start, None, options.device), steps=logged)
        found = trajectory(*begin(start, case, options.device), steps=logged)
        return [
            {"case": case.name, "seed": seed, "step": t, "deviation": deviation(one, other), "bits": bits,
             "reference": reference}
            for t, (one, reference), (other, bits) in zip(logged, references[start], found, strict=True)
        ]  # fmt: skip

    found = finished(options, "scale_lr_equivalence", jobs, rows_of)
    rows = list(itertools.chain.from_iterable(found))
    return Findings(rows, [summarized(case, rows) for case in CASES], checked(options, min(steps, 50)))


def begin(start: Training, case: Case | None, device: str) -> tuple[nn.Module, optim.Optimizer]:
    """Return model and optimizer at the start; with a case, scaled as it says."""
    model = start.model().to(device)
    optimizer = start.make_optimizer(model)
    if case is not None:
        own = optimizer.param_groups[0]
        own["lr"] *= case.delta**case.power
        if "eps" in own:
            own["eps"] /= case.delta
        with torch.no_grad():
            for name in BLOCKS.values():
                model.get_parameter(name).mul_(case.delta)
    return model, optimizer


def trajectory(
    model: nn.Module, optimizer: optim.Optimizer, *, steps: Sequence[int]
) -> list[tuple[Tensor, float]]:
    """Train, and return logits and bits of the batches at some steps, each before its update.

    The hidden state starts at random numbers: with eps = 0, a state of 0 has no normalized value.
    """
    first = starting_state(model)
    state, found = first, []
    for step in range(1, max(steps) + 1):
        batch = task().to(first[0].device).batch(step - 1)
        logits, state = model(batch.inputs, first if batch.fresh else state)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
        if step in steps:
            found.append((logits.detach(), float(loss.detach()) / math.log(2)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state = tuple(value.detach() for value in state)
    return found


def starting_state(model: nn.Module) -> tuple[Tensor, Tensor]:
    """Return the same random h and c for every run."""
    generator = torch.Generator().manual_seed(0)
    readout = model.get_parameter("readout.weight")
    shape = (1, task().batch_size, readout.shape[1])
    h, c = (torch.randn(shape, generator=generator, dtype=torch.float64).to(readout) for _ in range(2))
    return 0.1 * h, 0.1 * c


def deviation(one: Tensor, other: Tensor) -> float:
    """Return the length of the difference of all logits of a batch, relative to theirs."""
    return float((one - other).norm() / one.norm())


def checked(options: Options, steps: int) -> list[dict[str, Any]]:
    """Return what `scale_equivalence` says of W_h alone at δ = 4, with both optimizers and without norms.

    A power of two: at others, the rounding of a long run can exceed the tolerance of that check.
    """
    found = []
    for cell, optimizer in (("LN-LSTM", "SGD"), ("LN-LSTM", "Adam"), ("LSTM", "SGD")):
        start = Training(cell, optimizer, RATES[optimizer], seed=options.seed, eps=0.0,
                         hidden=16 if options.quick else 32, dtype=torch.float64)  # fmt: skip
        model, stepper = begin(start, None, options.device)

        def run(model: nn.Module, stepper: optim.Optimizer) -> Tensor:
            states = trajectory(model, stepper, steps=range(1, steps + 1))
            return torch.tensor([bits for _, bits in states], dtype=torch.float64)

        check: LawCheck = scale_equivalence(model, stepper, BLOCKS["W_h"], run, factor=4.0)
        found.append({"cell": cell, "optimizer": optimizer, "steps": steps, **vars(check)})
    return found


def summarized(case: Case, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the largest deviation of one case, over steps and seeds, at the start and at the end."""
    own = [row for row in rows if row["case"] == case.name]
    last = max(row["step"] for row in own)
    return {
        "case": case.name,
        "delta": case.delta,
        "same": case.same,
        "first": max(row["deviation"] for row in own if row["step"] == 1),
        "largest": max(row["deviation"] for row in own),
        "last": max(row["deviation"] for row in own if row["step"] == last),
        "bits apart": max(abs(row["bits"] - row["reference"]) for row in own),
        "steps": last,
    }


def draw(rows: Sequence[dict[str, Any]], summary: Sequence[dict[str, Any]]) -> Figure:
    """Draw bits of runs that coincide, bits of runs that do not, and the deviation of all."""
    with style(
        height=4.6, axes__titlesize=7.5, axes__labelsize=7, xtick__labelsize=6.5, ytick__labelsize=6.5
    ):
        figure, axes = plt.subplot_mosaic(
            [["same", "other"], ["deviation", "deviation"]], height_ratios=(1, 1.4)
        )
        axes["other"].sharey(axes["same"])  # before anything is drawn, so that the limits are of both
        for key, same in (("same", True), ("other", False)):
            _draw_bits(rows, [s for s in summary if s["same"] is same], axes[key])
        axes["same"].set_ylabel("bits per character")
        axes["same"].set_title("LN-LSTM, η by the law (eps = 0: same run)")
        axes["other"].set_title("wrong power of δ, or no norm: another")
        _draw_deviations(rows, summary, axes["deviation"])
        exact, law = summary[1], summary[0]
        rest = "rounding" if law["last"] < 1e-6 else "rounding, which training multiplies"
        figure.suptitle(
            f"Three times longer weights with a 9-fold learning rate give the same LN-LSTM: after "
            f"{law['steps']} steps\nof SGD its logits differ by {law['last']:.0e} ({rest}); "
            f"with 4 times longer weights by {exact['largest']:g}",
            fontsize=7.5,
        )
    return figure


def _draw_bits(rows: Sequence[dict[str, Any]], cases: Sequence[dict[str, Any]], ax: Axes) -> None:
    """A pale line for a run from W, thin ones for runs from δW, of the first seed."""
    seed = min(row["seed"] for row in rows)
    for k, case in enumerate(cases):
        mine = [row for row in rows if (row["case"], row["seed"]) == (case["case"], seed)]
        steps = [row["step"] for row in mine]
        ax.plot(steps, [row["reference"] for row in mine], color="#c8c8c8", lw=4, zorder=1)
        ax.plot(
            steps, [row["bits"] for row in mine], ls=("-", "--", ":", "-.", (0, (1, 3)))[k], lw=1.3,
            label=case["case"], color=_colour(case["case"]), zorder=2,
        )  # fmt: skip
    ax.plot([], [], color="#c8c8c8", lw=4, label="from W, η")
    ax.set_xscale("log")
    ax.set_xlabel("step", labelpad=1)
    ax.legend(fontsize=5.5, frameon=False, loc="lower left", handlelength=2.5)


def _draw_deviations(rows: Sequence[dict[str, Any]], summary: Sequence[dict[str, Any]], ax: Axes) -> None:
    """A band over seeds for every case, named at its end."""
    ends = []
    for case in summary:
        mine = [{**r, "deviation": max(r["deviation"], FLOOR)} for r in rows if r["case"] == case["case"]]
        line = "-" if case["same"] else "--"
        draw_band(mine, ax, x="step", y="deviation", colour=_colour(case["case"]), line=line)
        ends.append(geometric_mean(r["deviation"] for r in mine if r["step"] == case["steps"]))
    names = [s["case"] if s["largest"] else f"{s['case']}: 0, bit for bit" for s in summary]
    name_ends(ax, float(summary[0]["steps"]), ends, names, [_colour(s["case"]) for s in summary], share=0.34)
    ax.set_yticks([1e-16, 1e-12, 1e-8, 1e-4, 1])
    ax.set_xlabel("step", labelpad=1)
    ax.set_ylabel("change of the logits,\nrelative, float64")


def _colour(name: str) -> str:
    return COLOURS[(0, 9, 2, 4, 6, 1, 3, 7)[[case.name for case in CASES].index(name)]]


def write(options: Options) -> list[Path]:
    """Write scale_lr_equivalence.{json,md,pdf,png}."""
    stem, found = options.stem(__file__), compute(options)
    write_json(f"{stem}.json", {"rows": found.rows, "summary": found.summary, "checks": found.checks})
    write_text(f"{stem}.md", f"# Longer weights, larger rate: the same run\n\n{explain(found)}")
    texts = [Path(f"{stem}.{kind}") for kind in ("json", "md")]
    return [*texts, *save_figure(draw(found.rows, found.summary), stem)]


def explain(found: Findings) -> str:
    """Say what the numbers show."""
    header = ["case", "factor δ", "first step", "last step", "largest", "bits apart, at most"]
    table = [
        [s["case"], f"{s['delta']:g}", *(f"{s[k]:.1e}" for k in ("first", "last", "largest", "bits apart"))]
        for s in found.summary
    ]
    verdicts = [
        f"{c['cell']}, {c['optimizer']}: {'holds' if c['holds'] else 'does not hold'} "
        f"(error {c['error']:.1e}, tolerance {c['tolerance']:.1e})"
        for c in found.checks
    ]
    eps = found.summary[3]
    return f"""\
A character model on the novel is trained in float64 from W and from δW (both matrices of the LSTM; the
learning rate of these two is scaled as named, nothing else). Grey: the run from W. Below: the difference
of the logits of a step's batch, relative (Frobenius norms); bands over
{len({r["seed"] for r in found.rows})} seeds.

{to_markdown(header, table)}

* `∇L(δw) = ∇L(w)/δ`: with SGD and δ²η, with Adam and δη (its eps over δ), the run is the same, and what
  is left is rounding that training carries on. Where δ is a power of two it is the same bit for bit.
* An eps of 1e-5 inside the root is not scaled with W: the logits differ by {eps["first"]:.1e} at the
  first step and by at most {eps["largest"]:.1e} in {eps["steps"]} steps.
* The law needs its power of δ and the norm: with η kept, with Adam and δ²η, and without norms, it is
  another run.
* `scale_equivalence` on W_h alone with δ = 4, {found.checks[0]["steps"]} steps: {"; ".join(verdicts)}."""
