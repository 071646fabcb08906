"""Whether a connection lives. A frame may take longer than its answer may, so bytes count."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


#: What is written may wait where nobody sees it go, in the system's buffer or behind TLS: its answer has as much more time as
#: its bytes need at so many in a second.
SLOWEST_BYTES = 4 * 1024
#: Most of that, in seconds. The server gives a whole message no longer.
UPLOAD_MAX = 30.0


class Question:
    """A frame that waits for its answer."""

    def __init__(self) -> None:
        #: When it was queued.
        self.asked_at = time.monotonic()
        #: An answer may be read before this is known.
        self._written_at: float | None = None
        self.bytes = 0

    def written(self) -> None:
        self._written_at = time.monotonic()

    def since(self, wrote_at: float) -> float:
        """From when its answer can be expected. Until it is written, bytes of what is written say that the connection lives."""
        return max(self.asked_at, wrote_at) if self._written_at is None else self._written_at

    def upload_time(self) -> float:
        """How much longer its answer may take, once it is written, for its length."""
        return 0.0 if self._written_at is None else min(self.bytes / SLOWEST_BYTES, UPLOAD_MAX)


class Telling(asyncio.Protocol):
    """Says when bytes come: aiohttp tells of whole frames only."""

    def __init__(self, inner: asyncio.Protocol, on_bytes: Callable[[], None]) -> None:
        self._inner = inner
        self._on_bytes = on_bytes

    def data_received(self, data: bytes) -> None:
        self._on_bytes()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._inner.connection_lost(error)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class Life:
    """Of one connection after another."""

    def __init__(self) -> None:
        self._heard_at = self._wrote_at = 0.0
        self._transport: asyncio.Transport | None = None
        self._unwritten = 0
        self._probe: Question | None = None

    def begin(self, transport: asyncio.Transport | None) -> None:
        self._heard_at = self._wrote_at = time.monotonic()
        self._transport, self._unwritten, self._probe = transport, 0, None
        if transport:
            inner = transport.get_protocol()
            if isinstance(inner, asyncio.Protocol):
                transport.set_protocol(Telling(inner, self.heard))

    def heard(self) -> None:
        self._heard_at = time.monotonic()

    def wrote(self) -> None:
        self._wrote_at = time.monotonic()

    def probe_if_silent(self, silence_max: float) -> Question | None:
        """A probe to send, if it is time for one."""
        if self._probe and self._probe.asked_at < self._heard_at:
            self._probe = None
        if self._probe or time.monotonic() - self._heard_at <= silence_max:
            return None
        self._probe = Question()
        return self._probe

    def is_over(self, oldest: Question | None, answer_max: float) -> bool:
        """Whether it is dead: what was asked has no answer. `oldest` is the oldest message without one."""
        unwritten = self._transport.get_write_buffer_size() if self._transport else 0
        if unwritten < self._unwritten:
            self.wrote()
        self._unwritten = unwritten
        asked = [question.since(self._wrote_at) for question in (oldest, self._probe) if question]
        # A probe waits behind the message.
        answer_max += oldest.upload_time() if oldest else 0.0
        return bool(asked) and time.monotonic() - max(min(asked), self._heard_at) > answer_max
