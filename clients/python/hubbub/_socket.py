"""One socket for any number of rooms: reconnects, subscribes again, sends again what has no receipt yet.

- A message keeps its id and its place in the room until its receipt comes.
- A subscription keeps (epoch, seq) and continues behind it.
- Nothing here grows without bound: messages that wait, frames without an answer, events nobody has taken.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import quote

import aiohttp

from ._errors import HubbubError, unreachable
from ._followers import Follower, Followers
from ._http import Http, retry_after_of
from ._life import Life, Question
from ._options import OVERLOAD_ATTEMPT
from ._sending import Lanes
from ._troubles import told
from ._types import Receipt

UNAUTHORIZED = 4401
#: Close codes after which reconnecting is pointless; see docs/protocol.md.
FINAL_CODES = {1002: "protocol", 1003: "protocol", 1007: "protocol", 1008: "protocol", 4400: "protocol",
               UNAUTHORIZED: "unauthorized", 4403: "forbidden"}
GOING_AWAY = 1001
#: Answers to the handshake, and the close codes that mean the same.
REFUSALS = {401: UNAUTHORIZED, 403: 4403, 408: 1006, 429: 4429, 503: 1013}
#: The close code of other answers that blame the client.
REFUSED = 4400
#: Longest wait in seconds that a server may ask for.
GIVEN_WAIT_MAX = 60.0
TOO_BIG = 1009
#: A server that has too much to do.
OVERLOAD_CODES = (1013, 4429)
#: Longest frame, in bytes: 16 MiB of text with every byte escaped, and its envelope.
FRAME_BYTES_MAX = 100 * 1024 * 1024
#: Longest time for a close to be answered, in seconds.
GOODBYE_MAX = 0.5


class Ended(NamedTuple):
    """How a connection ended: the close code, also of a handshake that failed, and its reason."""

    code: int
    reason: str
    #: Seconds that a refused handshake asks to wait.
    retry_after: float = 0.0
    #: What a refused handshake says, or why there was none.
    problem: dict[str, Any] | None = None

    def given_wait(self) -> float | None:
        """The wait that a server which shuts down gives each client, in seconds, so that they do not return all at once."""
        found = re.search(r"reconnect after (\d+) ms", self.reason) if self.code == GOING_AWAY else None
        return min(int(found[1]) / 1000, GIVEN_WAIT_MAX) if found else None


#: The close code of a connection that was lost on the way.
LOST = 1006


class Socket:
    def __init__(self, http: Http) -> None:
        self._http = http
        self._options = http.options
        self._followers = Followers()
        #: Those somebody waits for, each as often.
        self._held: list[Follower] = []
        #: Rooms that are left on this connection, each with the ref of the frame.
        self._leaving: dict[str, str] = {}
        self._lanes = Lanes(http.options, self._transmit, self.backoff)
        self._refs = 0
        self._attempt = 0
        self._life = Life()
        self._is_open = False
        self._is_closed = False
        #: Frames to write, text or the payload of a pong; bounded by the unanswered ones and the subscriptions.
        self._frames: asyncio.Queue[tuple[str | bytes, Question | None]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    # ---- The connection --------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Connects, and keeps reconnecting until it is closed or the server refuses for good."""
        if not self._is_closed and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Ends it. Messages without a receipt fail with code `closed`."""
        self._is_closed = True
        while self._task and not self._task.done():
            self._task.cancel()
            # `wait_for` may lose a cancellation that comes together with its result (before Python 3.12).
            await asyncio.wait([self._task], timeout=GOODBYE_MAX)
        self._end({"code": "closed", "detail": "the client was closed"})

    def renew(self, token: str) -> None:
        """Goes on with another token of the same user."""
        self._transmit({"type": "auth", "ref": "auth", "token": token})

    def backoff(self, attempt: int) -> float:
        return self._options.pause(attempt)

    async def _run(self) -> None:
        while not self._is_closed:
            token = self._http.token
            try:
                ended = await self._connection(token)
            except Exception as error:
                # Whoever waits would wait for ever.
                return self._end({"code": "unexpected", "detail": f"the connection failed: {error!r}"})
            code = ended.code
            detail = ended.reason or f"the connection was closed with {code}"
            lost = {"code": "unreachable", "detail": detail, "retryable": True}
            self._http.troubles.set(self, HubbubError(ended.problem or lost))
            # Another token was given since. On this connection it came too late, or was refused.
            is_outdated = code == UNAUTHORIZED and self._http.token != token
            if code in FINAL_CODES and not is_outdated:
                problem = ended.problem or {"code": FINAL_CODES[code], "detail": detail}
                return self._end({**problem, "retryable": False})
            if code in OVERLOAD_CODES:
                self._attempt = max(self._attempt, OVERLOAD_ATTEMPT)
            given = ended.given_wait()
            retry_after = min(GIVEN_WAIT_MAX, ended.retry_after)
            pause = self._options.pause(self._attempt, retry_after) if given is None else given
            self._attempt += 1
            await asyncio.sleep(pause)

    async def _connection(self, token: str | None) -> Ended:
        """One connection, from its handshake with this token to its end."""
        http = self._http
        url = re.sub("^http", "ws", http.url) + "/v1/ws"
        if http.user is not None:
            url += f"?user={quote(http.user, safe='')}"
        http.refusal = http.transport = None
        try:
            # Pongs are written here, in their place among the frames: the order after a refusal depends on that.
            connecting = http.session.ws_connect(
                url, headers=http.headers(), autoping=False, autoclose=False, max_msg_size=FRAME_BYTES_MAX, compress=0,
                proxy=self._options.proxy,
            )
            socket = await asyncio.wait_for(connecting, self._options.answer_max)
        except aiohttp.WSServerHandshakeError as error:
            code = REFUSALS.get(error.status, REFUSED if 300 <= error.status < 500 else LOST)
            reason = f"the server answered {error.status}"
            problem = http.refusal.problem if http.refusal else None
            return Ended(code, reason, retry_after_of(error.status, error.headers or {}), problem)
        except HubbubError as error:
            # A redirect that could be followed, or the client was closed.
            is_final = error.status and not error.retryable
            return Ended(REFUSED if is_final else LOST, str(error), error.retry_after, error.problem)
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError) as error:
            return Ended(LOST, str(error), problem=unreachable(error).problem)
        self._on_open(token)
        reading = asyncio.create_task(self._read(socket))
        others = [asyncio.create_task(self._write(socket)), asyncio.create_task(self._watch())]
        try:
            await asyncio.wait([reading, *others], return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() else Ended(LOST, self._why_over(others))
        except ValueError as error:
            # Somebody stands between.
            return Ended(LOST, f"what the server sent is no JSON: {error}")
        finally:
            self._on_lost(reading)
            for part in [reading, *others]:
                part.cancel()
            await asyncio.gather(reading, *others, return_exceptions=True)
            await self._drop_socket(socket)

    @staticmethod
    async def _drop_socket(socket: aiohttp.ClientWebSocketResponse) -> None:
        """Says goodbye to a peer that may not answer."""
        try:
            await asyncio.wait_for(socket.close(), GOODBYE_MAX)
        except (aiohttp.ClientError, asyncio.TimeoutError, OSError):
            pass

    def _on_open(self, token: str | None) -> None:
        """`token` is what the handshake said."""
        self._http.troubles.set(self, None)
        self._life.begin(self._http.transport)
        self._is_open = True
        self._frames = asyncio.Queue()
        renewed = self._http.token
        if renewed is not None and renewed != token:
            self.renew(renewed)
        for follower in self._followers.all():
            self._subscribe(follower)
        self._lanes.on_open()

    def _on_lost(self, reading: asyncio.Task[Ended]) -> None:
        self._is_open = False
        self._leaving.clear()
        for follower in self._followers.all():
            follower.on_disconnected()
        code = reading.result().code if reading.done() and not reading.cancelled() and not reading.exception() else 0
        self._lanes.on_lost(was_too_big=code == TOO_BIG)

    def _end(self, problem: dict[str, Any]) -> None:
        error = HubbubError(problem)
        followers, self._followers = self._followers, Followers()
        for follower in followers.all():
            follower.end(None if error.code == "closed" else error)
        self._lanes.fail_all(error)

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> Ended:
        while True:
            message = await socket.receive()
            self._life.heard()
            if message.type == aiohttp.WSMsgType.TEXT:
                self._on_frame(json.loads(message.data))
            elif message.type == aiohttp.WSMsgType.PING:
                self._lanes.on_ping()
                self._frames.put_nowait((bytes(message.data), None))
            elif message.type == aiohttp.WSMsgType.CLOSE:
                return Ended(int(message.data or LOST), message.extra or "")
            elif message.type != aiohttp.WSMsgType.PONG:
                return Ended(LOST, str(socket.exception() or ""))

    async def _write(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            frame, question = await self._frames.get()
            if isinstance(frame, str):
                await socket.send_str(frame)
            else:
                await socket.pong(frame)
            self._life.wrote()
            if question:
                question.written()

    async def _watch(self) -> None:
        """Ends when the connection is dead: a silent one is probed, one without an answer is given up."""
        silence_max, answer_max = self._options.silence_max, self._options.answer_max
        while True:
            await asyncio.sleep(min(silence_max, answer_max, 2.0) / 2)
            if self._life.is_over(self._lanes.oldest(), answer_max):
                return
            probe = self._life.probe_if_silent(silence_max)
            if probe:
                self._transmit({"type": "ping"}, probe)

    def _why_over(self, others: list[asyncio.Task[None]]) -> str:
        failed = [str(error) for task in others if task.done() and not task.cancelled() and (error := task.exception())]
        return failed[0] if failed else f"no answer for {self._options.answer_max} s"

    def _transmit(self, frame: dict[str, Any], question: Question | None = None) -> bool:
        if self._is_open:
            text = json.dumps(frame)
            if question:
                question.bytes = len(text)
            self._frames.put_nowait((text, question))
        return self._is_open

    # ---- Following -------------------------------------------------------------------------------------------------

    def follow(self, follower: Follower) -> None:
        self._leave_dropped()
        if self._followers.get(follower.room):
            raise HubbubError({"code": "invalid", "detail": f"{follower.room} is subscribed already"})
        loop = asyncio.get_running_loop()

        def on_dropped() -> None:
            # The loop may have ended.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._leave_dropped)

        self._followers.add(follower, on_dropped)
        self.connect()
        self._subscribe(follower)

    def leave(self, follower: Follower) -> None:
        if self._followers.remove(follower) and not follower.is_paused:
            self._leave(follower.room)

    def _leave_dropped(self) -> None:
        for room in self._followers.take_dropped():
            self._leave(room)

    @contextmanager
    def holding(self, follower: Follower) -> Iterator[None]:
        """Nothing else may hold a task that waits for its event."""
        self._held.append(follower)
        try:
            with told(lambda: self._http.troubles.of(self)):
                yield
        finally:
            self._held.remove(follower)

    def pause(self, follower: Follower) -> None:
        follower.is_paused = True
        self._leave(follower.room)

    def resume(self, follower: Follower) -> None:
        follower.is_paused = False
        if self._followers.get(follower.room) is follower:
            self._subscribe(follower)

    def _subscribe(self, follower: Follower) -> None:
        # A new subscription waits until the server has ended the old one.
        if follower.room in self._leaving or follower.is_paused or not self._is_open:
            return
        follower.ref = self._next_ref("s")
        self._transmit({**follower.frame(), "ref": follower.ref})

    def _leave(self, room: str) -> None:
        ref = self._next_ref("u")
        if self._transmit({"type": "unsubscribe", "ref": ref, "roomId": room}):
            self._leaving[room] = ref

    def _on_left(self, room: str) -> None:
        self._leaving.pop(room, None)
        follower = self._followers.get(room)
        if follower:
            self._subscribe(follower)

    def _next_ref(self, kind: str) -> str:
        self._refs += 1
        return f"{kind}{self._refs}"

    # ---- Sending ---------------------------------------------------------------------------------------------------

    async def send(self, frame: dict[str, Any]) -> Receipt:
        self.connect()
        outgoing = self._lanes.send(frame)
        try:
            with told(lambda: self._http.troubles.of(self)):
                return await outgoing.done
        except asyncio.CancelledError:
            self._lanes.cancel(outgoing)
            raise

    # ---- Frames ----------------------------------------------------------------------------------------------------

    def _on_frame(self, frame: dict[str, Any]) -> None:
        kind = frame.get("type")
        if kind == "ack":
            self._attempt = 0
            self._lanes.on_ack(frame)
        elif kind == "error":
            self._on_error(frame)
        elif kind == "unsubscribed":
            self._on_left(frame["roomId"])
        elif kind in ("subscribed", "message", "reset"):
            follower = self._followers.get(frame["roomId"])
            if follower is None or (kind == "subscribed" and follower.ref != frame.get("ref")):
                return
            if kind == "subscribed":
                self._attempt = 0
                follower.on_subscribed(frame)
            elif kind == "reset":
                follower.on_reset(frame)
            else:
                follower.on_message(frame)

    def _on_error(self, frame: dict[str, Any]) -> None:
        if self._lanes.on_refused(frame):
            return
        ref = frame.get("ref")
        if ref is None:
            # It answers no frame: a subscription has ended. One that has not asked yet waits for the end of the one before.
            ended = self._followers.get(frame.get("roomId", ""))
            if ended is not None and ended.ref:
                self._drop(ended, frame)
            return
        again = asyncio.get_running_loop().call_later
        for follower in self._followers.all():
            if follower.ref == ref and frame.get("retryable"):
                again(self.backoff(OVERLOAD_ATTEMPT), self._subscribe_again, follower, ref)
            elif follower.ref == ref:
                self._drop(follower, frame)
        for room in [room for room, left in self._leaving.items() if left == ref]:
            if frame.get("retryable"):
                again(self.backoff(OVERLOAD_ATTEMPT), self._leave_again, room, ref)
            else:
                self._on_left(room)

    def _subscribe_again(self, follower: Follower, ref: str) -> None:
        # Another connection has subscribed already, with another ref.
        if self._followers.get(follower.room) is follower and follower.ref == ref:
            self._subscribe(follower)

    def _leave_again(self, room: str, ref: str) -> None:
        if self._leaving.get(room) == ref:
            self._leave(room)

    def _drop(self, follower: Follower, problem: dict[str, Any]) -> None:
        if self._followers.remove(follower):
            follower.end(HubbubError(problem))
