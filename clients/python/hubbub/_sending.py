"""What has no receipt yet, room by room, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ._errors import HubbubError
from ._life import Question
from ._options import Options
from ._types import Receipt

#: Most unanswered frames, over all rooms; the server stops reading a socket at 1,024.
UNANSWERED_MAX = 256


class Outgoing:
    """A message and its future receipt."""

    def __init__(self, frame: dict[str, Any]) -> None:
        self.frame = frame
        self.ref = ""
        #: By its last frame.
        self.asked: Question | None = None
        #: Given up on the way: it keeps its place until its answer comes, and does not go out again.
        self.is_given_up = False
        self.done: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()

    @property
    def room(self) -> str:
        return str(self.frame["roomId"])

    def fail(self, error: HubbubError) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Lane:
    """The messages of one room, oldest first. The first `sent` of them are on the way."""

    def __init__(self) -> None:
        self.waiting: list[Outgoing] = []
        self.sent = 0
        #: Set after a refusal: nothing is sent until all answers have come and the pause is over.
        self.is_held = False
        self.timer: asyncio.TimerHandle | None = None
        self.failures = 0
        #: Most messages on the way: one after a refusal, doubled by each receipt, so that a busy server is asked gently.
        self.window = 1 << 30


class Lanes:
    def __init__(
        self, options: Options, transmit: Callable[[dict[str, Any], Question | None], bool], backoff: Callable[[int], float]
    ) -> None:
        self._options = options
        self._transmit = transmit
        self._backoff = backoff
        self._lanes: dict[str, Lane] = {}
        #: By `ref`, in the order of sending.
        self._unanswered: dict[str, Outgoing] = {}
        self._waiting = 0
        self._refs = 0
        self._is_open = False
        #: A ping came, and may precede a refusal: what goes out behind its pong must wait for the next answer.
        self._is_gated = False

    def send(self, frame: dict[str, Any]) -> Outgoing:
        outgoing = Outgoing(frame)
        if self._waiting >= self._options.waiting_max:
            detail = f"{self._waiting} messages wait already"
            raise HubbubError({"code": "queue_full", "detail": detail, "retryable": True})
        self._waiting += 1
        lane = self._lanes.setdefault(outgoing.room, Lane())
        lane.waiting.append(outgoing)
        self._flush(lane)
        return outgoing

    def cancel(self, outgoing: Outgoing) -> None:
        """Gives it up. What is on the way may be stored nevertheless."""
        if outgoing.ref not in self._unanswered:
            self._remove(outgoing)
        elif not outgoing.is_given_up:
            # Its answer is still to come: until then it counts among what is on the way, and a ping's gate stays.
            outgoing.is_given_up = True
            self._waiting -= 1

    def _drop_given_up(self, lane: Lane) -> None:
        for outgoing in [outgoing for outgoing in lane.waiting if outgoing.is_given_up]:
            self._remove(outgoing)

    def fail_all(self, error: HubbubError) -> None:
        for lane in list(self._lanes.values()):
            for outgoing in list(lane.waiting):
                self._remove(outgoing)
                outgoing.fail(error)

    def oldest(self) -> Question | None:
        """The oldest frame without an answer."""
        return next((outgoing.asked for outgoing in self._unanswered.values()), None)

    # ---- The connection --------------------------------------------------------------------------------------------

    def on_open(self) -> None:
        self._is_open = True
        self._flush_all()

    def on_lost(self, was_too_big: bool) -> None:
        """Everything unanswered will be sent again, but for what made the frame too big."""
        self._is_open = self._is_gated = False
        largest = max(self._unanswered.values(), key=lambda outgoing: len(outgoing.frame["message"]), default=None)
        self._unanswered.clear()
        for lane in list(self._lanes.values()):
            lane.sent = 0
            self._release(lane)
            self._drop_given_up(lane)
        if was_too_big and largest:
            self._remove(largest)
            largest.fail(HubbubError({"code": "too_large", "detail": "the server takes no frame as big as this"}))

    def on_ping(self) -> None:
        self._is_gated = bool(self._unanswered)

    # ---- Answers ---------------------------------------------------------------------------------------------------

    def on_ack(self, frame: dict[str, Any]) -> None:
        outgoing = self._unanswered.pop(frame.get("ref", ""), None)
        if outgoing is None:
            return
        self._remove(outgoing)
        if not outgoing.done.done():
            outgoing.done.set_result(Receipt.of(frame))
        lane = self._lanes.get(outgoing.room)
        if lane and not lane.is_held:
            lane.failures = 0
            lane.window = min(lane.window * 2, 1 << 30)
        self._answered(outgoing.room)

    def on_refused(self, frame: dict[str, Any]) -> bool:
        """Whether the error answers one of these."""
        ref = frame.get("ref")
        outgoing = self._unanswered.pop(ref, None) if isinstance(ref, str) else None
        if outgoing is None:
            return False
        if frame.get("retryable"):
            lane = self._lanes[outgoing.room]
            lane.is_held = True
            lane.window = 1
        else:
            self._remove(outgoing)
            outgoing.fail(HubbubError(frame))
        self._answered(outgoing.room)
        return True

    def _answered(self, room: str) -> None:
        self._is_gated = False
        self._go_on(room)
        self._flush_all()

    def _go_on(self, room: str) -> None:
        """After a refusal, waits for all answers and then for the pause, to keep the order."""
        lane = self._lanes.get(room)
        if lane is None or not lane.is_held or lane.timer:
            return
        if any(outgoing.ref in self._unanswered for outgoing in lane.waiting[: lane.sent]):
            return
        lane.sent = 0
        pause = self._backoff(lane.failures)
        lane.failures += 1
        lane.timer = asyncio.get_running_loop().call_later(pause, self._resume, lane)
        self._drop_given_up(lane)

    def _resume(self, lane: Lane) -> None:
        self._release(lane)
        self._flush(lane)

    @staticmethod
    def _release(lane: Lane) -> None:
        lane.is_held = False
        if lane.timer:
            lane.timer.cancel()
        lane.timer = None

    # ---- The lanes -------------------------------------------------------------------------------------------------

    def _flush_all(self) -> None:
        for lane in list(self._lanes.values()):
            self._flush(lane)

    def _flush(self, lane: Lane) -> None:
        most = min(len(lane.waiting), self._options.in_flight_max, lane.window)
        while (
            lane.sent < most and len(self._unanswered) < UNANSWERED_MAX
            and self._is_open and not self._is_gated and not lane.is_held
        ):
            outgoing = lane.waiting[lane.sent]
            lane.sent += 1
            # Behind the others: the next free slot is theirs.
            self._lanes[outgoing.room] = self._lanes.pop(outgoing.room)
            self._refs += 1
            outgoing.ref = f"m{self._refs}"
            outgoing.asked = Question()
            self._unanswered[outgoing.ref] = outgoing
            self._transmit({**outgoing.frame, "ref": outgoing.ref}, outgoing.asked)

    def _remove(self, outgoing: Outgoing) -> None:
        lane = self._lanes.get(outgoing.room)
        if lane is None or outgoing not in lane.waiting:
            return
        index = lane.waiting.index(outgoing)
        del lane.waiting[index]
        if not outgoing.is_given_up:
            self._waiting -= 1
        if index < lane.sent:
            lane.sent -= 1
        if not lane.waiting:
            self._release(lane)
            del self._lanes[outgoing.room]
