"""Which frames of a stack are the user's own code."""

from pathlib import Path
from types import FrameType

OTHERS = ("torch", "normgeom", "jaxtyping", "beartype")


def is_users(frame: FrameType) -> bool:
    """Return whether a frame runs neither torch nor normgeom, nor what checks types for them."""
    name = str(frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] not in OTHERS and not frame.f_code.co_filename.startswith("<")


def line_of(frame: FrameType, number: int | None = None) -> str:
    """Return the line of a frame as `my_norm.py:14`."""
    return f"{Path(frame.f_code.co_filename).name}:{number or frame.f_lineno}"


def users_line(frame: FrameType | None, *, within: str) -> str:
    """Return the innermost line of the user's code, an empty string if there is none.

    Args:
        frame: where to start, inwards of the user's code.
        within: the module of normgeom that calls the user's code: what called it in turn does not count.
    """
    while frame is not None and frame.f_globals.get("__name__") != within:
        if is_users(frame):
            return line_of(frame)
        frame = frame.f_back
    return ""
