"""Layers made of an `nn.Module`: on the summed inputs, owning its weight, or making a weight of a weight.

A module is called on copies of its parameters and buffers, cast to the type and device of the weight, and
left as found.
"""

import copy
import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn

from normgeom._types import AnyData, AnyWeight
from normgeom.copies import results_by_value
from normgeom.layers.convolution import DENSE, Convolution
from normgeom.layers.weights import OwnWeight, of_same_shape

Own = TypeVar("Own", bound="ModuleLayer")
SIZES = ("in_features", "num_features", "num_channels", "normalized_shape")


@dataclass(frozen=True, eq=False)
class ModuleLayer:
    """What layers made of a module share; a kind says how it calls the module."""

    module: nn.Module
    label: str = ""

    @property
    def name(self) -> str:
        """The label, or the module's class name."""
        return self.label or type(self.module).__name__

    @property
    def eps(self) -> float:
        """The largest `eps` of the module and its parts; None is float64's machine epsilon (`nn.RMSNorm`)."""
        found = [part.eps for part in _with_eps(self.module)]
        return max(
            (
                torch.finfo(torch.float64).eps
                if e is None
                else float(torch.as_tensor(e, dtype=torch.float64).detach())
                for e in found
            ),
            default=0.0,
        )

    def in_type(self: Own, dtype: torch.dtype) -> Own:
        """Return the layer with the eps that it has in this type, where that depends on the type.

        `nn.RMSNorm(eps=None)` takes the machine epsilon of the type it computes in: float32 for half types.
        """
        if all(part.eps is not None for part in _with_eps(self.module)):
            return self
        module = copied(self.module)
        for part in _with_eps(module):
            if part.eps is None:
                part.eps = min(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)
        return dataclasses.replace(self, module=module)

    def in_double(self: Own) -> Own:
        """Return the layer with a copy of the module in float64."""
        typed = self.in_type(torch.float64)
        return dataclasses.replace(typed, module=copied(typed.module).double())

    @property
    def units(self) -> int | None:
        """The number of units that the module fixes, or None."""
        raise NotImplementedError

    @property
    def mode(self) -> str:
        """The mode of the module and its parts, `mixed` if they differ."""
        modes = {part.training for part in self.module.modules()}
        return "mixed" if len(modes) > 1 else "train" if modes.pop() else "eval"

    def with_eps(self: Own, eps: float) -> Own:
        """Return a layer with a copy of the module in which every part with an eps has this one."""
        module = copied(self.module)
        for part in _with_eps(module):
            # F.batch_norm refuses 0 in training; 1e-300 is below the rounding of any variance.
            value = eps or (1e-300 if isinstance(part, nn.modules.batchnorm._BatchNorm) else 0.0)
            if isinstance(part.eps, torch.Tensor):
                part.eps.data.fill_(value)
            else:
                part.eps = value
        return dataclasses.replace(self, module=module)

    def __call__(self, weight: AnyWeight, data: AnyData, /) -> torch.Tensor:
        """Return the outputs for this weight and data."""
        return self.apply(self.module, self._state(weight), weight, data)

    def apply(
        self, module: nn.Module, state: dict[str, torch.Tensor], weight: torch.Tensor, data: torch.Tensor
    ) -> torch.Tensor:
        """Call a module with this state in place of its own."""
        raise NotImplementedError

    def called_once(self: Own, weight: AnyWeight, data: AnyData) -> tuple[Own, list[str]]:
        """Return the layer as one call would leave it, and the names of the buffers that it would change."""
        before, state = self._state(weight), self._state(weight)
        with torch.no_grad():
            self.apply(self.module, state, weight, data)
        changed = [name for name, value in state.items() if not torch.equal(value, before[name])]
        after = copied(self.module)
        for name in changed:
            after.get_buffer(name).data = state[name]
        return dataclasses.replace(self, module=after), changed

    def _state(self, like: torch.Tensor) -> dict[str, torch.Tensor]:
        """Copies of parameters and buffers, in the type and on the device of a tensor."""
        state = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        return {
            name: value.detach().clone().to(like.device, like.dtype if value.is_floating_point() else None)
            for name, value in state.items()
        }


@dataclass(frozen=True, eq=False)
class OnSummedInputs(ModuleLayer):
    """A module applied to the summed inputs, `module(data @ weight.T)` or `module(conv(data, weight))`."""

    convolution: Convolution = DENSE
    inputs: int | None = None
    fitted_units: int | None = None

    @property
    def units(self) -> int | None:
        """The number of features that the first part with a fixed number of them takes, else what fits."""
        if self.fitted_units is not None:
            return self.fitted_units
        for part in self.module.modules():
            for name in SIZES:
                if hasattr(part, name):
                    size = getattr(part, name)
                    return size[0] if isinstance(size, tuple) else size
        return None

    def apply(
        self, module: nn.Module, state: dict[str, torch.Tensor], weight: torch.Tensor, data: torch.Tensor
    ) -> torch.Tensor:
        """Call the module on the summed inputs."""
        return torch.func.functional_call(module, state, (self.convolution(weight, data),))


@dataclass(frozen=True, eq=False)
class WithNewWeightModule(ModuleLayer):
    """A module that makes a weight of a weight, `data @ module(weight).T`."""

    convolution: Convolution = DENSE
    own_units: int | None = None
    inputs: int | None = None

    @property
    def units(self) -> int | None:
        """The number of units asked for."""
        return self.own_units

    def apply(
        self, module: nn.Module, state: dict[str, torch.Tensor], weight: torch.Tensor, data: torch.Tensor
    ) -> torch.Tensor:
        """Sum the inputs with the new weight."""
        new = torch.func.functional_call(module, state, (weight,))
        return self.convolution(of_same_shape(new, weight, self.name), data)


@dataclass(frozen=True, eq=False)
class OwningWeight(ModuleLayer):
    """A module with one of its own parameters in the place of the weight; its other parameters are fixed."""

    own: OwnWeight = dataclasses.field(kw_only=True)

    @property
    def convolution(self) -> Convolution:
        """How the owner of the weight sums."""
        return self.own.convolution

    @property
    def units(self) -> int:
        """The units of its weight."""
        return self.own.shape[0]

    @property
    def inputs(self) -> int:
        """The inputs that it takes."""
        return self.own.inputs

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """The shape of its weight."""
        return self.own.shape

    def apply(
        self, module: nn.Module, state: dict[str, torch.Tensor], weight: torch.Tensor, data: torch.Tensor
    ) -> torch.Tensor:
        """Call the module with this weight."""
        weight = weight.transpose(0, 1) if self.own.transposed else weight
        return torch.func.functional_call(module, {**state, self.own.name: weight}, (data,))


def copied(module: nn.Module) -> nn.Module:
    """Return a deep copy; tensors that hang on a graph (old-style weight norm) are copied by value."""
    return copy.deepcopy(module, results_by_value(module))


def _with_eps(module: nn.Module) -> list[Any]:
    """The parts of a module that have an eps."""
    return [part for part in module.modules() if hasattr(part, "eps")]
