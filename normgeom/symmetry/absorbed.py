"""Shifts of what a layer reads, which its bias absorbs: `x -> x + γ`, `b -> b - W γ`."""

from collections.abc import Sequence

from torch import Tensor

from normgeom.symmetry.partitions import Partition


def weights_of_biases(blocks: Sequence[Partition]) -> dict[int, int]:
    """Return, for every block that is the bias of a weight, the index of that weight."""
    places = {(block.view.parameter, block.view.start, block.view.stop): k for k, block in enumerate(blocks)}
    found = {}
    for k, block in enumerate(blocks):
        owner, _, leaf = block.view.parameter.rpartition(".")
        if len(block.view.shape) != 1 or "bias" not in leaf:
            continue
        name = ".".join(filter(None, [owner, leaf.replace("bias", "weight")]))
        place = places.get((name, block.view.start, block.view.stop))
        if place is not None and len(blocks[place].view.shape) > 1:
            found[k] = place
    return found


def as_matrix(weight: Partition, value: Tensor) -> Tensor:
    """Return a weight as (units, inputs), the kernel of a convolution summed up."""
    matrix = weight.stretch(value)
    if matrix.ndim > 2:
        matrix = matrix.sum(list(range(2, matrix.ndim)))
    return matrix.movedim(weight.units, 0)
