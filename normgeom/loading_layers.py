"""A user's layer, from what is typed on a command line."""

import inspect
import types
from typing import Any

from normgeom.loading import load_object


def load_layer(target: str, *, units: int | None = None) -> Any:
    """Return the layer that `MODULE:NAME` or `path/to/file.py:NAME` names.

    NAME is a norm, an `nn.Module`, a function of (weight, data), or a class of one: a class that needs one
    argument, as `nn.LayerNorm` does, gets the number of units. A function that takes nothing makes the layer.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the module does not import, has no such name, or the class needs what is not known.
    """
    found = load_object(target)
    if isinstance(found, types.FunctionType) and not inspect.signature(found).parameters:
        return found()
    if not isinstance(found, type):
        return found
    needed = [
        p.name
        for p in inspect.signature(found).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if len(needed) > 1 or (needed and units is None):
        hint = "Give --units." if len(needed) == 1 else "Write a name for the object: my_norm = MyNorm(...)."
        raise ValueError(f"{target} needs {', '.join(needed)} to be made. {hint}")
    return found(units) if needed else found()
