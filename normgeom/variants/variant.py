"""What the zoo knows of one layer: formula, source, code, options, and its claimed row of Table 1.

A `Variant` is a layer: `ng.check(variant)` gives its row. It acts on weight (units, inputs) and data (cases,
inputs), or on filters (units, channels, height, width) and images (cases, channels, height, width) without
padding, where a constant added to a channel would not be one at the border. A gain and a bias after the norm
are left out: they change none of the answers.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from normgeom.layers.convolution import DENSE, Convolution
from normgeom.norms import Norm

COLUMNS = (
    "WeightMatrixRescale", "WeightMatrixRecenter", "WeightVectorRescale",
    "DatasetRescale", "DatasetRecenter", "CaseRescale",
)  # fmt: skip


CONV = Convolution.of((2, 2), (4, 4))


@dataclass(frozen=True)
class Claim:
    """One claimed cell: the verdict, and where it is a No the k of `f(delta .) = delta^k f(.)` at eps = 0."""

    kind: Literal["invariant", "invariant up to eps", "not invariant"]
    degree: int | float | None = None

    @property
    def holds(self) -> bool:
        """Whether an invariance is claimed, exactly or up to eps."""
        return self.kind != "not invariant"


INVARIANT = Claim("invariant")
UP_TO_EPS = Claim("invariant up to eps")
NO = Claim("not invariant")
LINEAR = Claim("not invariant", 1)


@dataclass(frozen=True)
class Claims:
    """A claimed row: the six cells in the order of Table 1; `claims["CaseRescale"]` is one."""

    weight_matrix_rescale: Claim
    weight_matrix_recenter: Claim
    weight_vector_rescale: Claim
    dataset_rescale: Claim
    dataset_recenter: Claim
    case_rescale: Claim

    def __iter__(self) -> Iterator[Claim]:
        return iter(getattr(self, f.name) for f in dataclasses.fields(self))

    def __getitem__(self, transform: str) -> Claim:
        if transform not in COLUMNS:
            raise KeyError(f"no claim on {transform!r}; there are {', '.join(COLUMNS)}.")
        return tuple(self)[COLUMNS.index(transform)]


@dataclass(frozen=True)
class Symmetry:
    """A transform of weight, data and options together that leaves the outputs unchanged.

    `move(c, weight, data, options)` returns all three moved, c > 0. A layer with an eps has the
    symmetry at eps = 0.
    """

    text: str
    latex: str
    move: Callable[[float, torch.Tensor, torch.Tensor, dict[str, Any]], tuple[Any, Any, dict[str, Any]]]


@dataclass(frozen=True, eq=False)
class Variant:
    r"""A layer of the zoo.

    Attributes:
        name: what tables call it.
        family: its file's subject.
        formula: the layer in words and letters, `a = W x` the summed inputs.
        latex: the same in LaTeX.
        source: authors, year, title, place in it.
        function: `(weight, data, **options) -> outputs`.
        claims: its row of Table 1 at its default options.
        options: keyword options of the function with their values; every name that ends in `eps` is an eps.
        norm: the same layer at eps = 0 as statistics, for the engines that need them; None if it has none.
        mode: `train` if the statistics come from the data, `eval` if they are frozen.
        convolution: the sizes of filters and images, `CONV`; dense if not given.
        units: how many units it must have, None for any number.
        inputs: how many inputs it must have, None for any number.
        eps_power: p in the law `f(c W; c^p eps) = c^k f(W; eps)`: 2 for an eps beside a variance, 1 beside a
            length (added or as a clamp), None without such a law. Where only the data can be scaled, X for W.
        symmetries: transforms of weight and options together.
        gradient_only: transforms whose gradient identity holds though the function is not invariant.
        gradient_broken: transforms whose gradient identity fails though the function is invariant.

    >>> from normgeom.variants import variant
    >>> variant("layer norm").eps, variant("layer norm").claims["DatasetRecenter"].holds
    (1e-05, False)
    """

    name: str
    family: str
    formula: str
    latex: str
    source: str
    function: Callable[..., torch.Tensor] = field(repr=False)
    claims: Claims = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    norm: Norm | None = field(default=None, repr=False)
    mode: str = "train"
    convolution: Convolution = DENSE
    units: int | None = None
    inputs: int | None = None
    eps_power: int | None = None
    symmetries: tuple[Symmetry, ...] = field(default=(), repr=False)
    gradient_only: tuple[str, ...] = ()
    gradient_broken: tuple[str, ...] = ()

    @property
    def eps(self) -> float:
        """The largest eps among the options, 0 if there is none."""
        return max((float(self.options[name]) for name in self._eps_names), default=0.0)

    @property
    def _eps_names(self) -> list[str]:
        return [name for name in self.options if name.endswith("eps")]

    def with_eps(self, eps: float) -> "Variant":
        """Return the same layer in which every eps has this value."""
        return self.with_options(**dict.fromkeys(self._eps_names, eps))

    def with_options(self, **changes: Any) -> "Variant":
        """Return the same layer with other values of its options; its claims are for the default ones.

        Raises:
            TypeError: for an option that the layer does not have.
        """
        if unknown := [name for name in changes if name not in self.options]:
            known = ", ".join(self.options) or "none"
            raise TypeError(f"{self.name} has no option {', '.join(unknown)}; its options are: {known}.")
        return dataclasses.replace(self, options={**self.options, **changes})

    def __call__(self, weight: torch.Tensor, data: torch.Tensor, /) -> torch.Tensor:
        """Return the outputs, cases along the first axis.

        Raises:
            ValueError: if the weight and data do not have the axes of the layer's form, or its sizes.
        """
        self._check(weight, data)
        return self.function(weight, data, **self.options)

    def _check(self, weight: torch.Tensor, data: torch.Tensor) -> None:
        """Raise an error for shapes that the layer cannot take."""
        shapes = f"got weight {tuple(weight.shape)} and data {tuple(data.shape)}"
        rank = 2 + len(self.convolution.kernel)
        if weight.ndim != rank or data.ndim != rank or weight.shape[1] != data.shape[1]:
            axes = "(units, channels, height, width) and (cases, channels, height, width)"
            wanted = axes if rank == 4 else "(units, inputs) and (cases, inputs)"
            raise ValueError(f"{self.name} takes weight and data of shapes {wanted}; {shapes}.")
        for name, size, found in (
            ("units", self.units, weight.shape[0]),
            ("inputs", self.inputs, weight.shape[1]),
        ):
            if size is not None and found != size:
                raise ValueError(
                    f"{self.name} as declared has {size} {name}; {shapes}. For other sizes use "
                    f"dataclasses.replace(variant, {name}=...)."
                )


def summed(weight: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Return the summed inputs, `data @ weight.T`, or the convolution without padding, units along axis 1."""
    return (DENSE if weight.ndim == 2 else CONV)(weight, data)


def per_unit(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return one value a unit, shape (units,), shaped to multiply summed inputs, units along axis 1."""
    return values.reshape(1, -1, *(1 for _ in range(like.ndim - 2)))
