"""The same client for programs without an event loop: it has one of its own, in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from ._client import Client
from ._errors import HubbubError, closed
from ._keys import KeyEvent, Keys, KeyValue, Put
from ._options import Options
from ._queues import Delivery, Queue, QueueReceipt
from ._rooms import Room
from ._types import Position, Receipt, RoomEvent

T = TypeVar("T")
E_co = TypeVar("E_co", covariant=True)


class _Loop:
    """An event loop in a thread that ends with the program."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._is_stopped = False
        self.thread = threading.Thread(target=self.loop.run_forever, name="hubbub", daemon=True)
        self.thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._is_stopped:
                work.close()
                raise closed()
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except CancelledError:
            raise closed() from None
        except BaseException:
            # An interrupted call is given up.
            future.cancel()
            raise

    def call(self, function: Callable[[], T]) -> T:
        async def work() -> T:
            return function()

        return self.run(work())

    def stop(self) -> None:
        """Ends the thread. Calls that still wait are cancelled, later ones refused."""

        async def cancel_all() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        with self._lock:
            # Behind this, nobody would cancel a call.
            self._is_stopped = True
            cancelling = asyncio.run_coroutine_threadsafe(cancel_all(), self.loop)
        cancelling.result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class BlockingClient:
    """A server's rooms, queues and keys, with calls that block. Safe to use from any number of threads."""

    def __init__(
        self, url: str, token: str | None = None, *, user: str | None = None, username: str | None = None,
        options: Options | None = None,
    ) -> None:
        self._client = Client(url, token, user=user, username=username, options=options)
        self._loop = _Loop()
        #: Keys with values.
        self.keys = BlockingKeys(self._client.keys, self._loop)

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def room(self, name: str) -> BlockingRoom:
        return BlockingRoom(self._client.room(name), self._loop)

    def queue(self, name: str) -> BlockingQueue:
        return BlockingQueue(self._client.queue(name), self._loop)

    def set_token(self, token: str) -> None:
        self._loop.call(lambda: self._client.set_token(token))

    @property
    def last_error(self) -> HubbubError | None:
        """As `Client.last_error`."""
        return self._client.last_error

    def close(self) -> None:
        """Ends everything, also for threads that wait."""
        if not self._loop.loop.is_closed():
            self._loop.run(self._client.close())
            self._loop.stop()


class _Events(Protocol[E_co]):
    @property
    def position(self) -> Position: ...
    def close(self) -> None: ...
    async def __anext__(self) -> E_co: ...


class BlockingStream(Iterator[T], Generic[T]):
    """Events, one after another. It ends with `close`, or with the block of a `with`.

    It is for one thread at a time. An interrupt while it waits loses none: the next call brings the event.
    """

    def __init__(self, events: _Events[T], loop: _Loop) -> None:
        self._events = events
        self._loop = loop
        #: Taken in the loop's thread, and by no caller yet, each with the position behind it. An error, or the end, is given once.
        self._taken: deque[tuple[T, Position] | HubbubError | None] = deque()
        #: Two at a time would get the same event.
        self._taking = asyncio.Lock()
        self._position = events.position

    @property
    def position(self) -> Position:
        """Behind the last event that was taken: keep it to continue there with another client."""
        return self._position

    def __enter__(self) -> BlockingStream[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._loop.call(self._events.close)

    def __next__(self) -> T:
        while not self._taken:
            self._loop.run(self._take())
        first = self._taken[0]
        if isinstance(first, tuple):
            # An interrupt comes with a call, and there is none from here on: nothing parts the event from its position.
            del self._taken[0]
            self._position = first[1]
            return first[0]
        del self._taken[0]
        if first is None:
            raise StopIteration
        raise first

    async def _take(self) -> None:
        async with self._taking:
            if self._taken:
                return
            try:
                event = await self._events.__anext__()
            except StopAsyncIteration:
                self._taken.append(None)
            except HubbubError as error:
                self._taken.append(error)
            else:
                self._taken.append((event, self._events.position))


class BlockingRoom:
    def __init__(self, room: Room, loop: _Loop) -> None:
        self._room = room
        self._loop = loop
        self.name = room.name

    def send(self, text: str, **options: Any) -> Receipt:
        return self._loop.run(self._room.send(text, **options))

    def subscribe(self, **options: Any) -> BlockingStream[RoomEvent]:
        return BlockingStream(self._loop.call(lambda: self._room.subscribe(**options)), self._loop)

    def history(self, **parameters: Any) -> dict[str, Any]:
        return self._loop.run(self._room.history(**parameters))


class BlockingDelivery:
    """A message on lease."""

    def __init__(self, delivery: Delivery, loop: _Loop) -> None:
        self._delivery = delivery
        self._loop = loop
        self.id, self.message, self.deliveries = delivery.id, delivery.message, delivery.deliveries
        self.sender, self.receiver = delivery.sender, delivery.receiver

    def ack(self) -> None:
        self._loop.run(self._delivery.ack())

    def nack(self, *, delay_ms: int | None = None) -> None:
        self._loop.run(self._delivery.nack(delay_ms=delay_ms))

    def extend(self, lease_ms: int | None = None) -> None:
        self._loop.run(self._delivery.extend(lease_ms))


class BlockingQueue:
    def __init__(self, queue: Queue, loop: _Loop) -> None:
        self._queue = queue
        self._loop = loop
        self.name = queue.name

    def create(self, **settings: Any) -> dict[str, Any]:
        return self._loop.run(self._queue.create(**settings))

    def state(self) -> dict[str, Any]:
        return self._loop.run(self._queue.state())

    def send(self, message: str, **options: Any) -> QueueReceipt:
        return self._loop.run(self._queue.send(message, **options))

    def take(self, **options: Any) -> list[BlockingDelivery]:
        return [BlockingDelivery(delivery, self._loop) for delivery in self._loop.run(self._queue.take(**options))]

    def poll(self, handler: Callable[[BlockingDelivery], None], **options: Any) -> None:
        """As `Queue.poll`. The handler runs in a thread of its own; it may block and use this client.

        An interrupt does not end the handler.
        """

        async def in_thread(delivery: Delivery) -> None:
            await asyncio.to_thread(handler, BlockingDelivery(delivery, self._loop))

        self._loop.run(self._queue.poll(in_thread, **options))


class BlockingKeys:
    def __init__(self, keys: Keys, loop: _Loop) -> None:
        self._keys = keys
        self._loop = loop

    def get(self, key: str) -> KeyValue | None:
        return self._loop.run(self._keys.get(key))

    def put(self, key: str, value: str | bytes, *, revision: int | None = None, ttl: float | None = None) -> Put:
        return self._loop.run(self._keys.put(key, value, revision=revision, ttl=ttl))

    def delete(self, key: str, *, revision: int | None = None) -> bool:
        return self._loop.run(self._keys.delete(key, revision=revision))

    def list(self, **parameters: Any) -> dict[str, Any]:
        return self._loop.run(self._keys.list(**parameters))

    def watch(self, **options: Any) -> BlockingStream[KeyEvent]:
        return BlockingStream(self._loop.call(lambda: self._keys.watch(**options)), self._loop)
