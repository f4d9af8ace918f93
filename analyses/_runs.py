"""The runs of an analysis, one by one: how far they are, and what an interrupted analysis had finished."""

import hashlib
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch

from analyses._run import Options
from normgeom.report import atomic

R = TypeVar("R")
T = TypeVar("T")
ROOT, PARTS = Path(__file__).parents[1], ("analyses", "normgeom")


def with_progress(runs: Sequence[R], name: str) -> Iterator[R]:
    """Yield the runs; a line about every twenty seconds says how far it is."""
    start = last = time.monotonic()
    for k, run in enumerate(runs):
        yield run
        now = time.monotonic()
        if now - last > 20 and k + 1 < len(runs):
            left = (now - start) / (k + 1) * (len(runs) - k - 1)
            print(f"  {name}: {k + 1} of {len(runs)} runs, about {left:.0f} s left", file=sys.stderr)
            last = now


def finished(options: Options, name: str, runs: Sequence[R], make: Callable[[R], T]) -> Iterator[T]:
    """Yield what `make` gives for each run, from the disk where an interrupted analysis had made it.

    What is made is kept in `options.kept` until the analysis is written. It serves the same runs, with the
    same options, of the same code alone.
    """
    if options.kept is None:
        yield from map(make, with_progress(runs, name))
        return
    paths = [options.kept / _key(options, runs) / f"{k}.pickle" for k in range(len(runs))]
    there = {path for path in paths if path.exists()}
    if there:
        print(f"  {name}: {len(there)} of {len(runs)} runs are there from before", file=sys.stderr)
    left = with_progress([run for run, path in zip(runs, paths, strict=True) if path not in there], name)
    for path in paths:
        if path not in there:
            with atomic(path, "wb") as file:
                pickle.dump(make(next(left)), file)
        yield pickle.loads(path.read_bytes())


def _key(options: Options, runs: Sequence[R]) -> str:
    """Name the runs, the options that they were made with, torch and the code."""
    what = (options.seed, options.device, options.quick, options.full, list(runs), torch.__version__, _code())
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]


@cache
def _code() -> str:
    """Return a hash of what the project has that could change a result: Python, C and data."""
    kinds = ("*.py", "*.c", "*.gz")
    files = sorted(path for part in PARTS for kind in kinds for path in (ROOT / part).rglob(kind))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
