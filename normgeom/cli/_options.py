"""What several commands ask for: types, devices, names from a list, a format."""

from collections.abc import Mapping
from enum import StrEnum

import torch

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class Format(StrEnum):
    """How a table is printed."""

    TEXT = "text"
    MD = "md"
    LATEX = "latex"
    JSON = "json"


def pick(option: str, text: str, known: Mapping[str, object]) -> list[str]:
    """Split a list of names and raise an error for an unknown one."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or any(name not in known for name in names):
        raise ValueError(f"{option} must be among {', '.join(known)}; got {text!r}.")
    return names


def usable_device(name: str) -> torch.device:
    """Return a device that this torch can use."""
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as why:
        raise ValueError(
            f"--device must be one this torch can use; got {name!r} ({str(why).splitlines()[0]})."
        ) from why
    return device
