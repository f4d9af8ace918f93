"""A user's model, data and family, from what is typed on a command line."""

import contextlib
import difflib
import importlib
import importlib.util
import inspect
import operator
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from normgeom import geometry
from normgeom.points import digit_images

FAMILIES: dict[str, tuple[Callable[..., Any], str]] = {
    "gaussian": (geometry.Gaussian, "dispersion"),
    "bernoulli": (geometry.Bernoulli, ""),
    "categorical": (geometry.Categorical, ""),
    "poisson": (geometry.Poisson, ""),
    "gamma": (geometry.Gamma, "shape"),
    "binomial": (geometry.Binomial, "trials"),
    "negative-binomial": (geometry.NegativeBinomial, "total"),
    "mean-variance": (geometry.MeanVarianceGaussian, ""),
}


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model with its parameters by name, and the family it carries if it has one."""

    model: Any
    params: dict[str, torch.Tensor]

    def to(self, dtype: torch.dtype | None, device: torch.device) -> "LoadedModel":
        """Return the model in another type (None keeps its own) on a device."""
        if isinstance(self.model, nn.Module):
            module = self.model.to(device=device, dtype=dtype)
            return LoadedModel(module, dict(module.named_parameters()))
        return LoadedModel(self.model, {n: p.to(device=device, dtype=dtype) for n, p in self.params.items()})

    def in_mode(self, mode: str) -> "LoadedModel":
        """Return the model with a module in `eval` or `train` mode; any other word leaves it as found."""
        if isinstance(self.model, nn.Module) and mode in ("eval", "train"):
            self.model.train(mode == "train")
        return self

    @property
    def dtype(self) -> torch.dtype:
        """The type of the first parameter."""
        return next(iter(self.params.values())).dtype


def load_model(target: str) -> LoadedModel:
    """Return the model that `MODULE:NAME` or `path/to/file.py:NAME` names.

    NAME is an `nn.Module`, a pair (NormalizedGLM or function, params), or a class or function that takes
    nothing and returns one of these.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the module does not import, or has no such name.
        TypeError: if what is found is not a model.
    """
    return as_model(load_object(target), target)


def load_object(target: str) -> Any:
    """Return the object that `MODULE:NAME` or `path/to/file.py:NAME` names; NAME may have dots."""
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise ValueError(f"a model is named MODULE:NAME or FILE.py:NAME; got {target!r}.")
    module = _module(place)
    try:
        return operator.attrgetter(name)(module)
    except AttributeError:
        raise ValueError(f"{place} has no {name!r}; {_alike(module, name)}.") from None


def _alike(module: types.ModuleType, name: str) -> str:
    """Say what a module defines itself, or which of the names that it only hands on are like this one."""
    named = {n: v for n, v in vars(module).items() if callable(v) and not n.startswith("_")}
    public = [n for n, v in named.items() if getattr(v, "__module__", None) == module.__name__]
    alike = difflib.get_close_matches(name, named, cutoff=0.75)
    if alike and not {*alike} & {*public}:
        return f"it has {', '.join(alike)}"
    return f"it defines {', '.join(public)}" if public else "it defines no function or class"


def as_model(found: Any, target: str) -> LoadedModel:
    """Return a model from an `nn.Module`, a pair (model, params), or what makes one."""
    if _is_maker(found):
        found = made(found, target)
    if isinstance(found, nn.Module):
        params: dict[str, torch.Tensor] = dict(found.named_parameters())
        if not params:
            raise ValueError(f"{target} is a {type(found).__name__} without parameters: it has no metric.")
        return LoadedModel(found, params)
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], Mapping) and callable(found[0]):
        return LoadedModel(found[0], dict(found[1]))
    hint = " A NormalizedGLM needs its parameters: give the pair." if hasattr(found, "init") else ""
    raise TypeError(
        f"{target} must be an nn.Module, a pair (NormalizedGLM or function, params), or take nothing and "
        f"return one; got {type(found).__name__}.{hint}"
    )


def load_family(text: str) -> Any:
    """Return the family of a name, `categorical`, or a name with its number, `gaussian:0.5`."""
    name, _, number = text.partition(":")
    known = ", ".join(n + (f":{setting}" if setting else "") for n, (_, setting) in FAMILIES.items())
    if name not in FAMILIES:
        raise ValueError(f"--family must be one of {known}; got {text!r}.")
    make, setting = FAMILIES[name]
    if bool(number) > bool(setting) or (setting in ("trials", "total") and not number):
        raise ValueError(f"--family must be one of {known}; got {text!r}.")
    try:
        value = int(number) if setting == "trials" else float(number) if number else None
    except ValueError:
        raise ValueError(f"the {setting} of {name} must be a number; got {number!r}.") from None
    return make() if value is None else make(value)


def family_for(loaded: LoadedModel, text: str) -> Any:
    """Return the family asked for, or None for a model that has its own."""
    if not text and getattr(loaded.model, "family", None) is None:
        raise ValueError("--family must be given for this model, for example --family categorical.")
    return load_family(text) if text else None


def load_data(source: str, *, cases: int | None = None) -> Any:
    """Return the first cases of `digits`, or of the tensors in an .npy, .npz or .pt file.

    An .npz gives its array `data` if it has one, else all its arrays as the inputs of the model, in order.
    """
    if cases is not None and cases < 1:
        raise ValueError(f"--cases must be at least 1; got {cases}.")
    found = digit_images()[0] if source == "digits" else _from_file(Path(source))
    parts = found if isinstance(found, tuple) else (found,)
    for part in parts:
        if not isinstance(part, torch.Tensor) or part.ndim == 0:
            raise ValueError(f"{source} must hold arrays with the cases first; got {type(part).__name__}.")
    parts = tuple(part[:cases] for part in parts)
    return parts if isinstance(found, tuple) else parts[0]


def cast(data: Any, dtype: torch.dtype, device: torch.device) -> Any:
    """Return data on a device, with floating-point tensors in this type and integers as they are."""
    if isinstance(data, tuple):
        return tuple(cast(part, dtype, device) for part in data)
    return data.to(device=device, dtype=dtype if data.is_floating_point() else None)


def try_call(loaded: LoadedModel, data: Any) -> None:
    """Raise a ValueError that says in one line why a model cannot be called on this data."""
    model, inputs = loaded.model, data if isinstance(data, tuple) else (data,)
    buffers = {n: b.clone() for n, b in model.named_buffers()} if isinstance(model, nn.Module) else {}
    try:
        with torch.no_grad(), torch.random.fork_rng():
            if isinstance(model, nn.Module):
                torch.func.functional_call(model, buffers, inputs)
            else:
                model(loaded.params, data)
    except Exception as why:
        shapes = " and ".join(f"{tuple(part.shape)} {part.dtype}".replace("torch.", "") for part in inputs)
        raise ValueError(f"the model cannot be called on data {shapes}: {_one_line(why)}") from why


def _is_maker(found: Any) -> bool:
    return isinstance(found, type | types.FunctionType | types.MethodType)


def made(maker: Any, target: str) -> Any:
    """Return what a class or function without arguments makes, or raise an error that says why not."""
    try:
        needed = [
            p.name
            for p in inspect.signature(maker).parameters.values()
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
    except ValueError:
        needed = []
    if needed:
        raise TypeError(
            f"{target} must take no arguments, but needs {', '.join(needed)}. Write a function that takes "
            "none and returns the model, or for a function of (params, data) the pair (function, params)."
        )
    try:
        return maker()
    except Exception as why:
        raise ValueError(f"calling {target}() failed: {_one_line(why)}") from why


def _module(place: str) -> types.ModuleType:
    is_file = place.endswith(".py") or os.sep in place
    if is_file and not Path(place).is_file():
        raise FileNotFoundError(f"no file {place}.")
    folder = str(Path(place).resolve().parent) if is_file else str(Path.cwd())
    try:
        with _importable(folder):
            return _from_path(Path(place)) if is_file else importlib.import_module(place)
    except Exception as why:
        raise ValueError(f"importing {place} failed: {_one_line(why)}") from why


def _from_path(path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses and pickle look a class's module up by its name.
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _importable(folder: str) -> Iterator[None]:
    """Have a folder first on the import path for a while, as `python FILE` would."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


def _from_file(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}; data must be digits, or an .npy, .npz or .pt file.")
    readers = {".npy": _read_numpy, ".npz": _read_numpy, ".pt": _read_torch, ".pth": _read_torch}
    if path.suffix not in readers:
        raise ValueError(f"data must be digits, or an .npy, .npz or .pt file; got {path}.")
    try:
        return readers[path.suffix](path)
    except Exception as why:
        raise ValueError(f"{path} cannot be read: {_one_line(why)}") from why


def _read_numpy(path: Path) -> Any:
    found = np.load(path, allow_pickle=False)
    if isinstance(found, np.ndarray):
        return torch.from_numpy(found)
    with found:
        arrays = tuple(torch.from_numpy(found[n]) for n in (["data"] if "data" in found else found.files))
    return arrays[0] if len(arrays) == 1 else arrays


def _read_torch(path: Path) -> Any:
    found = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(found, Mapping):
        found = found["data"] if "data" in found else tuple(found.values())
    return tuple(found) if isinstance(found, list) else found


def _one_line(why: BaseException) -> str:
    lines = str(why).strip().splitlines()
    return f"{type(why).__name__}: {lines[0]}" if lines else type(why).__name__
