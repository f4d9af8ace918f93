"""What every analysis is given, and the record that is kept of every file it wrote."""

import datetime
import json
import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from normgeom.report import write_json

PACKAGES = ("normgeom", "torch", "numpy", "sympy", "scipy", "scikit-learn", "matplotlib", "seaborn", "pandas")


@dataclass(frozen=True)
class Options:
    """How to run: where to write, the seed of every draw, the device, and whether to be short."""

    out: Path
    seed: int = 0
    device: str = "cpu"
    quick: bool = False

    def generator(self) -> torch.Generator:
        """Return a fresh generator with this seed."""
        return torch.Generator().manual_seed(self.seed)

    def stem(self, script: str) -> Path:
        """Return the path of a script's files without their ending."""
        return self.out / Path(script).stem


def run(name: str, write: Callable[[Options], Sequence[Path]], options: Options) -> list[Path]:
    """Run one analysis and enter its files in the manifest."""
    start = time.perf_counter()
    files = list(write(options))
    record(options, name, files, time.perf_counter() - start)
    return files


def record(options: Options, name: str, files: Sequence[Path], seconds: float) -> None:
    """Add to manifest.json what made each file; entries of other files stay."""
    path = options.out / "manifest.json"
    entries: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    made = {
        "script": f"analyses/{name}.py",
        "arguments": {"quick": options.quick},
        "seed": options.seed,
        "device": options.device,
        "versions": {"python": platform.python_version()} | {p: version(p) for p in PACKAGES},
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 2),
    }
    entries |= {file.relative_to(options.out).as_posix(): made for file in files}
    write_json(path, dict(sorted(entries.items())))


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
