"""A watch whose reader gives up at any moment."""

from __future__ import annotations

import asyncio

from .scripted import Scripted

STREAM = {"content-type": "text/event-stream"}
WATCHING = 'event: watching\ndata: {"epoch":"e","after":4}\n\n'


def put(revision: int) -> str:
    return f'id: e:{revision}\nevent: put\ndata: {{"key":"k","revision":{revision}}}\n\n'


class GivingUp(Scripted):
    async def test_in_the_moment_an_event_comes_loses_nothing(self) -> None:
        url, _ = await self.answering((200, WATCHING + put(5), STREAM))
        watch = (await self.client(url)).keys.watch()
        waiting = asyncio.ensure_future(watch.__anext__())
        await asyncio.sleep(0)
        reading = watch._reading
        assert reading
        # Called before the waiting one learns of it.
        reading.add_done_callback(lambda _: waiting.cancel())
        callbacks = reading._callbacks  # type: ignore[attr-defined]
        callbacks.insert(0, callbacks.pop())
        with self.assertRaises(asyncio.CancelledError):
            await waiting
        self.assertTrue(reading.done())
        self.assertEqual([(await watch.__anext__()).type for _ in range(2)], ["ready", "put"])
        watch.close()

    async def test_leaves_the_position_behind_what_was_taken(self) -> None:
        url, _ = await self.answering((200, WATCHING + put(5) + put(6), STREAM))
        watch = (await self.client(url)).keys.watch(after=4, epoch="e")
        seen = []
        for _ in range(3):
            waiting = asyncio.ensure_future(watch.__anext__())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            assert watch._reading
            await asyncio.wait([watch._reading])
            before = watch.position.seq
            await watch.__anext__()
            seen.append((before, watch.position.seq))
        self.assertEqual(seen, [(4, 4), (4, 5), (5, 6)])
        watch.close()
