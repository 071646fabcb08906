"""Rooms: sending, and following from a position."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timezone
from typing import Any
from urllib.parse import urlencode

from ._errors import HubbubError
from ._http import Http
from ._ids import make_id, segment_of
from ._socket import Socket
from ._types import Message, MessageEvent, Position, Ready, Receipt, Reset, RoomEvent


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Room:
    def __init__(self, name: str, http: Http, socket: Callable[[], Socket], username: str | None) -> None:
        self.name = name
        self._http = http
        self._socket = socket
        self._username = username

    async def send(
        self, text: str, *, message_id: str | None = None, user_id: str | None = None, username: str | None = None,
        message_type: str = "TEXT", timestamp: str | None = None,
    ) -> Receipt:
        """Returns once the message is on disk. Until then it is sent again, with the same id.

        Messages of one room are stored in the order of these calls. A call that is cancelled gives its message up: it
        may be stored nevertheless. `timestamp` is the time of the call, if none is given.
        """
        frame = {
            "type": "send", "roomId": self.name, "message": text, "messageId": message_id or make_id(),
            "messageType": message_type, "userId": user_id or self._http.user,
            "username": username or self._username, "timestamp": timestamp or _now(),
        }
        return await self._socket().send({name: value for name, value in frame.items() if value is not None})

    def subscribe(
        self, *, after: int | None = None, epoch: str | None = None, last: int | None = None,
        on_reset: str = "replay", buffer_max: int = 1_000,
    ) -> Subscription:
        """Follows the room: iterate over what it returns.

        `after`: the last `seq` you have (0 = from the oldest), with the `epoch` you know it from. `last`: begin with so
        many of the newest. Without either it begins with the next message.
        """
        return Subscription(self.name, self._socket(), Position(epoch, after), last, on_reset, buffer_max)

    async def history(self, **parameters: Any) -> dict[str, Any]:
        """A page of history, newest last: `after`, `before`, `limit`, `epoch`."""
        query = urlencode({name: value for name, value in parameters.items() if value is not None})
        path = f"/v1/rooms/{segment_of(self.name)}/messages?{query}"
        page: dict[str, Any] = await self._http.json("messages", "GET", path)
        page["messages"] = [Message.of(message) for message in page["messages"]]
        return page


class Subscription(AsyncIterator[RoomEvent]):
    """Events of one room: `ready`, `message`, `reset`.

    Events that nobody has taken yet are bounded: at `buffer_max` the subscription pauses, and it continues behind the
    last one when half of them are taken.

    It ends with `close`, with the block of an `async with`, or when nothing holds it any more. What the server ends is an error behind them: `removed` if the user is no member any more or the room is gone,
    `forbidden` if a newer token may not read the room.
    """

    def __init__(
        self, room: str, socket: Socket, start: Position, last: int | None, on_reset: str, buffer_max: int
    ) -> None:
        self.room = room
        self.ref = ""
        self._socket = socket
        self._last = last
        self._on_reset = on_reset
        self._buffer_max = buffer_max
        #: Where the server is to continue, and where the reader is.
        self._cursor = self._position = start
        #: Before the first of the `last` messages, once it is known. Goes out until a message came; filters nothing, since
        #: positions may have gaps.
        self._resume: int | None = None
        #: Whether `subscribed` came on this connection. What comes before belongs to an older subscription.
        self._is_announced = False
        self._events: deque[tuple[RoomEvent, Position]] = deque()
        self._changed = asyncio.Event()
        self.is_paused = False
        self._is_over = False
        self._error: HubbubError | None = None
        socket.follow(self)

    @property
    def position(self) -> Position:
        """Behind the last event that was taken: keep it to continue there with another client."""
        return self._position

    def close(self) -> None:
        """Ends the subscription. What is buffered can still be taken."""
        self._socket.leave(self)
        self.end(None)

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def __anext__(self) -> RoomEvent:
        while not self._events:
            if self._error:
                error, self._error = self._error, None
                raise error
            if self._is_over:
                raise StopAsyncIteration
            self._changed.clear()
            with self._socket.holding(self):
                await self._changed.wait()
        event, self._position = self._events.popleft()
        if self.is_paused and not self._is_over and len(self._events) <= self._buffer_max // 2:
            self._socket.resume(self)
        return event

    # ---- What the socket tells -------------------------------------------------------------------------------------

    def frame(self) -> dict[str, Any]:
        frame: dict[str, Any] = {"type": "subscribe", "roomId": self.room, "onReset": self._on_reset}
        cursor = self._known()
        if cursor.seq is not None:
            frame |= {"after": cursor.seq}
            if cursor.epoch is not None:
                frame |= {"epoch": cursor.epoch}
        elif self._last:
            frame |= {"last": self._last}
        return frame

    def _known(self) -> Position:
        return self._cursor if self._cursor.seq is not None else Position(self._cursor.epoch, self._resume)

    def on_subscribed(self, frame: dict[str, Any]) -> None:
        self._is_announced = True
        epoch, seq = self._cursor.epoch, self._cursor.seq
        # Without `last`, the first message is the next after the head.
        if seq is None and (not self._last or frame["head"] == 0):
            seq = frame["head"]
        elif seq is None and self._last and self._resume is None:
            # Asking for the newest ones again would leave out what came meanwhile.
            self._resume = max(frame["head"] - self._last, frame["oldest"] - 1, 0)
        # A cursor of another epoch is answered by a `reset` next, which carries the new epoch.
        if epoch is None or not (self._resume if seq is None else seq):
            epoch = frame["epoch"]
        self._cursor = Position(epoch, seq)
        self._push(Ready(frame["epoch"], frame["oldest"], frame["head"]))

    def on_reset(self, frame: dict[str, Any]) -> None:
        if not self._is_announced:
            return
        was_replaced = self._cursor.epoch is not None and self._cursor.epoch != frame["epoch"]
        # 0 is never answered with another reset.
        self._cursor = Position(frame["epoch"], frame["head"] if self._on_reset == "live" else 0)
        self._push(Reset(frame["epoch"], frame["oldest"], frame["head"], was_replaced))

    def on_message(self, frame: dict[str, Any]) -> None:
        if not self._is_announced or frame["seq"] <= (self._cursor.seq or 0):
            return
        self._cursor = Position(self._cursor.epoch, frame["seq"])
        self._push(MessageEvent(Message.of(frame)))
        if len(self._events) >= self._buffer_max:
            self._is_announced = False
            self._socket.pause(self)

    def on_disconnected(self) -> None:
        self._is_announced = False

    def end(self, error: HubbubError | None) -> None:
        if not self._is_over:
            self._is_over = True
            self._error = error
            self._changed.set()

    def _push(self, event: RoomEvent) -> None:
        # A server that comes and goes fills nothing.
        if isinstance(event, Ready) and self._events and isinstance(self._events[-1][0], Ready):
            self._events.pop()
        self._events.append((event, self._known()))
        self._changed.set()
