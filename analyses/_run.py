"""What every analysis is given, and the record that is kept of every file it wrote."""

import dataclasses
import datetime
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from normgeom.report import write_json

OPTIONAL = ("transformers",)
PACKAGES = ("normgeom", "torch", "numpy", "sympy", "scipy", "scikit-learn", "matplotlib", "seaborn", "pandas")


@dataclass(frozen=True)
class Options:
    """How to run: where to write, the seed of every draw, the device, and whether to be short or long.

    `kept` is where single runs are kept until the analysis is written, if they are.
    """

    out: Path
    seed: int = 0
    device: str = "cpu"
    quick: bool = False
    full: bool = False
    kept: Path | None = None

    def generator(self) -> torch.Generator:
        """Return a fresh generator with this seed."""
        return torch.Generator().manual_seed(self.seed)

    def stem(self, script: str) -> Path:
        """Return the path of a script's files without their ending."""
        return self.out / Path(script).stem


def run(name: str, write: Callable[[Options], Sequence[Path]], options: Options) -> list[Path]:
    """Run one analysis in a folder of its own, then move all its files into place and into the manifest.

    Single runs that are finished outlive an interruption, for the next time.
    """
    start = time.perf_counter()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.out, prefix=f".{name}.") as folder:
        own = dataclasses.replace(options, out=Path(folder), kept=options.out / f".{name}-runs")
        made = [Path(file) for file in write(own)]
        files = [options.out / file.name for file in made]
        for source, target in zip(made, files, strict=True):
            os.replace(source, target)
    record(options, name, files, time.perf_counter() - start)
    shutil.rmtree(options.out / f".{name}-runs", ignore_errors=True)
    return files


def manifest(options: Options) -> dict[str, Any]:
    """Return what the manifest says so far.

    Raises:
        ValueError: if the file is there and cannot be read.
    """
    path = options.out / "manifest.json"
    try:
        return dict(json.loads(path.read_text())) if path.exists() else {}
    except ValueError as why:
        raise ValueError(
            f"{path} must be JSON; it is not ({why}). Remove it, or choose another --out."
        ) from why


def record(options: Options, name: str, files: Sequence[Path], seconds: float) -> None:
    """Add to manifest.json what made each file; entries of other files stay."""
    entries = manifest(options)
    made = {
        "script": f"analyses/{name}.py",
        "arguments": {"quick": options.quick, "full": options.full},
        "seed": options.seed,
        "device": options.device,
        "versions": {"python": platform.python_version()} | _versions(),
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 2),
    }
    entries |= {file.relative_to(options.out).as_posix(): made for file in files}
    write_json(options.out / "manifest.json", dict(sorted(entries.items())))


def _versions() -> dict[str, str]:
    """The versions of what is used, and of what may be, where it is installed."""
    return {p: version(p) for p in (*PACKAGES, *(p for p in OPTIONAL if importlib.util.find_spec(p)))}


def commit() -> str:
    """Return the commit of the checkout, `+changes` if files differ from it, `unknown` outside of git."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", "../normgeom")
        return git("rev-parse", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
