"""Sees every step of an optimizer from outside, through its hooks, and leaves no trace when it is closed."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor, optim


class Observer(Protocol):
    """What is told of a step: the weights before, the gradients the optimizer sees, the weights after."""

    def wants(self, step: int) -> bool:
        """Whether this step is to be looked at."""

    def passed(self, step: int) -> None:
        """A step that was not to be looked at is over."""

    def weights(self, step: int) -> None:
        """The weights are those before the step."""

    def gradients(self, scale: Tensor | None) -> None:
        """The gradients are those of the step, times the scale if there is one."""

    def moved(self, skipped: Tensor | bool) -> None:
        """The weights are those after the step; `skipped` says that an AMP scaler left it out."""


class Steps:
    """Calls an observer at every step of an optimizer.

    A step whose class calls `super().step()` is one step; a step that raised is forgotten; a closure's first
    gradient, which is taken at the weights before the step, is the step's; under AMP with a fused optimizer
    the gradients still carry the scale. A plain optimizer is not called at all when the scaler finds infinite
    gradients: only a `scaler` that is given here tells of such a step.
    """

    def __init__(self, optimizer: optim.Optimizer, observer: Observer, scaler: Any = None) -> None:
        self.optimizer, self.observer, self.scaler = optimizer, observer, scaler
        self.count = 0
        self._inside: FrameType | None = None
        self._watched = self._has_gradients = False
        self._handles: list[Any] = []
        self._scaled: _WatchedStep | None = None

    def open(self) -> None:
        """Start to watch."""
        self._handles = [
            self.optimizer.register_step_pre_hook(self._before),
            self.optimizer.register_step_post_hook(self._after),
        ]
        if self.scaler is not None:
            self.scaler.step = self._scaled = _WatchedStep(self, vars(self.scaler))

    def close(self) -> None:
        """Stop, and take all hooks away."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._inside = [], None
        if self._scaled is not None:
            self._scaled.close(vars(self.scaler))
            self._scaled = None

    def _before(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._inside is not None and _is_running(self._inside):
            return None
        self._inside = sys._getframe(1)
        self.count += 1
        self._watched, self._has_gradients = self.observer.wants(self.count), False
        if not self._watched:
            return None
        with torch.no_grad():
            self.observer.weights(self.count)
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            self._see_gradients()
            return None
        seeing = self._seeing(closure)
        if len(args) > 1:
            return (args[0], seeing, *args[2:]), kwargs
        return args, {**kwargs, "closure": seeing}

    def _seeing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """The closure, with a look at the gradients after its first call."""

        def call() -> Any:
            loss = closure()
            if not self._has_gradients:
                self._see_gradients()
            return loss

        return call

    def _see_gradients(self) -> None:
        self._has_gradients = True
        with torch.no_grad():
            self.observer.gradients(getattr(self.optimizer, "grad_scale", None))

    def _after(self, optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._inside is not sys._getframe(1):
            return
        self._inside = None
        if not self._watched:
            self.observer.passed(self.count)
        else:
            if not self._has_gradients:
                self._see_gradients()
            found = getattr(self.optimizer, "found_inf", None)
            with torch.no_grad():
                self.observer.moved(False if found is None else found > 0)

    def left_out(self) -> None:
        """A step that the scaler did not take."""
        self.count += 1
        if self.observer.wants(self.count):
            with torch.no_grad():
                self.observer.weights(self.count)
                self.observer.gradients(None)
                self.observer.moved(True)
        else:
            self.observer.passed(self.count)


class _WatchedStep:
    """The scaler's step, with a look at whether the optimizer was called; several may lie over each other."""

    def __init__(self, steps: Steps, attributes: dict[str, Any]) -> None:
        self._steps, self._scaler_type = steps, type(steps.scaler)
        self._below = attributes.get("step")
        self._closed = False

    def __call__(self, optimizer: optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        steps = self._steps
        before = steps.count
        below = self._below or self._scaler_type.step.__get__(steps.scaler)
        found = below(optimizer, *args, **kwargs)
        if not self._closed and optimizer is steps.optimizer and steps.count == before:
            steps.left_out()
        return found

    def close(self, attributes: dict[str, Any]) -> None:
        """Stop to look, and take away what is closed, down to what is not: any may be the first to close."""
        self._closed = True
        while isinstance(top := attributes.get("step"), _WatchedStep) and top._closed:
            if top._below is None:
                del attributes["step"]
            else:
                attributes["step"] = top._below


def _is_running(frame: FrameType) -> bool:
    """Whether a call is still on the stack."""
    current: FrameType | None = sys._getframe(2)
    while current is not None:
        if current is frame:
            return True
        current = current.f_back
    return False
