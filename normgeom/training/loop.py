"""One step of training, and what it leaves to the next."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer

from normgeom.processes import gathered, place, total
from normgeom.training.evaluation import in_eval_mode, mean_nats
from normgeom.training.kinds import kinds, refuse_others
from normgeom.training.tasks import Task


@dataclass(frozen=True)
class StepRecord:
    """What one step was: bits of its batch before the update, norm of the gradient before clipping.

    `learning_rate` is that of the optimizer's first parameter group; `held_out_bits` and
    `held_out_accuracy`, after the update, are None in steps that do not evaluate.
    """

    step: int
    bits: float
    gradient_norm: float
    learning_rate: float
    held_out_bits: float | None = None
    held_out_accuracy: float | None = None


ADVICE = "Take a smaller learning rate, or clip the gradient."


class NonFiniteTraining(ValueError):
    """The loss, the gradient or a parameter is not finite; the update was not made."""


@dataclass(eq=False)
class Loop:
    """A model in training: everything that the next step depends on."""

    model: nn.Module
    task: Task
    optimizer: Optimizer
    scheduler: Any
    clip: float | None
    generator: torch.Generator
    step: int = 0
    state: Any = None
    last: StepRecord | None = None

    def advance(self) -> StepRecord:
        """Make one step.

        Raises:
            NonFiniteTraining: before the update, if the loss or the gradient is not finite.
        """
        batch = self.task.batch(self.step)
        self.optimizer.zero_grad()
        with self._own_random_numbers():
            logits, state = self.task.predict(self.model, batch, None if batch.fresh else self.state)
            loss = mean_nats(logits, batch, self.task)
            loss.backward()
        gradients = [p.grad for group in self.optimizer.param_groups for p in group["params"]]
        norm = get_total_norm([g for g in gradients if g is not None])
        record = self._record(loss.detach(), norm)
        if self.clip is not None:
            parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
            clip_grads_with_norm_(parameters, self.clip, norm)
        self.optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()
        self.step, self.state, self.last = record.step, detached(state), record
        return record

    def check(self) -> None:
        """Raise an error if the next step could not be made from here: what is saved must be worth it.

        Raises:
            NonFiniteTraining: if a parameter, or the loss of the next batch (in eval mode), is not finite.
        """
        model, batch = plain(self.model), self.task.batch(self.step)
        broken = [name for name, p in model.named_parameters() if not torch.isfinite(p).all()]
        with torch.no_grad(), in_eval_mode(model):
            logits, _ = self.task.predict(model, batch, None if batch.fresh else self.state)
            bits = float(total(mean_nats(logits, batch, self.task))) / place()[1] / math.log(2)
        if broken or not math.isfinite(bits):
            what = f"{broken[0]} is not" if broken else f"the loss of the next batch is {bits:g} bits"
            after = "before the first step"
            if self.last is not None:
                after = (
                    f"after step {self.step}, at learning rate {self.last.learning_rate:g} with a gradient "
                    f"of norm {self.last.gradient_norm:g}"
                )
            raise NonFiniteTraining(f"parameters and loss must be finite; {after}, {what}. {ADVICE}")

    def _record(self, loss: Tensor, norm: Tensor) -> StepRecord:
        nats = float(total(loss.clone())) / place()[1]
        rate = float(self.optimizer.param_groups[0]["lr"])
        record = StepRecord(self.step + 1, nats / math.log(2), float(norm), rate)
        if not (math.isfinite(record.bits) and math.isfinite(record.gradient_norm)):
            raise NonFiniteTraining(
                f"loss and gradient must be finite; in step {record.step}, at learning rate {rate:g}, the "
                f"loss is {record.bits:g} bits and the norm of the gradient {record.gradient_norm:g}. The "
                f"update was not made. {ADVICE}"
            )
        return record

    @contextmanager
    def _own_random_numbers(self) -> Iterator[None]:
        """Draw torch's random numbers (dropout) from the loop's generator; leave the global one as found."""
        seed = int(torch.randint(2**62, (), generator=self.generator))
        indices = {p.device.index for p in self.model.parameters() if p.device.type == "cuda"}
        with torch.random.fork_rng(devices=list(indices)):
            # torch.manual_seed would seed devices of others too.
            for each in (torch.default_generator, *(torch.cuda.default_generators[k] for k in indices)):
                each.manual_seed(seed + place()[0])
            yield

    def state_dict(self) -> dict[str, Any]:
        """Return everything, the recurrent state of all processes included."""
        return {
            "step": self.step,
            "kinds": self._kinds(),
            "model": plain(self.model).state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "generator": self.generator.get_state(),
            "state": mapped(lambda t: gathered(t, dim=1), self.state),
            "task": self.task.identity(),
        }

    def _kinds(self) -> dict[str, str]:
        return kinds(plain(self.model), self.optimizer, self.scheduler)

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned, with as many processes as there are now.

        Raises:
            ValueError: if it is of another task, or does not fit the model, the optimizer or the scheduler.
        """
        task = self.task.identity()
        other = [
            f"{k} {saved['task'].get(k)!r}, not {v!r}" for k, v in task.items() if saved["task"].get(k) != v
        ]
        if other:
            raise ValueError(f"a run must go on with its own task; it has {'; '.join(other)}.")
        refuse_others(saved["kinds"], self._kinds())
        try:
            plain(self.model).load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
        except (RuntimeError, ValueError) as why:
            raise ValueError(f"a run must go on with its own model and optimizer: {why}") from why
        if self.scheduler is not None:
            self.scheduler.load_state_dict(saved["scheduler"])
        self.generator.set_state(saved["generator"].cpu())
        device = next(self.model.parameters()).device
        self.state = mapped(lambda t: share(t).to(device), saved["state"])
        self.step = saved["step"]


def plain(model: nn.Module) -> nn.Module:
    """Return the model inside of DistributedDataParallel."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def share(state: Tensor) -> Tensor:
    """Return this process's part of a recurrent state, (layers, batch, units)."""
    rank, processes = place()
    return state.chunk(processes, dim=1)[rank].contiguous() if processes > 1 else state


def mapped(function: Any, state: Any) -> Any:
    """Apply a function to every tensor of a recurrent state: a tensor, None, or tuples of these."""
    if isinstance(state, tuple | list):
        return tuple(mapped(function, part) for part in state)
    return function(state) if isinstance(state, Tensor) else state


def detached(state: Any) -> Any:
    """Cut a recurrent state off the graph of its step."""
    return mapped(Tensor.detach, state)
