"""What is measured of all blocks at a step, on the device and without waiting for it."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from normgeom.dynamics.parts import Parts
from normgeom.dynamics.wholes import Wholes
from normgeom.symmetry.blocks import BlockView

COLUMNS = (
    "norm",
    "gradient_norm",
    "inner",
    "column_sum",
    "column_drift",
    "update_norm",
    "along",
    "across",
)


class Statistics:
    """Lengths and products of the blocks' weights, gradients and updates.

    All lengths are those before the step, except that an update is seen from where it ended. Blocks that are
    whole tensors are measured together, others one by one.
    """

    def __init__(self, views: Sequence[BlockView], parameters: Mapping[str, Tensor]) -> None:
        whole = [view for view in views if view.labels == (view.parameter,)]
        parts = [view for view in views if view.labels != (view.parameter,)]
        self._wholes = Wholes([parameters[v.parameter] for v in whole], [v.axis for v in whole])
        self._parts = Parts(parts, parameters)
        self._all = [each for each, some in ((self._wholes, whole), (self._parts, parts)) if some]
        found = [label for view in (*whole, *parts) for label in view.labels]
        places = {label: place for place, label in enumerate(found)}
        self.order = [places[label] for view in views for label in view.labels]
        devices = {parameters[view.parameter].device for view in views}
        self._device = devices.pop() if len(devices) > 1 else None
        self._views, self._parameters = views, parameters
        self._kinds = [(value.dtype, value.device) for value in parameters.values()]

    def fits(self) -> bool:
        """Whether the parameters have the types and devices that the copies were made for."""
        return self._kinds == [(value.dtype, value.device) for value in self._parameters.values()]

    def remade(self) -> "Statistics":
        """Return the same for the parameters as they are now, with the first column sums."""
        made = Statistics(self._views, self._parameters)
        made._wholes.start_from(self._wholes)
        made._parts.start_from(self._parts)
        return made

    def weights(self) -> None:
        """Look at the weights before the step."""
        for each in self._all:
            each.weights()

    def gradients(self, scale: Tensor | None) -> None:
        """Look at the gradients."""
        for each in self._all:
            each.gradients(scale)

    def moved(self) -> Tensor:
        """Look at the weights after the step; return (columns, blocks), whose blocks stand in `order`."""
        found = [each.moved() for each in self._all]
        numbers = [value for name in COLUMNS for rows in found for value in rows[name]]
        if self._device is not None:
            numbers = [value.to(self._device) for value in numbers]
        if numbers[0].ndim == 0 and len(found) == 1:
            return torch.stack(numbers).view(len(COLUMNS), -1)
        return torch.cat([value.reshape(-1) for value in numbers]).view(len(COLUMNS), -1)
