"""Interrupts of a thread that waits for an event."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from hubbub import BlockingClient, MessageEvent, Position
from hubbub._blocking import BlockingStream

from .scripted import OPTIONS, Peer, Scripted


def interrupted(stream: BlockingStream[Any], is_behind: bool, on_wait: Callable[[], object] = lambda: None) -> None:
    """Asks for the next event, and is interrupted when it waits, or when it has waited and has nothing yet."""

    def result(future: concurrent.futures.Future[Any], timeout: float | None = None) -> Any:
        on_wait()
        if is_behind:
            concurrent.futures.wait([future])
        raise KeyboardInterrupt

    with patch("concurrent.futures.Future.result", result):
        try:
            next(stream)
        except KeyboardInterrupt:
            return
    raise AssertionError("it was not interrupted")


class Interrupts(Scripted):
    async def test_one_that_comes_with_an_event_does_not_lose_it(self) -> None:
        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            await peer.subscribed(frame, 3)
            for seq in (1, 2, 3):
                await peer.message("r", seq)

        url = (await self.socket(on_frame))._http.url

        def follow() -> tuple[list[int], list[Position]]:
            found, positions = [], []
            with BlockingClient(url, user="ada", options=OPTIONS) as client:
                stream = client.room("r").subscribe(after=0)
                next(stream)
                for _ in range(3):
                    interrupted(stream, is_behind=True)
                    positions.append(stream.position)
                    event = next(stream)
                    assert isinstance(event, MessageEvent)
                    found.append(event.message.seq)
                positions.append(stream.position)
            return found, positions

        found, positions = await asyncio.wait_for(asyncio.to_thread(follow), 20)
        self.assertEqual(found, [1, 2, 3])
        self.assertEqual([position.seq for position in positions], [0, 1, 2, 3])

    async def test_one_that_comes_before_the_event_leaves_it_to_the_next_call(self) -> None:
        waiting = threading.Event()
        peers: list[Peer] = []

        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            if frame["type"] == "subscribe":
                await peer.subscribed(frame)
                peers.append(peer)

        url = (await self.socket(on_frame))._http.url

        def follow() -> int:
            with BlockingClient(url, user="ada", options=OPTIONS) as client:
                stream = client.room("r").subscribe(after=0)
                next(stream)
                for _ in range(3):
                    interrupted(stream, is_behind=False)
                waiting.set()
                event = next(stream)
                assert isinstance(event, MessageEvent)
                return event.message.seq

        following = asyncio.create_task(asyncio.to_thread(follow))
        await asyncio.to_thread(waiting.wait, 20)
        await peers[0].message("r", 1)
        self.assertEqual(await asyncio.wait_for(following, 20), 1)

    async def test_a_watch_loses_none_either(self) -> None:
        text = 'event: watching\ndata: {"epoch":"e","after":4}\n\n' + "".join(
            f'id: e:{revision}\nevent: put\ndata: {{"key":"k","revision":{revision}}}\n\n' for revision in (5, 6)
        )
        url, _ = await self.answering((200, text, {"content-type": "text/event-stream"}))

        def follow() -> list[tuple[Any, int | None]]:
            found = []
            with BlockingClient(url, options=OPTIONS) as client, client.keys.watch(after=4) as watch:
                for is_behind in (False, True):
                    interrupted(watch, is_behind)
                for _ in range(3):
                    event = next(watch)
                    found.append((getattr(event, "revision"), watch.position.seq))
            return found

        self.assertEqual(await asyncio.wait_for(asyncio.to_thread(follow), 20), [(4, 4), (5, 5), (6, 6)])
