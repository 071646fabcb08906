"""Subscriptions that nobody reads any more, and rooms beside busy ones."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from hubbub import BlockingClient, HubbubError, MessageEvent, Options, Subscription

from .scripted import OPTIONS, Peer, Scripted


class Leaving(Scripted):
    async def rooms(self) -> tuple[Any, list[str]]:
        """A client of a server with one message in each room, and what it was asked for."""
        asked: list[str] = []

        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            asked.append(frame["type"])
            if frame["type"] == "unsubscribe":
                return await peer.answer(type="unsubscribed", roomId=frame["roomId"])
            await peer.subscribed(frame, 1)
            await peer.message(frame["roomId"], 1)

        return await self.socket(on_frame), asked

    async def test_a_loop_that_is_left_ends_its_subscription(self) -> None:
        client, asked = await self.rooms()
        for _ in range(2):
            async for event in client.room("r").subscribe(after=0):
                if isinstance(event, MessageEvent):
                    break
        gc.collect()
        while len(asked) < 4:
            await asyncio.sleep(0.001)
        self.assertEqual(asked, ["subscribe", "unsubscribe"] * 2)

    async def test_what_is_still_read_is_not_ended(self) -> None:
        client, asked = await self.rooms()

        async def read(subscription: Subscription) -> int:
            async for event in subscription:
                if isinstance(event, MessageEvent):
                    return event.message.seq
            return 0

        self.assertEqual(await asyncio.create_task(read(client.room("r").subscribe(after=0))), 1)

    async def test_a_task_that_nothing_else_holds_reads_on(self) -> None:
        peers: list[Peer] = []

        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            await peer.subscribed(frame)
            peers.append(peer)

        client = await self.socket(on_frame)
        came = asyncio.Event()

        async def read() -> None:
            async for event in client.room("r").subscribe(after=0):
                if isinstance(event, MessageEvent):
                    came.set()

        asyncio.create_task(read())
        while not peers:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        gc.collect()
        await peers[0].message("r", 1)
        await asyncio.wait_for(came.wait(), 20)

    async def test_it_ends_with_its_block_and_a_second_one_is_refused(self) -> None:
        client, asked = await self.rooms()
        for _ in range(2):
            async with client.room("r").subscribe(after=0) as subscription:
                self.assertEqual((await subscription.__anext__()).type, "ready")
                with self.assertRaises(HubbubError) as raised:
                    client.room("r").subscribe()
                self.assertEqual(raised.exception.code, "invalid")
        while asked[-1] != "unsubscribe":
            await asyncio.sleep(0.001)

    async def test_a_loop_of_a_thread_does_so_too(self) -> None:
        client, asked = await self.rooms()

        def follow() -> None:
            with BlockingClient(client._http.url, options=OPTIONS) as blocking:
                for _ in range(2):
                    for event in blocking.room("r").subscribe(after=0):
                        if isinstance(event, MessageEvent):
                            break
                with blocking.room("r").subscribe(after=0) as subscription:
                    next(subscription)
                with blocking.room("r").subscribe(after=0) as subscription:
                    next(subscription)

        await asyncio.wait_for(asyncio.to_thread(follow), 20)


class Fairness(Scripted):
    async def test_no_room_waits_for_ever_while_others_are_busy(self) -> None:
        served: dict[str, int] = {}
        over = asyncio.Event()

        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            room = frame["roomId"]
            served[room] = served.get(room, 0) + 1
            if sum(served.values()) >= 600:
                over.set()
            await peer.ack(frame, 1)

        client = await self.socket(on_frame, Options(waiting_max=1_000_000))

        async def busy(room: str) -> None:
            while True:
                await client.room(room).send("text")

        senders = [asyncio.create_task(busy(room)) for room in "abcdefghij" for _ in range(200)]
        await asyncio.wait_for(over.wait(), 20)
        for sender in senders:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)
        self.assertEqual(set(served), set("abcdefghij"))
        self.assertGreaterEqual(min(served.values()), 20)
