"""Keys with values, and their changes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, Union
from urllib.parse import quote, unquote_to_bytes, urlencode
from weakref import WeakSet

import aiohttp
from yarl import URL

from ._errors import HubbubError, unreachable
from ._http import Http, problem_of, strange
from ._troubles import told
from ._types import Position, Reset

T = TypeVar("T")

#: Most attempts to change a key that others change all the time.
CONFLICTS_MAX = 100

#: Longest event, in bytes.
EVENT_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True)
class KeyValue:
    value: bytes
    revision: int

    @property
    def text(self) -> str:
        return self.value.decode()


@dataclass(frozen=True)
class Put:
    revision: int
    created: bool


@dataclass(frozen=True)
class KeyReady:
    """The server shows the changes behind `revision`: at every connection."""

    type: ClassVar[str] = "ready"
    epoch: str
    revision: int


@dataclass(frozen=True)
class KeyChange:
    #: `put`, `delete` or `expire`.
    type: str
    key: str
    revision: int


KeyEvent = Union[KeyReady, KeyChange, Reset]


def _encoded(key: str, safe: str = "") -> str:
    return quote(key.encode("utf-8", "surrogateescape"), safe=safe)


def _text(encoded: str) -> str:
    """The key as text. Bytes that are no text become surrogates, which are written back as they were."""
    return unquote_to_bytes(encoded).decode("utf-8", "surrogateescape")


def _path(key: str) -> str:
    if any(segment in (".", "..") for segment in key.split("/")):
        fault = {"field": "key", "rule": "must have no segment . or .., use POST /v1/kv"}
        raise HubbubError({"code": "invalid", "errors": [fault]})
    return "/kv/" + _encoded(key, safe="/")


def _condition(revision: int | None) -> dict[str, str]:
    if revision is None:
        return {}
    return {"If-None-Match": "*"} if revision == 0 else {"If-Match": f'"{revision}"'}


def _revision(headers: Any) -> int:
    """A proxy that compresses what it passes on makes the tag a weak one."""
    tag: str | None = headers.get("etag")
    found = re.fullmatch(r'(?:W/)?"([0-9]+)"', tag or "")
    if not found:
        raise strange("no ETag" if tag is None else f"ETag: {tag}")
    return int(found[1])


def _open_if_repeated(error: HubbubError) -> HubbubError:
    """An answer that an earlier attempt of the same call may have caused says nothing."""
    if not error.is_open or error.code != "condition_failed":
        return error
    detail = "an attempt without an answer may have taken effect; read the key"
    return HubbubError({**error.problem, "code": "unconfirmed", "detail": detail, "retryable": False})


class Keys:
    def __init__(self, http: Http) -> None:
        self._http = http
        self._watches: WeakSet[Watch] = WeakSet()

    async def get(self, key: str) -> KeyValue | None:
        try:
            answer = await self._http.call("GET", _path(key))
        except HubbubError as error:
            if error.code == "unknown_key":
                return None
            raise
        return KeyValue(answer.body, _revision(answer.headers))

    async def put(
        self, key: str, value: str | bytes, *, revision: int | None = None, ttl: float | None = None
    ) -> Put:
        """Stores a value, for `ttl` seconds.

        With `revision` only if the key still has that one (0 = does not exist): otherwise raises `condition_failed`.
        Either way it raises `unconfirmed` if an attempt without an answer may have stored it, and somebody else's value
        is there now.
        """
        body = value.encode() if isinstance(value, str) else value
        if revision is not None:
            return await self._put_if(key, body, revision, ttl)

        async def change(seen: int) -> Put:
            try:
                return await self._put_if(key, body, seen, ttl)
            except HubbubError as error:
                found = await self.get(key) if error.code == "unconfirmed" else None
                if found is None or found.value != body:
                    raise
                return Put(found.revision, seen == 0)

        return await self._as_it_is(key, change)

    async def _as_it_is(self, key: str, change: Callable[[int], Awaitable[T]]) -> T:
        """Changes a key whatever its revision is, but each attempt names the one it saw.

        An attempt that got no answer must not take effect behind later changes; but the absence of
        a key is true again after a delete.
        """
        conflicts = 0
        while True:
            try:
                return await change(await self._revision(key))
            except HubbubError as error:
                # Somebody else was faster.
                conflicts += 1
                if error.code != "condition_failed" or conflicts == CONFLICTS_MAX:
                    raise

    async def _revision(self, key: str) -> int:
        """0 if there is no such key."""
        try:
            return _revision((await self._http.call("HEAD", _path(key))).headers)
        except HubbubError as error:
            # This answer has no body: its type tells the server's from a proxy's.
            if error.status == 404 and str(error.problem.get("contentType")).startswith("application/problem+json"):
                return 0
            if error.status != 403:
                raise
            detail = "the key is read first, as no revision was given: that needs the right to read it"
            raise HubbubError({**error.problem, "detail": detail}) from None

    async def _put_if(self, key: str, body: bytes, revision: int, ttl: float | None) -> Put:
        headers = _condition(revision)
        if ttl is not None:
            headers["Hubbub-TTL"] = str(ttl)
        try:
            answer = await self._http.call("PUT", _path(key), body, headers)
        except HubbubError as error:
            raise _open_if_repeated(error) from None
        if answer.status not in (201, 204):
            raise strange(f"status {answer.status}")
        return Put(_revision(answer.headers), answer.status == 201)

    async def delete(self, key: str, *, revision: int | None = None) -> bool:
        """Whether there was such a key. `revision` and errors as in `put`."""
        if revision is not None:
            return await self._delete_if(key, revision)

        async def change(seen: int) -> bool:
            try:
                return seen != 0 and await self._delete_if(key, seen)
            except HubbubError as error:
                if error.code != "unconfirmed" or await self._revision(key) != 0:
                    raise
                return True

        return await self._as_it_is(key, change)

    async def _delete_if(self, key: str, revision: int) -> bool:
        try:
            await self._http.done("DELETE", _path(key), headers=_condition(revision))
        except HubbubError as error:
            if error.code != "unknown_key":
                raise _open_if_repeated(error) from None
            if not error.is_open:
                raise HubbubError({**error.problem, "code": "condition_failed"}) from None
        return True

    async def list(
        self, *, prefix: str | None = None, after: str | None = None, limit: int | None = None
    ) -> dict[str, Any]:
        """A page of keys in order. Its `revision` is where to watch from."""
        given = {"prefix": prefix and _encoded(prefix), "after": after and _encoded(after), "limit": limit}
        query = urlencode({name: value for name, value in given.items() if value is not None})
        page: dict[str, Any] = await self._http.json("keys", "GET", f"/v1/kv?{query}")
        page["keys"] = [{**entry, "key": _text(entry["key"])} for entry in page["keys"]]
        page["next"] = page["next"] and _text(page["next"])
        return page

    def watch(self, *, prefix: str | None = None, after: int | None = None, epoch: str | None = None) -> Watch:
        """Follows changes: iterate over what it returns."""
        watch = Watch(self._http, prefix, Position(epoch, after))
        self._watches.add(watch)
        return watch

    def end_watches(self) -> None:
        """Closes them, as `Client.close` does: a stream does not end with its session."""
        for watch in list(self._watches):
            watch.close()


class Watch(AsyncIterator[KeyEvent]):
    """Changes of keys: `ready`, `put`, `delete`, `expire`, `reset`. They are read when they are asked for.

    It ends with `close`, or with the block of an `async with`.
    """

    def __init__(self, http: Http, prefix: str | None, start: Position) -> None:
        self._http = http
        self._prefix = prefix
        #: Where to continue, and where the caller is.
        self._cursor = self._position = start
        self._events = self._follow()
        #: The next event and the position behind it, until a caller has it.
        self._reading: asyncio.Task[tuple[KeyEvent, Position]] | None = None
        self._is_over = False

    @property
    def position(self) -> Position:
        """Behind the last event that was taken; its `seq` is the revision. Keep it to continue there."""
        return self._position

    def close(self) -> None:
        """Ends it, also while somebody waits for an event."""
        self._is_over = True
        if self._reading and not self._reading.done():
            self._reading.cancel()
        else:
            self._ending = asyncio.ensure_future(self._events.aclose())

    async def __anext__(self) -> KeyEvent:
        if self._is_over:
            raise StopAsyncIteration
        # A caller that gives up leaves it to the next one, also if it gives up when the event is there.
        self._reading = reading = self._reading or asyncio.ensure_future(self._next())
        try:
            with told(lambda: self._http.troubles.of(self)):
                event, self._position = await asyncio.shield(reading)
        except asyncio.CancelledError:
            if not reading.cancelled():
                raise
            self._forget(reading)
            if self._is_over:
                raise StopAsyncIteration from None
            raise
        except BaseException:
            self._forget(reading)
            raise
        self._forget(reading)
        return event

    async def __aenter__(self) -> Watch:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def _forget(self, reading: asyncio.Task[tuple[KeyEvent, Position]]) -> None:
        if self._reading is reading:
            self._reading = None

    async def _next(self) -> tuple[KeyEvent, Position]:
        event = await self._events.__anext__()
        return event, self._cursor

    async def _follow(self) -> AsyncGenerator[KeyEvent, None]:
        try:
            async for event in self._connections():
                yield event
        finally:
            self._http.troubles.set(self, None)

    async def _connections(self) -> AsyncIterator[KeyEvent]:
        attempt = 0
        while True:
            trouble = HubbubError({"code": "unreachable", "detail": "the connection was lost", "retryable": True})
            token = self._http.token
            try:
                async for event in self._connection():
                    attempt = 0
                    self._http.troubles.set(self, None)
                    if event:
                        yield event
            except HubbubError as error:
                if error.code in ("reset", "compacted"):
                    yield self._reset(error.problem)
                    continue
                self._http.heed_renewal(error, token)
                if not error.retryable:
                    raise
                trouble = error
            # `wait_for` may lose a cancellation that comes together with its result (before Python 3.12).
            if self._is_over:
                return
            self._http.troubles.set(self, trouble)
            await asyncio.sleep(self._http.options.pause(attempt, trouble.retry_after))
            attempt += 1

    def _reset(self, problem: dict[str, Any]) -> Reset:
        was_replaced = self._cursor.epoch is not None and self._cursor.epoch != problem["epoch"]
        self._cursor = Position(problem["epoch"], problem["head"])
        return Reset(problem["epoch"], problem["oldest"], problem["head"], was_replaced)

    async def _connection(self) -> AsyncIterator[KeyEvent | None]:
        given: dict[str, Any] = {"prefix": self._prefix and _encoded(self._prefix), "after": self._cursor.seq}
        if self._cursor.seq is not None:
            given["epoch"] = self._cursor.epoch
        query = urlencode({name: value for name, value in given.items() if value is not None})
        async for fields in _events(self._http, f"/v1/kv/watch?{query}"):
            found = re.fullmatch(r"(.*):(\d+)", fields.get("id", ""))
            if found:
                self._cursor = Position(found[1], int(found[2]))
            kind, data = fields.get("event", ""), json.loads(fields.get("data", "null"))
            if kind == "watching":
                self._cursor = Position(data["epoch"], data["after"])
                yield KeyReady(data["epoch"], data["after"])
            elif kind == "error":
                raise HubbubError(data)
            elif kind in ("put", "delete", "expire"):
                yield KeyChange(kind, _text(data["key"]), data["revision"])
            else:
                yield None


async def _events(http: Http, path: str) -> AsyncIterator[dict[str, str]]:
    """The fields of each event of one connection. Ends when the server ends it."""
    options = http.options
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=options.answer_max, sock_read=options.silence_max)
    headers = {**http.headers(), "Accept": "text/event-stream"}
    text = b""
    try:
        url = URL(http.url + path, encoded=True)
        connecting = http.session.get(url, headers=headers, timeout=timeout, proxy=options.proxy)
        async with await asyncio.wait_for(connecting, options.answer_max) as response:
            if response.status >= 300:
                raise problem_of(response.status, response.headers, await response.read())
            async for chunk in response.content.iter_any():
                *whole, text = (text + chunk).split(b"\n\n")
                for event in whole:
                    lines = (line.partition(": ") for line in event.decode().split("\n"))
                    yield {name: value for name, _, value in lines}
                if len(text) > EVENT_BYTES_MAX:
                    raise HubbubError({"code": "protocol", "detail": "an event without an end"})
    except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
        raise unreachable(error) from error
