"""How fast the Fisher metric is: `python -m analyses.bench_fisher` (about a minute; `--help` for options).

Medians of interleaved runs in one process. Every row names its case, the method, its time, the time over that
of the case's first reference, and the error against it. The machine's own ceilings (matrix products,
filling fresh and used memory) are measured in the same run, and the load average at its start and end is
printed. Other packages (`bench_peers`) are measured beside if they are installed.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Thread
from typing import Any

import torch

from analyses import bench_peers
from analyses.bench_fisher_cases import (
    FAMILY,
    Case,
    eigenvalues,
    full_linear,
    full_network,
    layer_norm_net,
    module_params,
    per_case_linear,
    plain_fisher,
    product,
    random,
    recurrent,
)
from normgeom.geometry.fisher import fisher


@dataclass
class Row:
    """One line of the table."""

    case: str
    method: str
    seconds: float
    ratio: float
    error: float
    ceiling: float
    """The share of the machine's ceiling reached (1 = as fast as the bare product or fill)."""
    peak_mb: float = float("nan")
    """By how much the method raises the peak memory of a process of its own, if asked for."""


def correctness() -> Iterator[Row]:
    """Case g: float64 against the reference, and logits of size 1000 in float32."""
    net, x = layer_norm_net(16, 12, 5).double(), random(64, 16, seed=9, dtype=torch.float64)
    params = module_params(net)
    value = fisher(net, params, x, family=FAMILY, order="tensor").matrix
    yield Row("g. float64", "normgeom", 0, 0, relative(value, plain_fisher(net, params, x)), 0)
    large = {k: 1000 * v for k, v in params.items()}
    wanted = fisher(net, large, x, family=FAMILY).matrix
    single = fisher(net.float(), {k: v.float() for k, v in large.items()}, x.float(), family=FAMILY).matrix
    yield Row("g. logits of size 1000, float32", "normgeom", 0, 0, relative(single.double(), wanted), 0)


def relative(value: torch.Tensor, wanted: torch.Tensor) -> float:
    """Return the relative error, in the largest entry."""
    return float((value - wanted).abs().max() / wanted.abs().max())


def ceilings() -> dict[str, float]:
    """Return the gemm rate (flop/s) and the rates of filling fresh and used memory (bytes/s)."""
    a = random(1500, 1500)
    used = torch.zeros(2**26)
    gemm = timed(lambda: a @ a, 5)
    return {
        "gemm_flops": 2 * 1500**3 / gemm,
        "fresh_fill_bytes": used.nbytes / timed(lambda: torch.full((2**26,), 1.0), 5),
        "used_fill_bytes": used.nbytes / timed(lambda: used.fill_(1.0), 5),
    }


def timed(run: Callable[[], Any], repeats: int) -> float:
    """Return the median time of a call."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure(case: Case, repeats: int, machine: dict[str, float]) -> list[Row]:
    """Run the methods of a case in turn, several times, and compare each with the first."""
    wanted, errors = None, {}
    times: dict[str, list[float]] = {name: [] for name in case.runs}
    for name, run in case.runs.items():
        start = time.perf_counter()
        value = run()
        first_time = time.perf_counter() - start
        wanted = value.clone() if wanted is None else wanted
        comparable = value.shape == wanted.shape and "neuron" not in name and not name.endswith("out=")
        errors[name] = relative(value, wanted) if comparable else float("nan")
        if case.once and not any(times.values()):
            times[name].append(first_time)
        del value
    for _ in range(repeats):
        for name, run in list(case.runs.items())[int(case.once) :]:
            times[name].append(timed(run, 1))
    medians = {name: statistics.median(t) for name, t in times.items()}
    first = next(iter(medians.values()))
    rows = []
    for name, seconds in medians.items():
        fill = machine["used_fill_bytes" if name.endswith("out=") else "fresh_fill_bytes"]
        least = case.flops / machine["gemm_flops"] + case.fill / fill
        rows.append(Row(case.name, name, seconds, seconds / first, errors[name], least / seconds))
    return rows


def growth() -> Iterator[Row]:
    """How the cost of the full Fisher grows with cases, parameters and outputs."""
    for cases, width, outputs in [(512, 32, 10), (1024, 32, 10), (512, 64, 10), (512, 32, 20)]:
        net, x = layer_norm_net(64, width, outputs), random(cases, 64)
        params = module_params(net)
        run = lambda net=net, params=params, x=x: fisher(net, params, x, family=FAMILY)  # noqa: E731
        run()
        size = sum(p.numel() for p in params.values())
        name = f"growth: {cases} cases, {size} parameters, {outputs} outputs"
        yield Row(name, "normgeom", timed(run, 3), float("nan"), float("nan"), float("nan"))


def peak_of(letter: str, method: str, threads: int) -> float:
    """Return by how many MB a method raises the memory of a process of its own, sampled every millisecond."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_peak, letter, method, threads).result()


def _peak(letter: str, method: str, threads: int) -> float:
    """Run one method of a case once, in this process, and watch its memory from another thread."""
    torch.set_num_threads(threads)
    run, done = CASES[letter]().runs[method], Event()
    held = [_resident()]

    def watch() -> None:
        while not done.wait(1e-3):
            held.append(_resident())

    watcher = Thread(target=watch)
    watcher.start()
    value = run()
    done.set()
    watcher.join()
    del value
    return (max(held) - held[0]) / 2**20


def _resident() -> float:
    """The bytes of memory that this process holds; NaN where the system does not say."""
    path = Path("/proc/self/statm")
    return int(path.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if path.exists() else float("nan")


CASES: dict[str, Callable[[], Case]] = {
    "a": lambda: full_linear(1000),
    "b": lambda: per_case_linear(256),
    "c": lambda: full_network(512),
    "d": product,
    "e": eigenvalues,
    "f": recurrent,
}


def compute(
    names: str = "abcdefg", repeats: int = 5, threads: int = 2, *, slow: bool = False, memory: bool = False
) -> dict[str, Any]:
    """Return the machine's ceilings and the rows."""
    torch.set_num_threads(threads)
    machine = ceilings() | {"load_before": os.getloadavg()[0]}
    rows: list[Row] = []
    for name, build in CASES.items():
        if name in names:
            case = eigenvalues(slow) if name == "e" else build()
            found = measure(case, repeats, machine)
            for row in found if memory else ():
                row.peak_mb = peak_of(name, row.method, threads)
            rows += found
    if "g" in names:
        rows += [*correctness(), *growth()]
    return {
        "machine": machine | {"threads": threads, "load_after": os.getloadavg()[0]},
        "skipped": bench_peers.missing(),
        "rows": [asdict(r) for r in rows],
    }


def table(result: dict[str, Any]) -> str:
    """Return the rows as text."""
    lines = [json.dumps(result["machine"])]
    if result["skipped"]:
        lines.append(f"not installed, skipped: {', '.join(result['skipped'])}")
    case = ""
    for row in result["rows"]:
        if row["case"] != case:
            case = row["case"]
            head = f"  {'method':38}{'ms':>10}{'ratio':>8}{'of ceiling':>12}{'error':>10}{'peak MB':>9}"
            lines += ["", case, head]
        lines.append(
            f"  {row['method']:38}{1e3 * row['seconds']:10.2f}{row['ratio']:8.3f}{row['ceiling']:12.2f}"
            f"{row['error']:10.1e}{row['peak_mb']:9.0f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, print the rows as JSON lines, then the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", default="abcdefg", help="letters of the cases to run")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slow", action="store_true", help="also run eigsh as the reference of case e")
    parser.add_argument("--memory", action="store_true", help="also run each method in a process of its own")
    given = parser.parse_args()
    result = compute(given.cases, given.repeats, given.threads, slow=given.slow, memory=given.memory)
    for row in result["rows"]:
        sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.write(table(result) + "\n")


if __name__ == "__main__":
    main()
