"""What scaling the data does to the metric of the gains, and eq. 32 to 35 as printed against exact."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from analyses._glms import FAMILIES, problem, ratio, small
from analyses._run import Options
from normgeom.figures import draw_gain_error, draw_gain_metric, save_figure, style
from normgeom.geometry.gain_metric import (
    eq35_as_printed,
    gain_metric,
    gain_metric_as_printed,
    radial_metric,
    two_gain_kl,
)
from normgeom.report import to_markdown, write_json, write_text

METHODS = {
    "standard GLM": "no norm",
    "weight norm": "weight norm",
    "batch norm": "batch norm",
    "layer norm": "layer norm",
}
EQUATIONS = {"batch norm": 32, "layer norm": 33, "weight norm": 34}
CAPTION = (
    "Left and middle: trace of the metric of the gains as all inputs are scaled by δ, over its value at δ "
    "= 1. For the standard GLM it is the metric along the weight vectors; the weight-normalized model has "
    "gains ‖wᵢ‖, so that it computes the same function. Right: eq. 32 to 34 as printed against the exact "
    "metric."
)


@dataclass(frozen=True)
class Findings:
    """Points of the curves, errors of the printed equations, and eq. 35 for steps in two gains."""

    points: list[dict[str, Any]]
    errors: list[dict[str, Any]]
    eq35: list[dict[str, Any]]


def compute(options: Options) -> Findings:
    """Measure the metric of the gains for the four methods over scales of the data."""
    deltas = np.array([0.25, 0.5, 1, 2, 4]) if options.quick else 2 ** np.arange(-2, 2.01, 0.5)
    points = []
    for family in ("Gaussian", "categorical"):
        for method in METHODS:
            traces = {float(d): float(metric(method, family, float(d), options).trace()) for d in deltas}
            points += [
                {"method": method, "family": family, "delta": d, "trace": t, "ratio": t / traces[1.0]}
                for d, t in traces.items()
            ]
    return Findings(points, printed_errors(options), eq35(options))


def case_of(method: str, family: str, options: Options) -> tuple[Any, dict[str, Tensor], Tensor]:
    """Return the model of a method; weight norm has the gains that make it the standard GLM."""
    model, params, data = problem(
        METHODS[method], family, options, units=4, inputs=5, cases=40 if options.quick else 400
    )
    if method == "weight norm":
        params["gain"] = torch.linalg.vector_norm(params["weight"], dim=1)
    return model, params, data


def metric(method: str, family: str, delta: float, options: Options) -> Tensor:
    """Return the exact metric of the gains at scaled data, or along the weight vectors without a norm."""
    model, params, data = case_of(method, family, options)
    how = radial_metric if method == "standard GLM" else gain_metric
    return how(model, params, delta * data)


def printed_errors(options: Options) -> list[dict[str, Any]]:
    """Return the relative Frobenius error of eq. 32, 33 and 34 for every family."""
    rows = []
    for method, equation in EQUATIONS.items():
        for family in FAMILIES:
            case = case_of(method, family, options)
            exact, printed = gain_metric(*case), gain_metric_as_printed(*case)
            error = float((printed - exact).norm() / exact.norm())
            diagonal = float(((printed - exact).diagonal() / exact.diagonal()).abs().max())
            rows.append({"method": method, "equation": equation, "family": family, "error": error,
                         "diagonal error": diagonal})  # fmt: skip
    return rows


def eq35(options: Options) -> list[dict[str, Any]]:
    """Return KL by its quadratic form in two gains, and eq. 35 as printed, for equal and opposite steps."""
    exact, units = metric("weight norm", "categorical", 1.0, options), (0, 1)
    return [
        {"steps": steps, "quadratic": float(two_gain_kl(exact, units, steps)),
         "printed": float(eq35_as_printed(exact, units, steps))}
        for steps in ((0.1, 0.1), (0.1, -0.1), (0.1, 0.0))
    ]  # fmt: skip


def draw(rows: Sequence[dict[str, Any]], errors: Sequence[dict[str, Any]]) -> Figure:
    """Draw both families over the scale of the data, and the errors of the printed equations."""
    with style(
        height=2.6, axes__titlesize=7.5, xtick__labelsize=6.5, ytick__labelsize=6.5, axes__labelsize=7
    ):
        figure, (left, middle, right) = plt.subplots(1, 3)
        for ax, family in ((left, "Gaussian"), (middle, "categorical")):
            draw_gain_metric([row for row in rows if row["family"] == family], ax)
            ax.set_title(f"{family} outputs")
            ax.set_xlabel(r"scale $\delta$ of the data")
        middle.sharey(left)
        left.set_ylabel(r"gain metric, trace over that at $\delta = 1$")
        draw_gain_error(errors, right)
        right.set_title("printed against exact")
        right.set_ylabel("relative Frobenius error")
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=7)
    return figure


def write(options: Options) -> list[Path]:
    """Write gain_metric.{json,md,pdf,png}."""
    stem, found = options.stem(__file__), compute(options)
    doubled = {(p["method"], p["family"]): p["ratio"] for p in found.points if p["delta"] == 2}
    scaling = to_markdown(
        ["method", "Gaussian, data doubled", "categorical, data doubled"],
        [[m, *(ratio(doubled[m, family]) for family in ("Gaussian", "categorical"))] for m in METHODS],
    )
    errors = {(e["equation"], e["family"]): small(e["error"]) for e in found.errors}
    printed = to_markdown(
        ["equation", *FAMILIES],
        [[f"{eq} ({method})", *(errors[eq, f] for f in FAMILIES)] for method, eq in EQUATIONS.items()],
    )
    write_json(f"{stem}.json", {"points": found.points, "errors": found.errors, "eq35": found.eq35})
    write_text(f"{stem}.md", "\n\n".join(
        ["# The metric of the gains", CAPTION, scaling, "Relative Frobenius error of the printed equations:",
         printed, explain(found)]
    ))  # fmt: skip
    return [Path(f"{stem}.json"), Path(f"{stem}.md"), *save_figure(draw(found.points, found.errors), stem)]


def explain(found: Findings) -> str:
    """Say what the numbers show."""
    doubled = {(p["method"], p["family"]): p["ratio"] for p in found.points if p["delta"] == 2}
    traces = {(p["method"], p["family"], p["delta"]): p["trace"] for p in found.points}
    same = max(
        abs(t / traces["weight norm", f, d] - 1) for (m, f, d), t in traces.items() if m == "standard GLM"
    )
    errors = {(e["equation"], e["family"]): e["error"] for e in found.errors}
    moved = max(abs(p["ratio"] - 1) for p in found.points if p["method"] in ("batch norm", "layer norm"))
    exact = max(e["error"] for e in found.errors if e["equation"] != 32)
    equal, opposite, single = found.eq35
    off = ", ".join(f"{100 * errors[32, f]:.0f} % {f}" for f in FAMILIES if f != "Gaussian")
    return f"""\
* Doubling the data multiplies the metric of the standard GLM and of weight norm by
  {doubled["weight norm", "Gaussian"]:.4f} with Gaussian outputs, and by
  {doubled["weight norm", "categorical"]:.4f} with categorical ones (their covariance falls as outputs
  grow). The two agree to {small(same)}. Batch norm and layer norm do not change ({small(moved)}).
* **Differs from the paper.** Eq. 32 for batch norm drops the factor zᵢzⱼ. It is exact for independent
  outputs of constant covariance (Gaussian, error {small(errors[32, "Gaussian"])}) and off by {off} here.
  Eq. 33 and 34 are exact (at most {small(exact)}).
* **Differs from the paper.** Eq. 35 sets the KL of a step in two gains equal to its cross term. For steps
  (0.1, −0.1) the quadratic form is {opposite["quadratic"]:.2e} nats and eq. 35 as printed
  {opposite["printed"]:.2e}; for (0.1, 0.1) {equal["quadratic"]:.2e} and {equal["printed"]:.2e}; for (0.1,
  0) {single["quadratic"]:.2e} and 0."""
