"""How the field guesses which tensors have a length that the function does not see."""

import math

import torch
from torch import Tensor, nn, optim
from torch.nn import functional

from analyses._subjects import Subject, logits

DELTA = 0.1
_NO_DECAY = ("norm", "bias")


def adamp_view(weight: Tensor, grad: Tensor, *, delta: float = DELTA) -> str | None:
    """Return the view in which AdamP takes a tensor as scale invariant: `channel`, `layer`, or None.

    First every slice along the first axis, then the tensor as a whole: it is taken as invariant if the
    largest `|cos(w, ∇)|` is below `δ/√dim`, dim the number of coordinates of a slice. Tensors of one axis
    are never tested.

    Source: Heo et al. 2021 (arXiv:2006.08217), AdamP; as in its code, clovaai/AdamP, adamp/adamp.py.
    """
    if weight.ndim < 2:
        return None
    for view, shape in (("channel", (len(weight), -1)), ("layer", (1, -1))):
        cosines = functional.cosine_similarity(weight.reshape(shape), grad.reshape(shape)).abs()
        if float(cosines.max()) < delta / math.sqrt(weight.numel() // shape[0]):
            return view
    return None


def by_axes(weight: Tensor) -> bool:
    """Return whether a tensor has two or more axes: nanoGPT's rule for weight decay (model.py)."""
    return weight.ndim >= 2


def by_name(name: str) -> bool:
    """Return whether a name has neither norm nor bias in it: decay by name, as BERT's own optimizer did."""
    return not any(word in name.lower() for word in _NO_DECAY)


def minibatch_gradients(
    subject: Subject, count: int, generator: torch.Generator
) -> list[dict[str, tuple[Tensor, Tensor]]]:
    """Return weights and gradients in float32 of every tensor at the first minibatches of a short training.

    The targets are a fixed function of the inputs, the loss is the cross-entropy, the steps are Adam's.
    """
    model, batch = subject.make()
    model = model.float()
    named = batch if isinstance(batch, dict) else {"": batch}
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    found = []
    for _ in range(count):
        inputs = {name: _fresh(value, generator) for name, value in named.items()}
        optimizer.zero_grad()
        _loss(model, inputs).backward()
        found.append(
            {
                name: (value.detach().clone(), value.grad.clone())
                for name, value in model.named_parameters()
                if value.grad is not None
            }
        )
        optimizer.step()
    return found


def _fresh(value: Tensor, generator: torch.Generator) -> Tensor:
    """Another batch of the same kind: token ids, or normal numbers."""
    if value.is_floating_point():
        return torch.randn(value.shape, generator=generator)
    low, high = int(value.min()), int(value.max())
    return torch.randint(low, high + 1, value.shape, generator=generator)


def _loss(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    out = logits(model(*inputs.values()) if "" in inputs else model(**inputs)).flatten(0, -2)
    first = next(iter(inputs.values()))
    if first.is_floating_point():
        targets = first.flatten(1)[:, : out.shape[-1]].argmax(1)
    else:
        targets = (7 * first.flatten() + 3) % out.shape[-1]
    return functional.cross_entropy(out, targets)
