"""One face for everything that has a Fisher matrix: a GLM, an `nn.Module`, a function of (params, data).

An `Evaluator` maps (params, inputs) to the natural parameters (cases, ..., outputs) and leaves what it calls
as found: parameters and buffers are copies, attributes that hooks set are put back, and the random state is
restored.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from normgeom.geometry.arguments import (
    check_family,
    check_model,
    check_params_dict,
    check_shapes_of,
    check_values,
)
from normgeom.geometry.glm import NAMES, NormalizedGLM

Params = dict[str, torch.Tensor]
_RETURNS_A_TUPLE = (nn.RNNBase, nn.MultiheadAttention)


@dataclass(frozen=True, eq=False)
class Evaluator:
    """A pure function of (params, inputs), with the parameters that are differentiated and the family."""

    function: Callable[[Params, Any], Any]
    params: Params
    family: Any
    module: nn.Module | None = None

    def __call__(self, params: Params, inputs: Any) -> torch.Tensor:
        """Return the natural parameters, of shape (cases, ..., outputs)."""
        return _checked(self.function(params, inputs), inputs)

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(value.numel() for value in self.params.values())

    @property
    def dtype(self) -> torch.dtype:
        """The type of the parameters."""
        return next(iter(self.params.values())).dtype

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(iter(self.params.values())).device

    @contextlib.contextmanager
    def untouched(self) -> Iterator[None]:
        """Leave the attributes of the module and the random state as found."""
        modules = list(self.module.modules()) if self.module is not None else []
        found = [
            {k: v for k, v in vars(m).items() if isinstance(v, torch.Tensor) or k.startswith("_flat_weight")}
            for m in modules
        ]
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            try:
                yield
            finally:
                for module, attributes in zip(modules, found, strict=True):
                    vars(module).update(attributes)


def evaluator(
    model: Any, params: Mapping[str, torch.Tensor], *, family: Any = None, blocks: Sequence[str] | None = None
) -> Evaluator:
    """Return the evaluator of a GLM, a module or a function.

    `blocks` names the parameters that are differentiated (default all); the others keep the values given.
    Parameters of a module with `requires_grad=False` are left out.

    Raises:
        TypeError: if the model is none of these, or a parameter is not a real floating-point tensor.
        ValueError: if the family is missing, or a name is unknown, tied or frozen.
    """
    family = family if family is not None else getattr(model, "family", None)
    check_model(model)
    check_family(family)
    check_params_dict(params)
    check_values(params)
    values = {name: value.detach().clone() for name, value in params.items()}
    if isinstance(model, NormalizedGLM):
        values = {name: values[name] for name in NAMES if name in values} | values
    chosen = _chosen(model, values, blocks)
    held = {name: value for name, value in values.items() if name not in chosen}
    if isinstance(model, nn.Module):
        function = _module_function(model, held)
    else:
        function = lambda free, inputs: model({**values, **held, **free}, inputs)  # noqa: E731
    return Evaluator(
        function,
        {name: values[name] for name in chosen},
        family,
        model if isinstance(model, nn.Module) else None,
    )


def cases(inputs: Any) -> int:
    """Return the number of cases: the length of the first axis of the first tensor."""
    first = inputs[0] if isinstance(inputs, tuple) else inputs
    return int(first.shape[0])


def take(inputs: Any, index: Any) -> Any:
    """Return some cases of the inputs (a tensor, or a tuple of tensors with the cases first)."""
    if isinstance(inputs, tuple):
        return tuple(take(part, index) for part in inputs)
    return inputs[index]


def check_call(model: Evaluator, inputs: Any, *, given_cases: int | None = None) -> None:
    """Raise a ValueError, with what was given, unless the model can be evaluated on the inputs.

    `given_cases` is how many cases the caller gave, if the inputs are some of them.
    """
    try:
        with torch.no_grad(), model.untouched():
            eta = model(model.params, take(inputs, slice(0, None)))
    except (RuntimeError, TypeError, IndexError, AttributeError) as why:
        if isinstance(why, NotImplementedError) or str(why).startswith("the model"):
            raise
        parts = inputs if isinstance(inputs, tuple) else (inputs,)
        given_cases = cases(inputs) if given_cases is None else given_cases
        given = ", ".join(f"{(given_cases, *part.shape[1:])} {part.dtype}" for part in parts)
        raise ValueError(
            f"the model must take the data as it is given: {given}, with parameters of {model.dtype}; "
            f"it raised: {str(why).splitlines()[0] if str(why) else type(why).__name__}"
        ) from why
    model.family.check(eta)


def refuse_cut_graph(model: Evaluator, inputs: Any) -> None:
    """Raise a ValueError if outputs move with the parameters, but have no derivative in them."""
    leaves = {name: value.detach().requires_grad_() for name, value in model.params.items()}
    with torch.enable_grad():
        eta = model(leaves, inputs)
    if eta.requires_grad:
        return
    moved = {name: value * 1.001 + 1e-3 for name, value in model.params.items()}
    with torch.no_grad():
        if not torch.equal(model(moved, inputs), eta):
            raise ValueError(
                "the model's outputs must have a derivative in its parameters; they move with them, but "
                "autograd does not see it. Is the model called under torch.no_grad(), or detach()ed?"
            )


def _module_function(module: nn.Module, held: Params) -> Callable[[Params, Any], Any]:
    buffers = {k: v.detach().clone() for k, v in module.named_buffers()}
    rest = {k: v.detach() for k, v in module.named_parameters()} | held

    def function(free: Params, inputs: Any) -> Any:
        state = {**rest, **free, **{k: v.clone() for k, v in buffers.items()}}
        out = torch.func.functional_call(module, state, inputs if isinstance(inputs, tuple) else (inputs,))
        return out[0] if isinstance(module, _RETURNS_A_TUPLE) else out

    return function


def _chosen(model: Any, values: Params, blocks: Sequence[str] | None) -> list[str]:
    """The names to differentiate, in the order of `params`."""
    names = list(values)
    if isinstance(model, nn.Module):
        own = dict(model.named_parameters())
        every = dict(model.named_parameters(remove_duplicate=False))
        for name in names:
            if name not in own:
                raise ValueError(
                    f"{name!r} is tied to another parameter; give it once, as named_parameters() does."
                    if name in every
                    else f"the module has no parameter {name!r}; it has {', '.join(own)}."
                )
        check_shapes_of(model, values)
        names = [name for name in names if own[name].requires_grad]
    if isinstance(blocks, str):
        raise TypeError(f"blocks must be a sequence of names; got the string {blocks!r}: write [{blocks!r}].")
    if blocks is not None and not len(blocks):
        raise ValueError(
            f"blocks must name at least one parameter, of {names}; got none. Leave it out for all."
        )
    unknown = [name for name in blocks or () if name not in names]
    if unknown:
        raise ValueError(f"blocks must name parameters that are not frozen, of {names}; got {unknown}.")
    names = [name for name in names if blocks is None or name in blocks]
    if not names:
        raise ValueError("at least one parameter must be free: every parameter given is frozen.")
    return names


def _checked(eta: Any, inputs: Any) -> torch.Tensor:
    """Raise an error unless eta is a floating-point tensor with the cases first and the outputs last."""
    if not isinstance(eta, torch.Tensor):
        raise TypeError(
            f"the model must return one tensor of natural parameters; got {type(eta).__name__}. "
            "Wrap it in a function that returns that tensor."
        )
    if eta.ndim < 2 or eta.shape[0] != cases(inputs):
        raise ValueError(
            f"the model's outputs must have shape (cases, ..., outputs) with {cases(inputs)} cases; "
            f"got {tuple(eta.shape)}. Wrap the model in a function that returns this shape."
        )
    return eta
