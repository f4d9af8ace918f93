"""What a scan costs: `python -m analyses.bench_scan` (about two minutes; `--help` for options).

Models of growing depth: passes and processor time against the number of blocks, with a straight line through
them. A pass is a forward pass of the model in float64 on the batch; a backward pass counts as two. A block is
a tensor of parameters (each of query, key and value where they are stacked); its rows, columns, heads and
filters are decided by the same passes. The line of the time is in forward passes of the same model.
`--gpt2` scans GPT-2 small (124 M parameters) from transformers, with random weights and 16 tokens, and says
how much memory the process took.
"""

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

import normgeom as ng

DEPTHS = {"GPT, pre-LN": (1, 2, 4, 8, 12), "MLP, layer norm, relu": (2, 4, 8, 16, 32)}


@dataclass(frozen=True)
class Row:
    """One scan."""

    model: str
    depth: int
    blocks: int
    nullity: int
    forwards: int
    backwards: int
    seconds: float
    forward_seconds: float

    @property
    def passes(self) -> int:
        """Forward passes, a backward pass counted as two."""
        return self.forwards + 2 * self.backwards


class Layer(nn.Module):
    """A pre-LN block of attention and a feed-forward part, with biases."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.num_heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.f1, self.f2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the residual stream after the block."""
        n = self.n1(x)
        q, k, v = (f(n).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        return x + self.f2(nn.functional.gelu(self.f1(self.n2(x))))


def gpt(depth: int, width: int = 64, tokens: int = 16) -> tuple[nn.Module, torch.Tensor]:
    """Return a language model of this depth, and a batch."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [Layer(width, 4) for _ in range(depth)]
        ends = nn.LayerNorm(width), nn.Linear(width, 100, bias=False)
        model = nn.Sequential(nn.Embedding(100, width), *layers, *ends)
        return model, torch.randint(100, (4, tokens))


def mlp(depth: int, width: int = 64) -> tuple[nn.Module, torch.Tensor]:
    """Return layers with layer norm and relu, and a batch."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [
            nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU()) for _ in range(depth)
        ]
        return nn.Sequential(*layers, nn.Linear(width, 10)), torch.randn(32, width)


MAKERS: dict[str, Callable[[int], tuple[nn.Module, torch.Tensor]]] = dict(
    zip(DEPTHS, (gpt, mlp), strict=True)
)


def measure(
    name: str, depth: int, model: nn.Module, batch: Any, select: Callable[[Any], Any] | None = None
) -> Row:
    """Scan a model, and time its forward pass alone in float64."""
    start = time.process_time()
    found = ng.scan(model, batch, select=select)
    seconds = time.process_time() - start
    floating = isinstance(batch, torch.Tensor) and batch.is_floating_point()
    forward = forward_time(model.double(), batch.double() if floating else batch)
    return Row(
        name, depth, len(found.blocks), found.nullity, found.forwards, found.backwards, seconds, forward
    )


def forward_time(model: nn.Module, batch: Any, repeats: int = 5) -> float:
    """Return the median processor time of a forward pass."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        with torch.no_grad():
            model(**batch) if isinstance(batch, dict) else model(batch)
        times.append(time.process_time() - start)
    return statistics.median(times)


def line(rows: Sequence[Row], value: Callable[[Row], float]) -> tuple[float, float, float]:
    """Return slope, intercept and R² of a straight line through a value against the blocks."""
    x, y = np.array([row.blocks for row in rows]), np.array([value(row) for row in rows])
    slope, intercept = np.polyfit(x, y, 1)
    left = y - slope * x - intercept
    return float(slope), float(intercept), 1 - float(left @ left) / float(((y - y.mean()) ** 2).sum())


# A pass through a deeper model takes longer itself, so that time is measured in forward passes.
FITTED: dict[str, Callable[[Row], float]] = {
    "passes": lambda row: row.passes,
    "seconds over those of a forward pass": lambda row: row.seconds / row.forward_seconds,
}


def show(row: Row) -> None:
    """Print a row."""
    print(
        f"{row.model:24}{row.depth:6}{row.blocks:8}{row.nullity:9}{row.forwards:10}{row.backwards:11}"
        f"{row.passes / row.blocks:14.2f}{row.seconds:9.2f}{1e3 * row.forward_seconds:12.2f}"
        f"{row.seconds / row.forward_seconds / row.passes:12.1f}",
        flush=True,
    )


def gpt2_small() -> None:
    """Scan GPT-2 small and print the row and the largest memory of the process."""
    import transformers

    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()
    batch = {"input_ids": torch.randint(50257, (1, 16)), "use_cache": False}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    show(measure("GPT-2 small", 12, model, batch, lambda out: out.logits))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    unit = 2**30 if sys.platform == "darwin" else 2**20
    print(
        f"largest memory of the process: {after / unit:.2f} GB, {before / unit:.2f} GB of it before the scan"
    )


def main() -> None:
    """Print the table and the lines."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--gpt2", action="store_true", help="GPT-2 small instead (minutes, about 5 GB)")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(f"torch {torch.__version__}, {given.threads} threads, processor time")
    print(
        f"{'model':24}{'depth':>6}{'blocks':>8}{'nullity':>9}{'forwards':>10}{'backwards':>11}"
        f"{'passes/block':>14}{'seconds':>9}{'forward ms':>12}{'per pass':>12}"
    )
    if given.gpt2:
        gpt2_small()
        return
    for name, depths in DEPTHS.items():
        rows = []
        for depth in depths:
            rows.append(measure(name, depth, *MAKERS[name](depth)))
            show(rows[-1])
        for what, value in FITTED.items():
            slope, intercept, fit = line(rows, value)
            print(f"  {what} = {slope:.2f} blocks {intercept:+.1f}, R² = {fit:.4f}")


if __name__ == "__main__":
    main()
