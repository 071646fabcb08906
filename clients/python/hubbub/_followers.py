"""Which subscription follows which room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol
from weakref import ref

from ._errors import HubbubError


class Follower(Protocol):
    """A subscription, as the socket sees it."""

    room: str
    ref: str
    #: Not to be followed for now: its reader is slow.
    is_paused: bool

    def frame(self) -> dict[str, Any]: ...
    def on_subscribed(self, frame: dict[str, Any]) -> None: ...
    def on_reset(self, frame: dict[str, Any]) -> None: ...
    def on_message(self, frame: dict[str, Any]) -> None: ...
    def on_disconnected(self) -> None: ...
    def end(self, error: HubbubError | None) -> None: ...


class Followers:
    """It holds no subscription: one that its reader has dropped is over. Nothing here changes behind the loop's back."""

    def __init__(self) -> None:
        self._refs: dict[str, ref[Follower]] = {}

    def get(self, room: str) -> Follower | None:
        found = self._refs.get(room)
        return found() if found else None

    def all(self) -> list[Follower]:
        return [follower for found in self._refs.values() if (follower := found())]

    def add(self, follower: Follower, on_dropped: Callable[[], object]) -> None:
        """`on_dropped` is called in whatever thread drops it."""
        self._refs[follower.room] = ref(follower, lambda _: on_dropped())

    def remove(self, follower: Follower) -> bool:
        """Whether it was there."""
        is_there = self.get(follower.room) is follower
        if is_there:
            del self._refs[follower.room]
        return is_there

    def take_dropped(self) -> list[str]:
        """The rooms whose subscriptions were dropped since."""
        rooms = [room for room, found in self._refs.items() if found() is None]
        for room in rooms:
            del self._refs[room]
        return rooms
