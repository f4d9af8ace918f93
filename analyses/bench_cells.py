"""How fast the recurrent cells are: `python -m analyses.bench_cells` (about a minute; `--help` for options).

A training step (forward, backward, Adam) of each layer at two shapes, in float32, against that of torch's own
un-normalized layer and against a plain loop over a cell with `nn.LayerNorm`; the products that none can do
without, alone; and the gradients of every case apart. Medians of the processor time of interleaved runs in
one process. `fused` has the pointwise part of a step in C, `plain` is torch alone.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from normgeom.models import DRAWLSTM, LNGRU, LNLSTM, LNRNN, per_example_gradients

Run = Callable[[], Any]
SHAPES = {"large": (100, 32, 64, 256), "small": (50, 16, 64, 128)}
LAYERS: dict[str, tuple[type[nn.Module], type[nn.Module], int]] = {
    "LNLSTM": (LNLSTM, nn.LSTM, 4),
    "DRAWLSTM": (DRAWLSTM, nn.LSTM, 4),
    "LNGRU": (LNGRU, nn.GRU, 3),
    "LNRNN": (LNRNN, nn.RNN, 1),
}


@dataclass
class Row:
    """One line of the table; the ratio is to the first method of the same layer and shape."""

    shape: str
    layer: str
    method: str
    seconds: float
    ratio: float


class LoopOverCell(nn.Module):
    """The paper's LSTM as one writes it: a loop over a cell with `nn.Linear` and `nn.LayerNorm`."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.units = units
        self.from_input, self.from_hidden = nn.Linear(inputs, 4 * units), nn.Linear(units, 4 * units)
        self.norm_input, self.norm_hidden = nn.LayerNorm(4 * units), nn.LayerNorm(4 * units)
        self.norm_cell = nn.LayerNorm(units)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the hidden states."""
        h = c = x.new_zeros(x.shape[1], self.units)
        outputs = []
        for into in x:
            summed = self.norm_hidden(self.from_hidden(h)) + self.norm_input(self.from_input(into))
            f, i, o, g = summed.chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * self.norm_cell(c).tanh()
            outputs.append(h)
        return torch.stack(outputs), None


def training_step(layer: nn.Module, x: torch.Tensor) -> Run:
    """Return a function that makes one step."""
    optimizer = torch.optim.Adam(layer.parameters(), 1e-4)

    def step() -> None:
        loss = layer(x)[0].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def products(x: torch.Tensor, units: int, gates: int) -> Run:
    """Return a function that makes the matrix products of a training step, the gradient of x apart."""
    steps, cases, inputs = x.shape
    by_input, by_hidden = torch.randn(gates * units, inputs), torch.randn(gates * units, units)
    summed, h = torch.randn(steps, cases, gates * units), torch.randn(steps, cases, units)
    flat, out, back = summed.flatten(0, 1), torch.empty_like(summed[0]), torch.empty_like(h[0])
    transposed = by_hidden.t().contiguous()

    def run() -> None:
        x.flatten(0, 1) @ by_input.t()
        for t in range(steps):
            torch.mm(h[t], transposed, out=out)
        for t in range(steps):
            torch.mm(summed[t], by_hidden, out=back)
        flat.t() @ h.flatten(0, 1)
        flat.t() @ x.flatten(0, 1)

    return run


@contextmanager
def without_kernel() -> Iterator[None]:
    """Switch the kernel off."""
    before = os.environ.get("NORMGEOM_FUSED")
    os.environ["NORMGEOM_FUSED"] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ["NORMGEOM_FUSED"]
        else:
            os.environ["NORMGEOM_FUSED"] = before


def plainly(run: Run) -> Run:
    """Return the same without the kernel."""

    def plain() -> Any:
        with without_kernel():
            return run()

    return plain


def steps_of(layer: str, shape: tuple[int, ...]) -> dict[str, Run]:
    """Return the training steps of one layer; the first is torch's."""
    steps, cases, inputs, units = shape
    ours, theirs, gates = LAYERS[layer]
    x = torch.randn(steps, cases, inputs)
    runs = {
        f"torch.nn.{theirs.__name__}": training_step(theirs(inputs, units), x),
        "fused": training_step(ours(inputs, units), x),
        "plain": plainly(training_step(ours(inputs, units), x)),
        "products alone": products(x, units, gates),
    }
    if layer == "LNLSTM":
        runs["loop over a cell"] = training_step(LoopOverCell(inputs, units), x)
    return runs


def gradients_of(layer: str, shape: tuple[int, ...], slow: bool) -> dict[str, Run]:
    """Return the gradients of one layer: ordinary first, then those of every case."""
    steps, cases, inputs, units = shape
    core = LAYERS[layer][0](inputs, units)
    x, cotangent = torch.randn(steps, cases, inputs), torch.randn(steps, cases, units)
    params = {name: value.detach() for name, value in core.named_parameters()}

    def paired(own: dict[str, torch.Tensor], one: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return (functional_call(core, own, (one.unsqueeze(1),))[0].squeeze(1) * weight).sum()

    runs: dict[str, Run] = {
        "ordinary gradient": lambda: torch.autograd.grad(core(x)[0], list(core.parameters()), cotangent),
        "per_example_gradients": lambda: per_example_gradients(core, x, cotangent),  # type: ignore[arg-type]
    }
    runs |= {f"{name}, plain": plainly(run) for name, run in runs.items()}
    if slow:
        runs["vmap(grad)"] = lambda: vmap(grad(paired), in_dims=(None, 1, 1))(params, x, cotangent)
    return runs


def measure(shape: str, layer: str, runs: dict[str, Run], repeats: int) -> list[Row]:
    """Run the methods in turn, several times, after one turn that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats + 1):
        for name, run in runs.items():
            start = time.process_time()
            run()
            times[name].append(time.process_time() - start)
    medians = {name: statistics.median(t[1:]) for name, t in times.items()}
    first = next(iter(medians.values()))
    return [Row(shape, layer, name, seconds, seconds / first) for name, seconds in medians.items()]


def compute(
    layers: list[str], shapes: list[str], repeats: int = 9, threads: int = 1, slow: bool = False
) -> dict[str, Any]:
    """Return the rows and what the machine was doing."""
    torch.set_num_threads(threads)
    machine: dict[str, Any] = {
        "threads": threads,
        "torch": torch.__version__,
        "load_before": os.getloadavg()[0],
    }
    rows: list[Row] = []
    for shape in shapes:
        for layer in layers:
            rows += measure(shape, layer, steps_of(layer, SHAPES[shape]), repeats)
        rows += measure(
            shape, f"{layers[0]}: gradients", gradients_of(layers[0], SHAPES[shape], slow), repeats
        )
    return {"machine": machine | {"load_after": os.getloadavg()[0]}, "rows": [asdict(row) for row in rows]}


def table(result: dict[str, Any]) -> str:
    """Return the rows as text."""
    lines, part = [json.dumps(result["machine"])], ""
    for row in result["rows"]:
        title = f"{row['layer']}, (steps, cases, inputs, units) = {SHAPES[row['shape']]}"
        if title != part:
            part = title
            lines += ["", title, f"  {'method':30}{'ms':>10}{'ratio':>8}"]
        lines.append(f"  {row['method']:30}{1e3 * row['seconds']:10.2f}{row['ratio']:8.2f}")
    return "\n".join(lines)


def main() -> None:
    """Measure, print the rows as JSON lines, then the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", nargs="+", default=list(LAYERS), choices=LAYERS)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--slow", action="store_true", help="also run vmap(grad) over the cases")
    options = parser.parse_args()
    result = compute(options.layers, options.shapes, options.repeats, options.threads, options.slow)
    for row in result["rows"]:
        sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.write(table(result) + "\n")


if __name__ == "__main__":
    main()
