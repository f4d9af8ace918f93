"""The public call: the Lie algebra of affine symmetries of one layer."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from normgeom.invariance._points import Sizes
from normgeom.layers import Layer, as_layer, convolution_of
from normgeom.symmetry.discovery.algebra import Algebra, solve
from normgeom.symmetry.discovery.confirm import Evidence, Finite
from normgeom.symmetry.discovery.families import describe
from normgeom.symmetry.discovery.layout import Described, Layout
from normgeom.symmetry.discovery.near import nearly
from normgeom.symmetry.discovery.result import Discovery, SymmetryGenerator
from normgeom.symmetry.discovery.subject import STEP, Subject

_MOST = 40
_DENSE, _CONVOLUTIONAL = Sizes(4, 3, 6), Sizes(3, 2, 6)
_EXACT, _DIFFERENCES = 1e-9, 1e-6  # what counts as zero, of autograd's Jacobian and of one by differences
_NOISE = 1e2
_AGREE = 1e-5
_COMPARED = 3
_SMALLER = 1 / 64
_NEARLY = 1e3


def discover(
    layer: Any,
    *,
    units: int | None = None,
    inputs: int | None = None,
    cases: int | None = None,
    parameters: Mapping[str, Tensor] | None = None,
    data_shape: tuple[int, ...] | None = None,
    device: str | torch.device = "cpu",
    generator: torch.Generator | None = None,
) -> Discovery:
    """Return all affine fields on a layer's parameters along which its outputs do not change.

    `V(w) = A w + b` with `J(w) V(w) = 0` for all w and all data, J the Jacobian of the outputs in the flat
    parameters w of length p: the null space of a linear system at random points. Each field is confirmed by
    the finite transform `exp(t V)`, since a gradient can vanish where the function changes (statistics that
    are detached). A constant direction u counts p + 1 times, since `f(w) u` is a symmetry for any affine f.
    A Lie algebra has what is connected to the identity: sign flips and permutations are not in it.

    Args:
        layer: what `as_layer` takes: the parameters are its weight, with eps = 0 where it is known. With
            `parameters`, a function of (params, data), params a dict of tensors.
        units: 4 if neither given nor fixed by the layer (3 for a convolution), at least 3.
        inputs: 3 if not given (2 for a convolution), at least 2; some layers are degenerate with 2.
        cases: 6 if not given, at least 3.
        parameters: all parameters by name, of which the shapes count; values are drawn from a Gaussian.
        data_shape: of the data that the function takes; (cases, inputs) if not given.
        device: where the layer is evaluated, in float64.
        generator: a CPU generator for every draw; one seeded with 0 if not given.

    Raises:
        TypeError: for something that is not a layer, or parameters that are no tensors.
        ValueError: for sizes that fit nothing, more than 40 parameters, or outputs that are not finite.

    Source: Ba et al. 2016, Table 1 (its weight columns), for every affine action at once.

    >>> import normgeom as ng
    >>> found = ng.discover(ng.LayerNorm(), units=4, inputs=2)
    >>> found.dimension == 1 + 2 * (8 + 1)
    True
    >>> [str(generator) for generator in found]
    ['re-centering: W → W + 1γᵀ (2 × 9 = 18)', 'whole scale: W → c W (1)']
    """
    generator = generator or torch.Generator().manual_seed(0)
    sizes = {"units": units, "inputs": inputs, "cases": cases}
    if parameters is not None:
        subject = _of_function(layer, parameters, sizes, data_shape, torch.device(device))
        own, eps = subject, 0.0
    elif data_shape is not None:
        raise TypeError("data_shape goes with parameters; a layer's data have (cases, inputs).")
    else:
        subject, own, eps = _of_layer(as_layer(layer), sizes, torch.device(device))
    _check_size(subject)
    best = _discovered(subject, own, eps, generator)
    if not best.clear or best.gradient_only:
        # Where a layer saturates, smaller parameters show what larger ones hide in rounding.
        subject, own = (dataclasses.replace(one, scale=_SMALLER) for one in (subject, own))
        best = min(best, _discovered(subject, own, eps, generator), key=_doubts)
    return best


def _check_size(subject: Subject) -> None:
    """Raise an error for more parameters than the linear system can hold, or none."""
    if not 1 <= subject.size <= _MOST:
        raise ValueError(
            f"discover takes 1 to {_MOST} parameters; {subject.name} has {subject.size}: "
            f"{', '.join(f'{n} {s}' for n, s in subject.shapes.items())}. Symmetries show at small sizes: "
            "give units=, inputs= (and a small kernel), or make the layer for fewer units."
        )


def _doubts(found: Discovery) -> tuple[bool, int]:
    """Whether a result is unclear, and how many of its dimensions finite transforms do not confirm."""
    return not found.clear, sum(one.multiplicity for one in found.gradient_only)


def _of_layer(
    layer: Layer, sizes: dict[str, int | None], device: torch.device
) -> tuple[Subject, Subject, float]:
    """The layer without its eps, the layer as it is, and its eps."""
    default = _CONVOLUTIONAL if convolution_of(layer).kernel else _DENSE
    weight, data = Sizes.of(layer, None, default, **sizes).shapes(layer)

    def subject(of: Layer) -> Subject:
        return Subject(layer.name, {"W": weight}, data, lambda params, x: of(params["W"], x), device)

    return subject(layer.with_eps(0.0) if layer.eps else layer), subject(layer), layer.eps


def _of_function(
    function: Any,
    parameters: Mapping[str, Tensor],
    sizes: dict[str, int | None],
    data_shape: tuple[int, ...] | None,
    device: torch.device,
) -> Subject:
    """A function of (params, data)."""
    if not callable(function) or isinstance(function, type | torch.nn.Module):
        raise TypeError(
            "with parameters, the layer must be a function of (params, data), params a dict of tensors; got "
            f"{function!r}. For a module: lambda params, x: torch.func.functional_call(module, params, x)."
        )
    if not isinstance(parameters, Mapping) or not all(isinstance(v, Tensor) for v in parameters.values()):
        raise TypeError(f"parameters must be a dict from names to tensors; got {parameters!r}.")
    if sizes["units"] is not None:
        raise TypeError("units says the size of a layer's weight; with parameters, their shapes do.")
    data_shape = _data_shape(sizes, data_shape)
    shapes = {name: tuple(value.shape) for name, value in parameters.items()}
    return Subject(
        getattr(function, "__name__", type(function).__name__), shapes, data_shape, function, device
    )


def _data_shape(sizes: dict[str, int | None], given: tuple[int, ...] | None) -> tuple[int, ...]:
    """The shape of the data, as given or from cases and inputs."""
    asked = (sizes["cases"], sizes["inputs"])
    if given is not None and asked != (None, None):
        raise TypeError("give data_shape, or cases and inputs; not both.")
    usual = (_DENSE.cases, _DENSE.inputs)
    shape = given or tuple(u if size is None else size for size, u in zip(asked, usual, strict=True))
    if not all(isinstance(size, int) and size > 0 for size in shape):
        raise ValueError(f"data need at least one case and one input; got shape {shape}.")
    return shape


def _discovered(subject: Subject, own: Subject, eps: float, generator: torch.Generator) -> Discovery:
    """Solve for the fields, name them, and follow each."""
    layout, finite = Layout(subject.shapes), Finite(subject, generator)
    gradient = _by_autograd(subject, generator)
    function = gradient if _agree(subject, generator) else _by_differences(subject, generator)
    described = describe(layout, function)
    if function is not gradient:
        described += [other for one in describe(layout, gradient) if (other := _outside(one, function))]
    with_eps = Finite(own, generator) if eps else None
    found = [_generator(one, finite, with_eps, gradient) for one in described]
    near = [_generator(one, finite, None, gradient) for one in nearly(subject, layout, function, generator)]
    # What the threshold lets through and a finite transform does not, by as little, is nearly a symmetry.
    bound = _NEARLY * function.tolerance
    let_through = [one for one in found if one.named and one.tolerance < one.deviation <= bound]
    return Discovery(
        layer=subject.name,
        shapes=subject.shapes,
        found=tuple(sorted((one for one in found if one not in let_through), key=lambda one: not one.named)),
        up_to_eps=tuple(let_through + near),
        gap=min(function.gap, gradient.gap),
        threshold=function.tolerance,
        eps=eps,
    )


def _by_autograd(subject: Subject, generator: torch.Generator) -> Algebra:
    """The fields that autograd's Jacobian does not see, to what its own rounding allows."""
    vector, data = subject.draw(generator)
    noise = subject.rounding(vector, data, generator)

    def draw() -> tuple[Tensor, Tensor]:
        vector, data = subject.draw(generator)
        return vector, subject.jacobian(vector, data, generator)

    return solve(draw, subject.size, max(_EXACT, _NOISE * noise))


def _by_differences(subject: Subject, generator: torch.Generator) -> Algebra:
    """The fields that the function does not see, whatever its gradient says."""

    def draw() -> tuple[Tensor, Tensor]:
        vector, data = subject.draw(generator)
        return vector, subject.difference(vector, data)

    return solve(draw, subject.size, _DIFFERENCES)


def _agree(subject: Subject, generator: torch.Generator) -> bool:
    """Whether autograd's derivative is that of the function, at most of a few points along random lines."""
    agreed = 0
    for _ in range(_COMPARED):
        vector, data = subject.draw(generator)
        noise = _NOISE * subject.rounding(vector, data, generator) / STEP
        agreed += subject.disagreement(vector, data, generator) <= max(_AGREE, noise)
    return agreed > _COMPARED // 2


def _outside(one: Described, algebra: Algebra) -> Described | None:
    """The fields of a kind that are not in an algebra, None if there are none."""
    outside = ~algebra.contains(one.fields)
    return dataclasses.replace(one, fields=one.fields[outside]) if bool(outside.any()) else None


def _generator(one: Described, finite: Finite, own: Finite | None, gradient: Algebra) -> SymmetryGenerator:
    """Fields with what finite transforms say of them."""
    evidence: Evidence = finite.follow(one.fields, one.coefficients)
    return SymmetryGenerator(
        **vars(one),
        deviation=evidence.deviation,
        tolerance=evidence.tolerance,
        breaking=None if own is None else own.follow(one.fields).deviation,
        in_gradient=bool(gradient.contains(one.fields).all()),
    )
