"""Build the C kernel of the cells with the system's compiler at first use, and keep it in the user's cache.

The library lies in `$XDG_CACHE_HOME/normgeom` (default `~/.cache/normgeom`), named after a hash of its
source, the compiler, its flags and the processor. `NORMGEOM_FUSED=0` in the environment switches it off.
"""

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import torch

_LOG = logging.getLogger(__name__)
_SOURCE = Path(__file__).with_name("cells.c")
_REALS = {torch.float32: "float", torch.float64: "double"}
_FLAGS = ("-O3", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd", "-shared", "-fPIC")
# Not every compiler knows wide vectors, or the processor that it runs on.
_TARGETS = (("-march=native", "-mprefer-vector-width=512"), ("-march=native",), ())


def library(dtype: torch.dtype) -> ctypes.CDLL | None:
    """Return the kernel for a type, built if need be, or None where there is none."""
    if os.environ.get("NORMGEOM_FUSED", "1") == "0" or dtype not in _REALS:
        return None
    return _library(_REALS[dtype], os.environ.get("XDG_CACHE_HOME", ""))


@functools.cache
def _library(real: str, caches: str) -> ctypes.CDLL | None:
    """Load a kernel, once a process; say in one line why there is none."""
    try:
        folder = Path(caches or Path.home() / ".cache") / "normgeom"
        kernel = ctypes.CDLL(str(_built(real, folder)))
    except (OSError, RuntimeError, subprocess.SubprocessError) as why:
        reason = getattr(why, "stderr", None) or why
        _LOG.warning("no fused cells (%s), the plain ones are used: %s", real, str(reason).strip()[:300])
        return None
    for cell in ("rnn", "lstm", "gru"):
        for direction in ("forward", "backward"):
            function = getattr(kernel, f"{cell}_{direction}")
            function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_int64), None
    return kernel


def _built(real: str, folder: Path) -> Path:
    """Return the path of the library, compiled unless it is there."""
    compiler = _compiler()
    version = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=True).stdout
    key = "\n".join([_SOURCE.read_text(), *compiler, version, *_FLAGS, *_TARGETS[0], _processor()])
    path = folder / f"cells-{real}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.so"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _compile(compiler, real, path)
        _LOG.info("built the fused cells (%s): %s", real, path)
    return path


def _compile(compiler: list[str], real: str, path: Path) -> None:
    """Compile to a file of this process's own, then move it into place: others see all of it or nothing."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        out = Path(folder) / path.name
        for target in _TARGETS:
            command = [*compiler, *_FLAGS, *target, f"-DREAL={real}", str(_SOURCE), "-o", str(out), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
            if done.returncode == 0:
                break
        done.check_returncode()
        os.replace(out, path)


def _compiler() -> list[str]:
    """Return the command of a C compiler: `$CC`, the one Python was built with, cc, gcc or clang."""
    candidates = [os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang"]
    for command in candidates:
        if command and shutil.which(command.split()[0]):
            return command.split()
    raise OSError("no C compiler was found; install one, or set CC to its name")


def _processor() -> str:
    """What the processor is and can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    kinds = [line for line in lines if line.startswith(("flags", "Features", "model name"))]
    return "\n".join([platform.machine(), platform.processor(), *kinds[:2]])
