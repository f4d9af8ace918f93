"""Ctrl-C and SIGTERM, seen at the end of a step instead of in the middle of it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch

from normgeom.processes import place, total


class TrainingStopped(KeyboardInterrupt):
    """A run was asked to stop, and has written a checkpoint; `signal` is the number of the signal."""

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.signal = number


class Requests:
    """The signal that has come, 0 if none has."""

    def __init__(self) -> None:
        self.number = 0

    def agreed(self, device: torch.device) -> int:
        """Return the signal that has come to any process, the same in all, which stop at the same step."""
        if place()[1] == 1:
            return self.number
        came = total(torch.tensor([self.number, self.number > 0], device=device))
        return int(came[0]) // max(int(came[1]), 1)


@contextmanager
def requests_to_stop() -> Iterator[Requests]:
    """Note SIGINT and SIGTERM instead of dying of them; the second one acts as it would have.

    Handlers are as found afterwards. Outside of the main thread, where Python has no signals, nothing is
    noted.
    """
    requests = Requests()
    if threading.current_thread() is not threading.main_thread():
        yield requests
        return
    found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: FrameType | None) -> None:
        requests.number = number
        for each, handler in found.items():
            signal.signal(each, handler)

    for number in found:
        signal.signal(number, note)
    try:
        yield requests
    finally:
        for number, handler in found.items():
            signal.signal(number, handler)
