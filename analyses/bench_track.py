"""What a tracker costs: `python -m analyses.bench_track` (about a minute; `--help` for options).

Ratio of the CPU time of a training step with a tracker to one without, one thread, steps with and without in
turn in one process (medians of their ratios), `nn.LSTM` with Adam. A row a kind of tracker; the first is a
tracker that is not opened, so its distance from 1 is the noise of the machine.
"""

import argparse
import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn, optim

import normgeom as ng

SHAPES = {"large": (100, 32, 64, 256), "small": (50, 16, 64, 128)}
KINDS: dict[str, Callable[[nn.Module, optim.Optimizer], AbstractContextManager[Any]]] = {
    "none (noise)": lambda model, optimizer: contextlib.nullcontext(),
    "default": lambda model, optimizer: ng.track(model, optimizer),
    "every=10": lambda model, optimizer: ng.track(model, optimizer, every=10),
    "gates": lambda model, optimizer: ng.track(
        model, optimizer, blocks=[ng.gates(name, 4) for name, _ in model.named_parameters()]
    ),
    "rows": lambda model, optimizer: ng.track(
        model, optimizer, blocks=[ng.rows("weight_ih_l0"), ng.rows("weight_hh_l0")]
    ),
    "conservation": lambda model, optimizer: ng.conservation(model, optimizer),
}


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    shape: str
    kind: str
    plain_ms: float
    ratio: float
    low: float
    high: float


def trainer(shape: tuple[int, ...]) -> tuple[nn.Module, optim.Optimizer, Callable[[], None]]:
    """Return a model, its optimizer and one training step."""
    length, cases, inputs, units = shape
    generator = torch.Generator().manual_seed(0)
    model, x = nn.LSTM(inputs, units), torch.randn(length, cases, inputs, generator=generator)
    optimizer = optim.Adam(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        model(x)[0].square().mean().backward()
        optimizer.step()

    return model, optimizer, step


def measure(name: str, repeats: int) -> Iterator[Row]:
    """Run steps without and with each kind of tracker in turn."""
    model, optimizer, step = trainer(SHAPES[name])
    trackers = {kind: make(model, optimizer) for kind, make in KINDS.items()}
    times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for _ in range(repeats + 2):
        for kind, tracker in trackers.items():
            plain = timed(step)
            with tracker:
                times[kind].append((plain, timed(step)))
    for kind, pairs in times.items():
        ratios = sorted(b / a for a, b in pairs[2:])
        quarter = len(ratios) // 4
        plain = statistics.median(a for a, _ in pairs[2:])
        ratio = statistics.median(ratios)
        yield Row(name, kind, 1e3 * plain, ratio, ratios[quarter], ratios[-1 - quarter])


def timed(step: Callable[[], None]) -> float:
    """Return the CPU time of a step."""
    start = time.process_time()
    step()
    return time.process_time() - start


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=40, help="steps of each kind")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, 1 thread, CPU time, medians of {given.repeats}; quartiles in brackets")
    print(f"{'shape':8}{'tracker':16}{'plain step':>12}{'ratio':>8}")
    for shape in SHAPES:
        for row in measure(shape, given.repeats):
            quartiles = f"[{row.low:.3f}, {row.high:.3f}]"
            print(f"{row.shape:8}{row.kind:16}{row.plain_ms:9.1f} ms{row.ratio:8.3f} {quartiles}", flush=True)


if __name__ == "__main__":
    main()
