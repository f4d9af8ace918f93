"""Random numbers that a model draws at a call, as dropout does: noticed, fixed, and drawn anew."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

OTHER_MASKS = 16


def cuda_devices() -> list[int]:
    """Return the CUDA devices, if CUDA is in use."""
    return list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []


def states() -> list[Tensor]:
    """Return the random states of all devices in use."""
    return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, cuda_devices())]


def have_moved(before: list[Tensor]) -> bool:
    """Return whether random numbers were drawn since the states were kept."""
    return not all(map(torch.equal, before, states()))


def seed(mask: int) -> None:
    """Seed the devices in use; no other one, which `torch.manual_seed` would seed at its first use."""
    for generator in (torch.default_generator, *(torch.cuda.default_generators[k] for k in cuda_devices())):
        generator.manual_seed(mask)


def finding(model: nn.Module) -> str:
    """Return what is to be said of the map of a model that draws random numbers."""
    count = sum(1 for _ in _with_dropout(model))
    what = f"dropout is active ({count} modules, p > 0)" if count else "the model draws random numbers"
    return (
        f"{what}: the map is of the function with one fixed mask, its symmetries confirmed at {OTHER_MASKS} "
        "other masks; call model.eval() for the function without"
    )


def _with_dropout(model: nn.Module) -> Iterator[nn.Module]:
    """The modules in train mode that drop something: dropout itself, attention, recurrent layers."""
    for module in model.modules():
        name = "p" if isinstance(module, nn.modules.dropout._DropoutNd) else "dropout"
        share = getattr(module, name, 0.0)
        if module.training and isinstance(share, int | float) and share > 0:
            yield module
