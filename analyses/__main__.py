"""Run all analyses, or those named: `python -m analyses [NAME ...] [--quick | --full] [--out DIR]`."""

import argparse
import importlib
import signal
import sys
import time
import traceback
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from analyses._run import Options, manifest, run

ALL = (
    "table1",
    "table1_digits",
    "fine_print",
    "new_variant",
    "zoo",
    "fisher_blocks",
    "curvature_vs_norm",
    "gain_metric",
    "eq13_gap",
    "kl_vs_quadratic",
    "eigen_spectrum",
    "effective_lr_lstm",
    "scale_lr_equivalence",
    "conservation",
    "symmetry_conservation",
    "guessers",
    "symmetry_atlas",
    "angular_update",
    "placement_ablation",
    "gain_init",
    "hidden_state_stability",
)


def main(arguments: list[str] | None = None) -> int:
    """Run analyses one after another; one that fails is named at the end, and the exit code is 1."""
    parser = argparse.ArgumentParser(prog="python -m analyses", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"from: {', '.join(ALL)}; all if none is given"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parents[1] / "reports", help="where to write"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of every draw")
    parser.add_argument("--device", default="cpu", help="device of numeric work, such as cpu or cuda")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="fewer points, for a test of the scripts")
    length.add_argument(
        "--full", action="store_true", help="longer training and more seeds, where there is any"
    )
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.names if name not in ALL]:
        parser.error(f"no analysis {', '.join(unknown)}; there are {', '.join(ALL)}")
    try:
        torch.empty(1, device=given.device)
    except (RuntimeError, AssertionError, NotImplementedError) as why:
        parser.error(f"--device {given.device} cannot be used: {str(why).splitlines()[0]}")
    torch.set_num_threads(1)  # the arrays are small: a second thread only waits
    options = Options(given.out, given.seed, given.device, given.quick, given.full)
    try:
        given.out.mkdir(parents=True, exist_ok=True)
        manifest(options)
    except (OSError, ValueError) as why:
        parser.error(f"--out must be a folder that can be written: {why}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return _run_all(given.names or list(ALL), options)
    except KeyboardInterrupt:
        Console(stderr=True).print(
            f"interrupted: what was finished is in {given.out}, nothing else was touched"
        )
        return 130


def _run_all(names: list[str], options: Options) -> int:
    """Run with a progress display, go on past a failure, and report."""
    console, failed = Console(), []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("analyses", total=len(names))
        for name in names:
            progress.update(task, description=name)
            start = time.perf_counter()
            try:
                files = run(name, importlib.import_module(f"analyses.{name}").write, options)
                done = ", ".join(f.name for f in files)
                console.print(
                    f"[green]✓[/] {name} ({time.perf_counter() - start:.1f} s): {done}", highlight=False
                )
            except Exception:
                failed.append(name)
                console.print(f"[red]✗[/] {name}:")
                console.print(traceback.format_exc(), highlight=False, markup=False)
            progress.advance(task)
    if failed:
        Console(stderr=True).print(f"[bold red]failed:[/] {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
