"""Layers of modules and functions whose place is said: on the summed inputs, owning a weight, making one."""

import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from normgeom.layers.convolution import KERNEL, Convolution
from normgeom.layers.fitting import fitting_units, takes_arguments, takes_some_units
from normgeom.layers.function_layer import FunctionLayer, WithNewWeight
from normgeom.layers.module_layer import OnSummedInputs, OwningWeight, WithNewWeightModule, copied
from normgeom.layers.protocol import Layer
from normgeom.layers.weights import find_weight, without_parametrization

POSITIONS_OF = {  # the axes of positions that these modules ask for
    nn.BatchNorm2d: 2,
    nn.BatchNorm3d: 3,
    nn.InstanceNorm1d: 1,
    nn.InstanceNorm2d: 2,
    nn.InstanceNorm3d: 3,
    nn.LocalResponseNorm: 2,
}
IMAGES = (2, 1, 3)  # axes of positions that are tried, in turn, for a module that refuses summed inputs


def on_summed_inputs(
    module: nn.Module,
    *,
    kernel: tuple[int, ...] | None = None,
    spatial: tuple[int, ...] = (),
    padding: int = 0,
    inputs: int | None = None,
    name: str = "",
) -> OnSummedInputs:
    """Return the layer `module(data @ weight.T)`, or `module(conv(data, weight))`.

    Args:
        module: maps summed inputs, (cases, units) or (cases, units, *positions), to outputs.
        kernel: sizes of the kernel of a convolution, `()` for a dense layer. If not given, what the module
            asks for: a kernel for BatchNorm2d and 3d, InstanceNorm, LocalResponseNorm, LayerNorm([C, H, W])
            and RMSNorm([C, H, W]), and for a module that refuses (cases, units) and takes images.
        spatial: positions of the data; 2 more than the kernel along each axis if not given.
        padding: zeros around the data of a convolution.
        inputs: the number of inputs; any if not given.
        name: what tables call the layer.

    Raises:
        TypeError: if it is no module.
        ValueError: for a module that cannot be judged alone, or sizes that do not fit.

    >>> layer = on_summed_inputs(nn.BatchNorm2d(5))
    >>> layer.convolution.kernel
    (2, 2)
    """
    _check_module(module)
    own = copied(module)
    given = None if kernel is None else Convolution.of(kernel, spatial, padding)
    choice = _choices(module, spatial, padding) if given is None else [given]
    layers = [OnSummedInputs(own, name, convolution, inputs) for convolution in choice]
    fits = (one for one in layers if takes_some_units(own, _trial(one), one.units))
    layer = layers[0] if len(layers) == 1 else next(fits, layers[0])
    if layer.units is not None:
        return layer
    return dataclasses.replace(layer, fitted_units=fitting_units(own, _trial(layer)))


def _choices(module: nn.Module, spatial: tuple[int, ...], padding: int) -> list[Convolution]:
    """The convolution that a module asks for; if none does, none, or else images of so many axes."""
    asked = _asked_for(module)
    if asked.kernel:
        return [Convolution.of(asked.kernel, spatial or asked.spatial, padding)]
    axes = [n for n in IMAGES if len(spatial) in (0, n)]
    return [asked, *(Convolution.of((KERNEL,) * n, spatial, padding) for n in axes)]


def _trial(layer: OnSummedInputs) -> Callable[[int], None]:
    """The call of a layer with so many units; what is for images must keep their shape."""

    def call(units: int) -> None:
        sizes = layer.convolution.shapes(units, layer.inputs or 2 * layer.convolution.groups, 3)
        weight, data = (torch.linspace(1, 2, math.prod(shape)).reshape(shape) for shape in sizes)
        outputs = layer(weight, data)
        summed = layer.convolution(weight, data)
        if layer.convolution.kernel and getattr(outputs, "shape", None) != summed.shape:
            raise ValueError(f"outputs must have the shape of the summed inputs, {tuple(summed.shape)}")

    return call


def _asked_for(module: nn.Module) -> Convolution:
    """The convolution whose outputs a module takes, dense unless one of its parts asks for positions."""
    for part in module.modules():
        axes = next((n for kind, n in POSITIONS_OF.items() if isinstance(part, kind)), 0)
        if axes:
            return Convolution.of((2,) * axes)
        shape = part.normalized_shape if isinstance(part, nn.LayerNorm | nn.RMSNorm) else ()
        if len(shape) > 1:
            return Convolution.of((2,) * len(shape[1:]), tuple(size + 1 for size in shape[1:]))
    return Convolution()


def owning_weight(
    module: nn.Module,
    *,
    weight: str | None = None,
    raw: bool = True,
    spatial: tuple[int, ...] = (),
    name: str = "",
) -> OwningWeight:
    """Return the layer of a module that has its weight inside, `(weight, data) -> module(data)`.

    The weight of the layer takes the place of one parameter; biases and all others keep their values. Of a
    parametrized weight it is the raw parameter: of weight norm the direction v (`original1`), with the
    length g fixed, as the paper's weight norm has no other.

    Args:
        module: maps data, (cases, inputs) or (cases, inputs, *positions), to outputs.
        weight: the parameter's name, such as `"0.weight"`; of the first linear or convolutional part if not
            given. A raw parameter can be named too: `"0.parametrizations.weight.original0"`.
        raw: whether the actions move the raw parameter of a parametrized weight; else the weight that
            the parametrization gives, in its place.
        spatial: positions of the data of a convolution; 2 more than the kernel reaches if not given.
        name: what tables call the layer.

    Raises:
        TypeError: if it is no module.
        ValueError: if there is no such weight.

    >>> layer = owning_weight(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))
    >>> layer.own.name, layer.own.shape
    ('0.weight', (8, 3, 3, 3))
    """
    _check_module(module)
    own = copied(module)
    if not raw:
        without_parametrization(own, weight)
    return OwningWeight(own, name, own=find_weight(own, weight, spatial))


def reparametrized(
    function: Callable[[Any], Any],
    *,
    kernel: tuple[int, ...] = (),
    spatial: tuple[int, ...] = (),
    padding: int = 0,
    units: int | None = None,
    inputs: int | None = None,
    name: str = "",
) -> Layer:
    """Return the layer that sums its inputs with `function(weight)` in the weight's place.

    Args:
        function: a function or module from a weight (units, inputs, *kernel) to one of the same shape.
        kernel: sizes of the kernel of a convolution; dense if not given.
        spatial: positions of the data; 2 more than the kernel along each axis if not given.
        padding: zeros around the data of a convolution.
        units: the number of units, if the function is for one only.
        inputs: likewise.
        name: what tables call the layer.

    Raises:
        TypeError: if it cannot be called.

    >>> import torch
    >>> layer = reparametrized(lambda weight: weight / weight.norm(), name="Frobenius norm")
    >>> layer(torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0]]))
    tensor([[0.6000]])
    """
    if not (callable(function) and takes_arguments(function, 1)):
        raise TypeError(f"a re-parametrization must be a function of the weight; got {function!r}.")
    convolution = Convolution.of(kernel, spatial, padding)
    if isinstance(function, nn.Module):
        _check_module(function)
        return WithNewWeightModule(copied(function), name, convolution, units, inputs)
    return FunctionLayer(WithNewWeight(function, convolution), name, convolution, units, inputs)


def function_layer(
    function: Callable[[Any, Any], Any],
    *,
    kernel: tuple[int, ...] = (),
    spatial: tuple[int, ...] = (),
    units: int | None = None,
    inputs: int | None = None,
    name: str = "",
) -> FunctionLayer:
    """Return the layer of a function of (weight, data), with the sizes that it takes.

    Args:
        function: maps a weight (units, inputs, *kernel) and data (cases, inputs, *spatial) to outputs, cases
            along the first axis.
        kernel: sizes of the weight's further axes; none if not given.
        spatial: sizes of the data's further axes; 2 more than the kernel if not given.
        units: the number of units, if the function is for one only.
        inputs: likewise.
        name: what tables call the layer.

    Raises:
        TypeError: if it cannot be called.

    >>> import torch
    >>> layer = function_layer(torch.nn.functional.conv2d, kernel=(3, 3), name="convolution")
    >>> layer.convolution.spatial
    (5, 5)
    """
    if not callable(function):
        raise TypeError(f"a layer must be a function of (weight, data); got {function!r}.")
    if not takes_arguments(function, 2):
        called = f"{getattr(function, '__name__', repr(function))}{inspect.signature(function)}"
        raise TypeError(
            f"a layer must be a function of (weight, data); got {called}. If it makes the layer, give what "
            "it returns, on the command line a function that takes nothing."
        )
    return FunctionLayer(function, name, Convolution.of(kernel, spatial), units, inputs)


def _check_module(module: Any) -> None:
    """Raise an error for what is no module, or none that can be judged alone."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"an nn.Module is needed; got {module!r}.")
    if isinstance(module, torch.jit.ScriptModule):
        raise ValueError("a scripted module has no state that can be replaced; give the one it was made of.")
    forward = getattr(module.forward, "__func__", module.forward)
    if forward is nn.Module.forward or not takes_arguments(module.forward, 1):
        raise TypeError(
            f"{type(module).__name__} must have a forward that takes one tensor; its does not. Wrap it in a "
            "function of (weight, data)."
        )
    for part in module.modules():
        if isinstance(part, nn.SyncBatchNorm):
            raise ValueError(
                "SyncBatchNorm takes its statistics over the processes of a distributed run, which one "
                "process cannot see; judge nn.BatchNorm, which it equals on one process."
            )
        if any(nn.parameter.is_lazy(own) for own in part.parameters(recurse=False)):
            raise ValueError(f"{type(part).__name__} must have its sizes; call the module once first.")
