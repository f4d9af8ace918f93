"""What every symmetry of a real model conserves: its drift under SGD, predicted and measured."""

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
from torch import Tensor, nn, optim
from torch.nn import functional

import normgeom as ng
from analyses._language_model import task
from analyses._run import Options
from analyses._runs import with_progress
from analyses._scanned_models import GPT
from normgeom.figures import COLOURS, MARKERS, label_ends, save_figure, style
from normgeom.models import LNLSTM, CharLM
from normgeom.report import to_markdown, write_json, write_text

FLOOR = 1e-18
LAWS = ("norm growth", "joint norms", "column sums", "row sums", "joint sums", "dead block")
NORMS = LAWS[:2]


@dataclass(frozen=True)
class Case:
    """A model and how it is trained; `exact` says whether theory has a law to rounding for its norms."""

    name: str
    optimizer: str = "SGD"
    rate: float = 0.2
    decay: float = 0.0
    eps: float = 0.0
    exact: bool = True

    def model(self, seed: int, size: int) -> nn.Module:
        """Return a character model in float64: a transformer, or the paper's LN-LSTM."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if self.name.startswith("LN-LSTM"):
                core = LNLSTM(task().classes, size, eps=self.eps, dtype=torch.float64)
                return CharLM(core, task().classes, dtype=torch.float64)
            return GPT(
                norm=self._norm,
                activation=functional.relu,
                tokens=task().classes,
                length=task().length,
                size=size,
            ).double()

    def _norm(self, size: int) -> nn.Module:
        return nn.LayerNorm(size, eps=self.eps)

    def make_optimizer(self, model: nn.Module) -> optim.Optimizer:
        """Return the optimizer."""
        kind = {"SGD": optim.SGD, "AdamW": optim.AdamW}[self.optimizer]
        return kind(model.parameters(), lr=self.rate, weight_decay=self.decay)


CASES = (
    Case("transformer, SGD"),
    Case("transformer, SGD, weight decay", decay=0.05),
    Case("transformer, SGD, eps 1e-5", eps=1e-5, exact=False),
    Case("transformer, AdamW", "AdamW", 1e-3, exact=False),
    Case("LN-LSTM, SGD, eps 1e-8", rate=0.5, eps=1e-8, exact=False),
)


@dataclass(frozen=True)
class Findings:
    """The drift of every quantity by step, and what each comes to at the end."""

    rows: list[dict[str, Any]]
    summary: list[dict[str, Any]]


def compute(options: Options) -> Findings:
    """Train, and compare the drift of every quantity with what it must be, at every step."""
    steps, size = (10, 8) if options.quick else (1000, 32) if options.full else (150, 32)
    rows, ends = [], []
    for case in with_progress(CASES, "symmetry_conservation"):
        laws = trained(case, case.model(options.seed, size), steps)
        kept = {round(t) for t in np.geomspace(1, steps, 30)} if case is CASES[0] else {steps}
        frame = laws.frame()
        frame.insert(0, "case", case.name)
        rows += [
            {str(k): v for k, v in row.items()} for row in frame[frame["step"].isin(kept)].to_dict("records")
        ]
        ends += [{"case": case.name, **vars(check)} for check in laws.report()]
    return Findings(rows, ends)


def trained(case: Case, model: nn.Module, steps: int) -> ng.Conservation:
    """Train on the novel under watch; the symmetries are those found by a scan on the first batch."""
    inputs, _ = _batch(case, 0)
    found = ng.scan(model, inputs, select=_logits)
    optimizer = case.make_optimizer(model)
    with ng.conservation(model, optimizer, symmetries=found) as laws:
        for number in range(steps):
            inputs, targets = _batch(case, number)
            optimizer.zero_grad()
            functional.cross_entropy(_logits(model(inputs)).flatten(0, 1), targets.flatten()).backward()
            optimizer.step()
    return laws


def _batch(case: Case, number: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets: (cases, steps) for the transformer, (steps, cases) for the LSTM."""
    batch = task().batch(number)
    if case.name.startswith("LN-LSTM"):
        return batch.inputs, batch.targets
    return batch.inputs.T, batch.targets.T


def _logits(out: Any) -> Tensor:
    """The logits, of a model that returns its state too."""
    return out[0] if isinstance(out, tuple) else out


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """Draw the drift of the transformer's norms, and the distance of every quantity from its prediction."""
    last = [row for row in rows if row["step"] == max(r["step"] for r in rows)]
    exact = [deviation(row) for row in last if row["case"] == CASES[0].name]
    with style(height=2.9, axes__titlesize=7, axes__labelsize=7, xtick__labelsize=6.5, ytick__labelsize=6.5):
        figure, (left, right) = plt.subplots(1, 2, width_ratios=(1, 1.25))
        _draw_drifts([row for row in rows if row["case"] == CASES[0].name], left)
        _draw_deviations(last, right)
        figure.suptitle(
            f"SGD moves the {len(exact)} quantities that a transformer's symmetries conserve under gradient "
            f"flow\nexactly as predicted: to {max(exact):.0e}. An eps breaks those of norms, never of sums; "
            "AdamW has no such law",
            fontsize=7.5,
        )
    return figure


def deviation(row: dict[str, Any]) -> float:
    """Return how far a drift is from its prediction, relative to the law's scale or the drift itself."""
    size = max(row["scale"], abs(row["measured"]))
    return abs(row["measured"] - row["predicted"]) / size if size else 0.0


def _draw_drifts(rows: Sequence[dict[str, Any]], ax: Axes) -> None:
    """Size of the measured (marks) and predicted (lines) drift of one joint symmetry of each kind."""
    labels = list(dict.fromkeys(row["block"] for row in rows if row["law"] == "joint norms"))
    ends = []
    for k, (name, label) in enumerate(_one_of_each(labels).items()):
        own = [row for row in rows if (row["law"], row["block"]) == ("joint norms", label)]
        steps, colour = [row["step"] for row in own], COLOURS[(0, 2, 3, 7, 4)[k]]
        ax.plot(steps, [abs(row["predicted"]) for row in own], "-", lw=0.8, color=colour)
        measured = [abs(row["measured"]) for row in own]
        ax.plot(steps, measured, MARKERS[k], ms=2.8, mew=0.6, mfc="none", color=colour)
        ends.append((name, measured[-1], colour))
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(*ax.get_ylim())
    label_ends(ends, ax, gap=0.1, indent=0.05)
    ax.set_xlabel("step", labelpad=1)
    ax.set_ylabel("|drift| since the start")
    ax.set_title("SGD: lines predicted, marks measured")


def _one_of_each(labels: Sequence[str]) -> dict[str, str]:
    """A joint symmetry of each kind, by what it conserves."""

    def of(*parts: str) -> str:
        return next(label for label in labels if all(part in label.split() for part in parts))

    return {
        "embeddings and writers": of("tok.weight^+1"),
        "gain and next weight": of("nf.weight^+1", "head.weight^-1"),
        "relu pair": of("b.0.f1.weight^+1", "b.0.f2.weight^-1"),
        "values and output": of("b.0.a.v.weight^+1", "b.0.a.o.weight^-1"),
        "queries and keys": of("b.0.a.q.weight^+1", "b.0.a.k.weight^-1"),
    }


def _draw_deviations(last: Sequence[dict[str, Any]], ax: Axes) -> None:
    """A mark for every quantity: how far its drift is from the prediction."""
    looks = (("norms", -0.18, "o", COLOURS[0]), ("sums", 0.18, "x", COLOURS[3]))
    for place, case in enumerate(CASES):
        for kind, offset, marker, colour in looks:
            own = [r for r in last if r["case"] == case.name and (r["law"] in NORMS) == (kind == "norms")]
            spots = place + offset + 0.12 * np.linspace(-1, 1, len(own))
            values = [max(deviation(row), FLOOR) for row in own]
            label = "" if place else kind
            ax.plot(values, spots, marker, ms=2.8, mew=0.7, mfc="none", color=colour, label=label)
    ax.set_xscale("log")
    ax.set_xlim(FLOOR / 3, 10)
    ax.set_xticks([1e-16, 1e-12, 1e-8, 1e-4, 1])
    ax.minorticks_off()
    ax.set_yticks(range(len(CASES)), [case.name.replace(", ", "\n", 1) for case in CASES])
    ax.set_ylim(len(CASES) - 0.5, -0.5)
    for edge in range(1, len(CASES)):
        ax.axhline(edge - 0.5, color="0.9", lw=0.6, zorder=0)
    ax.set_xlabel("|measured − predicted|, relative", labelpad=1)
    ax.set_title("a mark for each quantity")
    ax.legend(loc="upper right", fontsize=6.5, frameon=False, handletextpad=0.1, borderpad=0)


def write(options: Options) -> list[Path]:
    """Write symmetry_conservation.{json,md,pdf,png}."""
    stem, found = options.stem(__file__), compute(options)
    write_json(f"{stem}.json", {"rows": found.rows, "summary": found.summary})
    write_text(f"{stem}.md", f"# What the symmetries of a model conserve\n\n{explain(found)}")
    texts = [Path(f"{stem}.{kind}") for kind in ("json", "md")]
    return [*texts, *save_figure(draw(found.rows), stem)]


def table(summary: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the header and a row for every case and law: how many laws there are and hold."""
    header = ["case", "law", "quantities", "hold", "no law, or up to eps", "violated", "largest error"]
    cells = []
    for case, law in itertools.product(CASES, LAWS):
        own = [s for s in summary if (s["case"], s["law"]) == (case.name, law)]
        if own:
            held = [s["holds"] for s in own]
            counts = (len(own), *(held.count(verdict) for verdict in (True, None, False)))
            cells.append([case.name, law, *map(str, counts), f"{max(s['error'] for s in own):.1e}"])
    return header, cells


def explain(found: Findings) -> str:
    """Say what the numbers show."""
    steps = max(row["step"] for row in found.rows)
    quantities = [
        [s["law"], s["quantity"] if len(s["quantity"]) < 90 else f"{s['quantity'][:86]} …",
         f"{s['predicted']:+.6g}".replace("-", "−"), f"{s['measured']:+.6g}".replace("-", "−")]
        for s in found.summary if s["case"] == CASES[0].name and s["law"] in NORMS
    ]  # fmt: skip
    return f"""\
`ng.scan` finds the symmetries of a character model of the novel, and `ng.conservation(model, optimizer,
symmetries=...)` says what each conserves under gradient flow, predicts how SGD moves it, and measures that
over {steps} steps in float64. A joint scaling by `c^k_p` conserves `Σ k_p ‖w_p‖²`; a step of SGD moves it
by exactly `η² Σ k_p ‖∇_p‖²`. Shifts conserve sums, which SGD does not move at all. Left: one joint symmetry
of each kind. Right: every quantity; deviations of norms are relative to `Σ |k_p| η² ‖∇_p‖²`, of sums to the
absolute weights.

{to_markdown(*table(found.summary))}

Up to eps: the symmetry is exact at eps = 0, and the error is what the model's own eps breaks. The sums do
not see it. AdamW's steps are no multiples of the gradient, and have no such law; its errors are relative to
what SGD would have done.

## The norms of the transformer, SGD without decay: growth predicted and measured

{to_markdown(["law", "conserved under gradient flow", "predicted", "measured"], quantities)}"""
