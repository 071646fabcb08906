"""The rules of the socket: order, resumption, refusals, silence."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from unittest.mock import patch

from aiohttp import web

from hubbub import Client, HubbubError, MessageEvent, Options, Position, Subscription

from .scripted import OPTIONS, Peer, Scripted


async def take(subscription: Subscription, count: int) -> list[Any]:
    events = [await subscription.__anext__() for _ in range(count)]
    return [event.message.seq if isinstance(event, MessageEvent) else event.type for event in events]


class Sending(Scripted):
    async def test_after_an_overload_the_rest_goes_out_again_in_order(self) -> None:
        asked: list[str] = []
        stored: list[str] = []

        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            asked.append(frame["message"])
            if len(asked) <= 3:
                await peer.refuse(frame)
            else:
                stored.append(frame["message"])
                await peer.ack(frame, len(stored))

        room = (await self.socket(on_frame)).room("r")
        receipts = await asyncio.gather(*(room.send(text) for text in "abc"))
        self.assertEqual(stored, list("abc"))
        self.assertEqual([receipt.seq for receipt in receipts], [1, 2, 3])

    async def test_one_is_asked_for_after_a_refusal_then_more(self) -> None:
        waiting: list[tuple[dict[str, Any], Peer]] = []
        refused = 0

        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            nonlocal refused
            if refused < 4:
                refused += 1
                await peer.refuse(frame)
            else:
                waiting.append((frame, peer))

        room = (await self.socket(on_frame)).room("r")
        sends = asyncio.gather(*(room.send(text) for text in "abcd"))
        widths = []
        seq = 0
        while seq < 4:
            while not waiting:
                await asyncio.sleep(0.001)
            # What is on the way is all there: everything else waits for an answer.
            await asyncio.sleep(0.02)
            widths.append(len(waiting))
            for frame, peer in [waiting.pop(0) for _ in range(len(waiting))]:
                seq += 1
                await peer.ack(frame, seq)
        await sends
        self.assertEqual(widths[0], 1)
        self.assertLessEqual(len(widths), 3)

    async def test_nothing_overtakes_a_refusal_behind_its_pong(self) -> None:
        texts: list[str] = []
        first: list[dict[str, Any]] = []
        pinged = asyncio.Event()

        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            texts.append(frame["message"])
            if len(texts) > 1:
                return await peer.ack(frame, len(texts))
            first.append(frame)
            await peer.socket.ping(b"12345678")

            async def refuse_later() -> None:
                # The server takes frames again from here on.
                await peer.ponged.wait()
                pinged.set()
                await overtaking.wait()
                await peer.refuse(frame)

            tasks.append(asyncio.create_task(refuse_later()))

        tasks: list[asyncio.Task[None]] = []
        overtaking = asyncio.Event()
        room = (await self.socket(on_frame)).room("r")
        one = asyncio.create_task(room.send("one"))
        await pinged.wait()
        two = asyncio.create_task(room.send("two"))
        for _ in range(20):
            await asyncio.sleep(0)
        overtaking.set()
        await asyncio.gather(one, two, *tasks)
        self.assertEqual(texts, ["one", "one", "two"])

    async def test_what_is_given_up_behind_a_ping_holds_nothing_up(self) -> None:
        first: asyncio.Future[tuple[dict[str, Any], Peer]] = asyncio.get_running_loop().create_future()

        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            if frame["message"] != "given up":
                return await peer.ack(frame, 2)
            await peer.socket.ping(b"12345678")
            first.set_result((frame, peer))

        client = await self.socket(on_frame)
        given_up = asyncio.create_task(client.room("r").send("given up"))
        frame, peer = await first
        await peer.ponged.wait()
        given_up.cancel()
        later = asyncio.gather(client.room("r").send("next"), client.room("s").send("elsewhere"))
        # Both have their places. A silent connection is probed after 40 s: that would help, too.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await peer.ack(frame, 1)
        await asyncio.wait_for(later, 20)

    async def test_what_is_given_up_is_not_sent_again(self) -> None:
        texts: list[str] = []
        first = asyncio.Event()

        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            texts.append(frame["message"])
            first.set()
            if peer.number == 2:
                await peer.ack(frame, 1)
            elif frame["message"] == "close":
                await peer.socket.close(code=4409)

        client = await self.socket(on_frame)
        given_up = asyncio.create_task(client.room("r").send("given up"))
        await first.wait()
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        sends = asyncio.gather(client.room("r").send("next"), client.room("s").send("close"))
        await asyncio.wait_for(sends, 60)
        self.assertEqual(texts.count("given up"), 1)

    async def test_a_final_refusal_fails_one_message_alone(self) -> None:
        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            if frame["message"] == "bad":
                await peer.refuse(frame, "id_reused", False)
            else:
                await peer.ack(frame, 1)

        room = (await self.socket(on_frame)).room("r")
        results = await asyncio.gather(room.send("a"), room.send("bad"), room.send("b"), return_exceptions=True)
        self.assertEqual([getattr(result, "code", "ok") for result in results], ["ok", "id_reused", "ok"])

    async def test_the_same_ids_go_out_after_a_lost_connection(self) -> None:
        ids: list[str] = []

        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            ids.append(frame["messageId"])
            if peer.number == 1:
                if len(ids) == 3:
                    await peer.socket.close(code=4409)
                return
            await peer.ack(frame, 1)

        room = (await self.socket(on_frame)).room("r")
        await asyncio.gather(*(room.send(text) for text in "abc"))
        self.assertEqual(ids[:3], ids[3:])

    async def test_a_connection_without_an_answer_is_replaced(self) -> None:
        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            if peer.number == 2:
                await peer.ack(frame, 1)

        options = Options(backoff_first=0.001, answer_max=0.1, silence_max=0.1)
        room = (await self.socket(on_frame, options)).room("r")
        self.assertEqual((await room.send("text")).seq, 1)

    async def test_what_waits_is_bounded_and_ends_with_the_client(self) -> None:
        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            pass

        client = await self.socket(on_frame, Options(waiting_max=2))
        sends = [asyncio.create_task(client.room("r").send(text)) for text in "abc"]
        with self.assertRaises(HubbubError) as raised:
            await sends[2]
        self.assertEqual((raised.exception.code, raised.exception.retryable), ("queue_full", True))
        sends[1].cancel()
        with self.assertRaises(asyncio.CancelledError):
            await sends[1]
        await client.close()
        with self.assertRaises(HubbubError) as raised:
            await sends[0]
        self.assertEqual(raised.exception.code, "closed")

    async def test_a_token_given_during_the_handshake_is_sent_behind_it(self) -> None:
        arrived, go_on = asyncio.Event(), asyncio.Event()
        tokens: list[str] = []
        frames: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

        async def accept(request: web.Request) -> web.StreamResponse:
            tokens.append(request.headers["Authorization"])
            arrived.set()
            await go_on.wait()
            socket = web.WebSocketResponse(timeout=0.1)
            await socket.prepare(request)
            async for message in socket:
                frames.put_nowait(json.loads(message.data))
            return socket

        app = web.Application()
        app.router.add_get("/v1/ws", accept)
        client = Client(await self.serve(app), "first", options=OPTIONS)
        self.addAsyncCleanup(client.close)
        sending = asyncio.create_task(client.room("r").send("text"))
        await arrived.wait()
        client.set_token("second")
        go_on.set()
        renewed, sent = [await asyncio.wait_for(frames.get(), 60) for _ in range(2)]
        self.assertEqual((tokens, renewed["type"], renewed["token"]), (["Bearer first"], "auth", "second"))
        self.assertEqual(sent["type"], "send")
        sending.cancel()

    async def test_a_handshake_refused_for_its_token_is_final(self) -> None:
        for status, code in ((401, "unauthorized"), (403, "forbidden")):
            url, requests = await self.answering((503, None, {"retry-after": "0"}), (status, None, {}))
            with self.assertRaises(HubbubError) as raised:
                await (await self.client(url)).room("r").send("text")
            self.assertEqual((raised.exception.code, len(requests)), (code, 2))

    async def test_a_refused_handshake_is_not_repeated_before_its_time(self) -> None:
        slept: list[float] = []
        sleep = asyncio.sleep

        async def no_sleep(seconds: float) -> None:
            slept.append(seconds)
            await sleep(0)

        for asked, least in (("7", 7.0), ("3600", 60.0)):
            slept.clear()
            url, _ = await self.answering((503, None, {"retry-after": asked}), (401, None, {}))
            with patch("asyncio.sleep", no_sleep), self.assertRaises(HubbubError):
                await (await self.client(url)).room("r").send("text")
            self.assertEqual([least <= seconds < least + 1 for seconds in slept], [True])


class Following(Scripted):
    async def test_it_goes_on_behind_the_last_message_and_drops_repeats(self) -> None:
        asked: list[dict[str, Any]] = []

        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            asked.append(frame)
            await peer.subscribed(frame)
            for seq in (5, 7) if peer.number == 1 else (7, 8):
                await peer.message("r", seq)
            if peer.number == 1:
                await peer.socket.close(code=1001, message=b"shutting down; reconnect after 1 ms")

        subscription = (await self.socket(on_frame)).room("r").subscribe(after=4)
        self.assertEqual(await take(subscription, 5), ["ready", 5, 7, "ready", 8])
        self.assertEqual([frame["after"] for frame in asked], [4, 7])
        self.assertEqual(asked[1]["epoch"], "e")
        self.assertEqual(subscription.position, Position("e", 8))

    async def test_one_reset_and_none_again_for_a_connection_lost_behind_it(self) -> None:
        asked: list[dict[str, Any]] = []

        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            asked.append(frame)
            await peer.subscribed(frame, head=3, epoch="f")
            if peer.number == 1:
                await peer.answer(type="reset", roomId="r", epoch="f", oldest=1, head=3)
                await peer.socket.close(code=4410)
            else:
                await peer.message("r", 1)

        subscription = (await self.socket(on_frame)).room("r").subscribe(after=9, epoch="e")
        self.assertEqual(await take(subscription, 4), ["ready", "reset", "ready", 1])
        self.assertEqual([(frame["after"], frame["epoch"]) for frame in asked], [(9, "e"), (0, "f")])

    async def test_a_reader_that_takes_nothing_pauses_and_an_unsubscribing_is_repeated(self) -> None:
        frames: list[tuple[str, Any]] = []

        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            frames.append((frame["type"], frame.get("after")))
            if frame["type"] == "subscribe":
                await peer.subscribed(frame)
                for seq in range(frame["after"] + 1, 9):
                    await peer.message("r", seq)
            elif len([kind for kind, _ in frames if kind == "unsubscribe"]) == 1:
                await peer.refuse(frame, "too_many_requests")
            else:
                await peer.answer(type="unsubscribed", roomId="r")

        subscription = (await self.socket(on_frame)).room("r").subscribe(after=0, buffer_max=4)
        while len(frames) < 3:
            await asyncio.sleep(0.001)
        found: list[Any] = []
        while not found or found[-1] != 7:
            found += await take(subscription, 1)
        # How often it pauses depends on who is faster.
        self.assertEqual([one for one in found if one != "ready"], [1, 2, 3, 4, 5, 6, 7])
        kinds = [kind for kind, _ in frames]
        self.assertEqual(kinds[:4], ["subscribe", "unsubscribe", "unsubscribe", "subscribe"])
        self.assertEqual([after for kind, after in frames if kind == "subscribe"][:2], [0, 3])

    async def test_what_the_server_ends_is_an_error_behind_what_came_before(self) -> None:
        # `forbidden`: by a newer token that may not read the room.
        for code in ("removed", "forbidden"):
            async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
                await peer.subscribed(frame)
                await peer.message(frame["roomId"], 1)
                await peer.answer(type="error", code=code, roomId=frame["roomId"], retryable=False)

            client = await self.socket(on_frame)
            subscription = client.room("r").subscribe(after=0)
            self.assertEqual(await take(subscription, 2), ["ready", 1])
            with self.assertRaises(HubbubError) as raised:
                await asyncio.wait_for(subscription.__anext__(), 20)
            self.assertEqual(raised.exception.code, code)
            with self.assertRaises(StopAsyncIteration):
                await subscription.__anext__()
            # The room can be followed again.
            self.assertEqual(await take(client.room("r").subscribe(after=0), 2), ["ready", 1])

    async def test_a_subscription_that_ends_before_it_began_is_an_error(self) -> None:
        # Older servers do not name the room.
        for room in ({}, {"roomId": "r"}):
            async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
                await peer.answer(type="error", ref=frame["ref"], code="removed", retryable=False, **room)

            subscription = (await self.socket(on_frame)).room("r").subscribe(after=0)
            with self.assertRaises(HubbubError) as raised:
                await asyncio.wait_for(subscription.__anext__(), 20)
            self.assertEqual(raised.exception.code, "removed")

    async def test_what_concerns_an_older_subscription_is_not_taken_by_the_next(self) -> None:
        asked: list[Any] = []

        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            if frame["type"] == "unsubscribe":
                await peer.answer(type="reset", roomId="r", epoch="e", oldest=3, head=9)
                await peer.answer(type="error", roomId="r", code="forbidden", retryable=False)
                await peer.answer(type="unsubscribed", roomId="r")
                return
            asked.append(frame["after"])
            await peer.subscribed(frame)
            await peer.message("r", frame["after"] + 1)

        room = (await self.socket(on_frame)).room("r")
        older = room.subscribe(after=1)
        self.assertEqual(await take(older, 2), ["ready", 2])
        older.close()
        self.assertEqual(await take(room.subscribe(after=5, epoch="e"), 2), ["ready", 6])
        self.assertEqual(asked, [1, 5])

    async def test_a_token_for_somebody_else_ends_everything(self) -> None:
        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            if frame["type"] == "send":
                await peer.socket.close(code=4403)

        client = await self.socket(on_frame)
        subscription = client.room("r").subscribe()
        for work in (client.room("r").send("text"), subscription.__anext__()):
            with self.assertRaises(HubbubError) as raised:
                await work
            self.assertEqual(raised.exception.code, "forbidden")


class Newest(Scripted):
    async def test_the_newest_ones_are_asked_for_once(self) -> None:
        asked: list[dict[str, Any]] = []

        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            asked.append(frame)
            # Lost before the first message came; meanwhile, ten more are stored.
            await peer.subscribed(frame, 9 if peer.number == 1 else 19)
            if peer.number == 1:
                await peer.socket.close(code=4409)
            else:
                await peer.message("r", 7)

        subscription = (await self.socket(on_frame)).room("r").subscribe(last=3)
        while (await asyncio.wait_for(take(subscription, 1), 60)) != [7]:
            pass
        self.assertEqual((asked[0]["last"], asked[0].get("after")), (3, None))
        self.assertEqual((asked[1].get("last"), asked[1]["after"], asked[1]["epoch"]), (None, 6, "e"))
