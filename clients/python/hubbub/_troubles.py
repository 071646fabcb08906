"""What hinders the socket, watches and `poll`, which try again and say nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ._errors import HubbubError


class Troubles:
    def __init__(self) -> None:
        #: The newest last, by the identity of what is hindered.
        self._now: dict[int, HubbubError] = {}
        #: The newest; read by other threads.
        self.last: HubbubError | None = None

    def set(self, who: object, cause: HubbubError | None) -> None:
        """`None`: nothing hinders it any more."""
        self._now.pop(id(who), None)
        if cause:
            self._now[id(who)] = cause
        self.last = next(reversed(self._now.values()), None)

    def of(self, who: object) -> HubbubError | None:
        return self._now.get(id(who))


@contextmanager
def told(cause: Callable[[], HubbubError | None]) -> Iterator[None]:
    """A wait that is cancelled, as at its time limit, says why what it waits for did not come."""
    try:
        yield
    except asyncio.CancelledError as cancelled:
        cancelled.__cause__ = cancelled.__cause__ or cause()
        raise
