"""The degree of a layer under one re-scaling, any real number."""

from typing import Any

import torch

from normgeom.invariance._points import scale_of_entries
from normgeom.invariance.calling import act, evaluate
from normgeom.layers import as_layer

SAME = 1e-9  # how well every entry must follow one power


def scaling_degree(layer: Any, element: Any, weight: torch.Tensor, data: torch.Tensor) -> float | None:
    """Return the k of `|f'| = |delta|^k |f|` in every entry, None if there is no such k.

    The engines of a verdict measure fractions with denominators up to 12, such as the -1/2 of local response
    norm with k = 0; other powers they know only where the code names them. This measures any, at one point.

    Args:
        layer: as for `check`.
        element: one re-scaling with no delta of size 1.
        weight: shape (units, inputs), or filters.
        data: shape (cases, inputs), or images.

    >>> import normgeom as ng
    >>> weight, data = torch.tensor([[1.0, 2.0]]).double(), torch.tensor([[3.0, -1.0]]).double()
    >>> root = lambda weight, data: (data @ weight.T).abs() ** 0.25
    >>> round(scaling_degree(root, ng.DatasetRescale(3.0), weight, data), 9)
    0.25
    """
    subject = as_layer(layer)
    before, after = evaluate(subject, weight, data), evaluate(subject, *act(element, weight, data))
    scale = scale_of_entries(element, tuple(before.shape))
    if scale is None:
        return None
    size = torch.as_tensor(scale.astype(float)).abs().log().to(before)
    powers = ((after / before).abs().log() / size)[before != 0]
    k = float(powers.median())
    return k if bool((powers - k).abs().max() <= SAME) else None
