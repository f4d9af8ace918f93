"""What a tracker measures only when asked: sigma of the summed inputs, and the metric on a batch."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from normgeom.dynamics.replay import place_to_hook, replay
from normgeom.geometry import NotFinite, curvature, kl_divergence
from normgeom.optimizers.angles import wide
from normgeom.symmetry import BlockView

_BATCH_STATISTICS = nn.modules.batchnorm._NormBase


class SummedInputs:
    """The standard deviation of what norms are given, block by block."""

    def __init__(self, model: nn.Module, views: Sequence[BlockView], modules: Mapping[str, str]) -> None:
        known = dict(model.named_modules())
        labels = [label for view in views for label in view.labels]
        owners = {label: view.parameter for view in views for label in view.labels}
        for block, module in modules.items():
            if block not in labels and block not in owners.values():
                raise ValueError(f"summed_inputs names blocks that are tracked; {block!r} is not.")
            if module not in known:
                raise ValueError(f"summed_inputs names modules of the model; there is no {module!r}.")
        self._modules = [modules.get(label, modules.get(owners[label], "")) for label in labels]
        self._of = {name: known[name] for name in sorted(set(self._modules)) if name}
        places = {name: place_to_hook(known, name) for name in self._of}
        self._called = {name: known[name] for name, place in places.items() if place == name}
        self._replayed = [
            (known[place], {name.removeprefix(f"{place}."): name for name in places if places[name] == place})
            for place in sorted(set(places.values()) - set(self._called))
        ]
        self._sigma: dict[str, list[Tensor]] = {}
        self._handles: list[Any] = []

    def expect(self, wanted: bool) -> None:
        """Hang on the modules if the next step is wanted, else on none."""
        if not wanted:
            self.close()
        elif not self._handles:
            self._sigma = {}
            for name, module in self._called.items():
                self._handles.append(module.register_forward_pre_hook(_Hook(self._look(name))))
            for layer, inside in self._replayed:
                hook = _Hook(self._replay(inside))
                self._handles.append(layer.register_forward_pre_hook(hook, with_kwargs=True))

    def close(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def take(self) -> dict[str, Tensor]:
        """Return sigma of every block since the last step, NaN for one whose module was not called."""
        if not self._of:
            return {}
        means = {name: torch.stack(values).mean() for name, values in self._sigma.items()}
        self._sigma = {}
        nan = torch.tensor(torch.nan)
        return {"sigma": torch.stack([means.get(name, nan).cpu() for name in self._modules])}

    def _replay(self, inside: Mapping[str, str]) -> Callable[..., None]:
        looks = {inner: self._look(name) for inner, name in inside.items()}
        return lambda layer, inputs, options: replay(layer, looks, inputs, options)

    def _look(self, name: str) -> Callable[..., None]:
        def look(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            if inputs and isinstance(inputs[0], Tensor):
                with torch.no_grad():
                    self._sigma.setdefault(name, []).append(sigma(module, inputs[0]))

        return look


class _Hook:
    """A hook that stays with the module it was hung on: on a copy or in a file it does nothing."""

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call

    def __call__(self, *given: Any) -> None:
        """Look at a call."""
        self._call(*given)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Hook, (_nothing,)


def _nothing(*given: Any) -> None:
    """Look at nothing."""


def sigma(module: nn.Module, summed: Tensor) -> Tensor:
    """Return the mean of the standard deviations (biased) that a norm takes of its input.

    Over all but the channels for batch norm, over `normalized_shape` or each of the `segments` where a module
    has them, else over the last axis.
    """
    summed = wide(summed.detach())
    if hasattr(module, "segments"):
        parts = summed.split(module.segments, -1)
        return torch.stack([part.std(-1, correction=0) for part in parts]).mean()
    if isinstance(module, _BATCH_STATISTICS) and summed.ndim > 1:
        axes = [k for k in range(summed.ndim) if k != 1]
    else:
        axes = list(range(-len(getattr(module, "normalized_shape", (0,))), 0))
    return summed.std(dim=axes, correction=0).mean()


def find_summed_inputs(model: nn.Module, batch: Any) -> dict[str, str]:
    """Return for the weights of a model the norm whose input is their layer's output, seen in one call.

    A layer is a module with a parameter `weight`, a norm one whose class name says so, and the output must be
    the very tensor that the norm is given. The model, its buffers and the random state are left as found.

    >>> find_summed_inputs(nn.Sequential(nn.Linear(2, 4), nn.LayerNorm(4)), torch.randn(3, 2))
    {'0.weight': '1'}
    """
    from normgeom.symmetry.probe import Probe

    copied = Probe(model, batch, select=None, generator=torch.Generator().manual_seed(0))
    outputs: list[tuple[str, Tensor]] = []
    found: dict[str, str] = {}

    def before(name: str) -> Callable[..., None]:
        def look(module: nn.Module, inputs: tuple[Any, ...]) -> None:
            for layer, out in outputs:
                if inputs and inputs[0] is out:
                    found.setdefault(f"{layer}.weight", name)

        return look

    def after(name: str) -> Callable[..., None]:
        return lambda module, inputs, out: outputs.append((name, out))

    for name, module in copied.model.named_modules():
        if "norm" in type(module).__name__.lower():
            module.register_forward_pre_hook(before(name))
        elif isinstance(getattr(module, "weight", None), Tensor):
            module.register_forward_hook(after(name))
    copied.plain()
    return found


class BatchMeasures:
    """The nats and the curvature of every block's update on one batch."""

    def __init__(
        self,
        model: nn.Module,
        views: Sequence[BlockView],
        batch: Any,
        family: Any,
        nats: bool,
        curvature: bool,
    ) -> None:
        self._model, self._views, self._batch, self._family = model, views, batch, family
        self._nats, self._curvature = nats, curvature
        self._before = self._parameters()
        kl_divergence(model, self._before, batch, self._before, family=family)

    def _parameters(self) -> dict[str, Tensor]:
        return {k: v.detach() for k, v in self._model.named_parameters()}

    def weights(self) -> None:
        """Keep the weights before the step."""
        self._before = {name: value.clone() for name, value in self._parameters().items()}

    def moved(self) -> dict[str, list[float]]:
        """Return the measures of the step for every part, each moved alone."""
        now, rows = self._parameters(), {"nats": [], "curvature": []}  # type: dict[str, Tensor], dict[str, list[float]]
        for view in self._views:
            before, after = self._before[view.parameter], now[view.parameter]
            for part in torch.eye(view.parts, dtype=torch.float64):
                # One where the part is; a product with it has no rounding.
                where = 1 - view.scaled(torch.ones_like(before), (1 - part).to(before))
                update = {view.parameter: (after - before) * where}
                if self._nats:
                    moved = {view.parameter: torch.where(where > 0, after, before)}
                    rows["nats"].append(self._kl(moved))
                if self._curvature:
                    rows["curvature"].append(self._along(update))
        return {name: values for name, values in rows.items() if values}

    def _kl(self, moved: Mapping[str, Tensor]) -> float:
        return self._number(kl_divergence, moved)

    def _along(self, update: Mapping[str, Tensor]) -> float:
        with torch.enable_grad():
            return self._number(curvature, update)

    def _number(self, measure: Callable[..., Tensor], change: Mapping[str, Tensor]) -> float:
        try:
            return float(measure(self._model, self._before, self._batch, change, family=self._family))
        except NotFinite:
            return math.nan
