"""The Fisher spectrum of a network with layer norm and of its twin without, at start and after training.

Both are trained on scikit-learn's digits, from the same seed, with the same steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from analyses._glms import small
from analyses._run import Options
from normgeom.figures import draw_spectrum, save_figure, style
from normgeom.geometry.families import Categorical
from normgeom.geometry.fisher import fisher
from normgeom.geometry.null_space import annihilation_error, null_space, tangent_directions
from normgeom.report import to_markdown, write_json, write_text
from normgeom.transforms import WeightMatrixRecenter, WeightMatrixRescale

UNITS, CLASSES, COMPONENTS = 16, 10, 20
NETWORKS = ("layer norm", "no norm")
CAPTION = (
    "Eigenvalues of the exact Fisher matrix of a network 20-16-10 (tanh, categorical outputs) with layer "
    "norm before the tanh and of its twin without, smallest first, at start and after training on "
    "scikit-learn's digits. The vertical lines stand at the null dimension that theory gives: everything "
    "to the left is a symmetry, and zero to rounding."
)


@dataclass(frozen=True)
class Findings:
    """One dict an eigenvalue, and one a network and time with its summary."""

    rows: list[dict[str, Any]]
    summary: list[dict[str, Any]]


@dataclass(frozen=True)
class Digits:
    """The digits: inputs on their leading principal components, labels, and which cases are held out."""

    inputs: Tensor
    labels: Tensor
    held_out: Tensor


def compute(options: Options) -> Findings:
    """Train both networks, and find their spectra before and after."""
    data = digits(options)
    rows, summary = [], []
    for name in NETWORKS:
        model = network(name, options)
        for time, epochs in (("at start", 0), ("trained", 2 if options.quick else 15)):
            train(model, data, epochs, options)
            found, values = measure(name, model, data)
            about = {"norm": name, "time": time}
            summary.append(about | found)
            drawn = about | {"rank": found["expected rank"], "accuracy": found["accuracy"]}
            rows += [drawn | {"index": k + 1, "eigenvalue": value} for k, value in enumerate(values)]
    return Findings(rows, summary)


def digits(options: Options) -> Digits:
    """Return 1797 images of 8 x 8 pixels on their first 20 principal components; every fifth is held out.

    On pixels themselves the constant ones would add null directions that say nothing about the norm.
    """
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(images / 16, dtype=torch.float64)
    centred = pixels - pixels.mean(0)
    left, sizes, _ = torch.linalg.svd(centred, full_matrices=False)
    inputs = (left * sizes)[:, :COMPONENTS] / sizes[0] * len(pixels) ** 0.5
    held_out = torch.arange(len(pixels)) % 5 == 0
    cases = slice(0, 400 if options.quick else None)
    return Digits(*(tensor[cases].to(options.device) for tensor in (inputs, torch.tensor(labels), held_out)))


def network(norm: str, options: Options) -> nn.Sequential:
    """Return an untrained network; the twin without layer norm has the hidden bias in its linear layer."""
    normed = norm == "layer norm"
    hidden = nn.utils.skip_init(nn.Linear, COMPONENTS, UNITS, bias=not normed)
    last = nn.utils.skip_init(nn.Linear, UNITS, CLASSES)
    generator = options.generator()
    for layer in (hidden, last):
        nn.init.normal_(layer.weight, std=layer.in_features**-0.5, generator=generator)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    middle = [nn.LayerNorm(UNITS, eps=0.0)] if normed else []
    return nn.Sequential(hidden, *middle, nn.Tanh(), last).to(options.device, torch.float64)


def train(model: nn.Sequential, data: Digits, epochs: int, options: Options) -> None:
    """Take Adam steps (rate 0.003, 64 cases a step) on the cases that are not held out."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    kept, generator = torch.nonzero(~data.held_out).flatten(), options.generator()
    for _ in range(epochs):
        for batch in kept[torch.randperm(len(kept), generator=generator).to(kept.device)].split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(data.inputs[batch]), data.labels[batch]).backward()
            optimizer.step()


def measure(name: str, model: nn.Sequential, data: Digits) -> tuple[dict[str, Any], list[float]]:
    """Return the summary of a network's Fisher matrix, and its eigenvalues, largest first."""
    params = {n: p.detach() for n, p in model.named_parameters()}
    matrix = fisher(model, params, data.inputs, family=Categorical(), progress=False)
    found, nulls = null_space(matrix), null_directions(name, params, data)
    values = found.eigenvalues.flip(0)
    with torch.no_grad():
        outputs = model(data.inputs)
    right = (outputs.argmax(1) == data.labels).double()
    rest = values[: len(values) - len(nulls)]
    return {
        "parameters": len(values), "expected rank": len(rest), "expected nullity": len(nulls),
        "nullity": found.nullity, "gap": found.gap,
        "annihilation": max(annihilation_error(matrix, d) for d in nulls),
        "largest": float(values[0]), "smallest": float(rest[-1]), "trace": float(matrix.trace),
        "directions": float(values.sum() ** 2 / (values**2).sum()),
        "in top 10": float(values[:10].sum() / values.sum()),
        "accuracy": float(right[data.held_out].mean()),
        "training accuracy": float(right[~data.held_out].mean()),
    }, values.tolist()  # fmt: skip


def null_directions(name: str, params: dict[str, Tensor], data: Digits) -> list[dict[str, Tensor]]:
    """Return a basis of the symmetries: those of layer norm, and a number added to all outputs of a case."""
    weight = next(key for key in reversed(params) if key.endswith("weight"))
    bias = weight.replace("weight", "bias")
    columns = torch.eye(UNITS).to(params[weight])
    shifts = [{weight: column.expand(CLASSES, UNITS)} for column in columns]
    shifts.append({bias: torch.ones_like(params[bias])})
    if name != "layer norm":
        return shifts
    hidden = params["0.weight"].cpu()
    own = [tangent_directions(t, hidden, hidden[:1]) for t in (WeightMatrixRescale, WeightMatrixRecenter)]
    return [{"0.weight": direction} for some in own for direction in some] + shifts


def draw(rows: Sequence[dict[str, Any]]) -> Figure:
    """Draw the spectra at start and after training."""
    with style(height=2.7, axes__titlesize=8, xtick__labelsize=7, ytick__labelsize=7, axes__labelsize=8):
        figure, axes = plt.subplots(1, 2, sharey=True)
        for ax, time in zip(axes, dict.fromkeys(row["time"] for row in rows), strict=True):
            draw_spectrum([row for row in rows if row["time"] == time], ax)
            ax.set_title(time)
            ax.set_xlabel("index, smallest first")
        axes[0].set_ylabel("eigenvalue of F (nats)")
    return figure


def write(options: Options) -> list[Path]:
    """Write eigen_spectrum.{json,md,pdf,png}."""
    stem, found = options.stem(__file__), compute(options)
    header = [
        "network", "time", "test accuracy", "parameters", "null dimension", "theory", "largest",
        "smallest not null", "largest/smallest", "trace", "top 10 of the trace", "effective directions",
    ]  # fmt: skip
    table = [
        [s["norm"], s["time"], f"{100 * s['accuracy']:.1f} %", str(s["parameters"]), str(s["nullity"]),
         str(s["expected nullity"]), f"{s['largest']:.3g}", f"{s['smallest']:.1e}",
         f"{s['largest'] / s['smallest']:.1e}", f"{s['trace']:.3g}", f"{100 * s['in top 10']:.0f} %",
         f"{s['directions']:.1f}"]
        for s in found.summary
    ]  # fmt: skip
    write_json(f"{stem}.json", {"rows": found.rows, "summary": found.summary})
    write_text(
        f"{stem}.md",
        f"# The spectrum of a trained network\n\n{CAPTION}\n\n"
        f"{to_markdown(header, table)}\n\n{explain(found)}",
    )
    return [Path(f"{stem}.json"), Path(f"{stem}.md"), *save_figure(draw(found.rows), stem)]


def explain(found: Findings) -> str:
    """Say what the numbers show."""
    of = {(s["norm"], s["time"]): s for s in found.summary}
    normed, plain = of["layer norm", "trained"], of["no norm", "trained"]
    worst, gap = max(s["annihilation"] for s in found.summary), min(s["gap"] for s in found.summary)
    return f"""\
Effective directions are (Σλ)²/Σλ². Inputs: scikit-learn's digits on their first {COMPONENTS} principal
components.

* Held-out accuracy after training: {100 * normed["accuracy"]:.1f} % with layer norm,
  {100 * plain["accuracy"]:.1f} % without.
* The null dimension is {normed["nullity"]} with layer norm and {plain["nullity"]} without; theory has
  {normed["expected nullity"]} and {plain["expected nullity"]}. {plain["expected nullity"]} are the shifts
  of all outputs of a case together ({UNITS} in the last weights, 1 in the last biases); layer norm adds
  {COMPONENTS} + 1, a row added to all rows of W and the scale of W. F times each of them is at most
  {small(worst)} of the largest eigenvalue, and the smallest eigenvalue kept is at least {gap:.0e} times the
  largest one dropped.
* Trained, the largest eigenvalue is {normed["largest"]:.3g} with layer norm and {plain["largest"]:.3g}
  without, the trace {normed["trace"]:.3g} and {plain["trace"]:.3g}; the ten largest hold
  {100 * normed["in top 10"]:.0f} % and {100 * plain["in top 10"]:.0f} % of it, and the spectrum has
  {normed["directions"]:.0f} and {plain["directions"]:.0f} effective directions."""
