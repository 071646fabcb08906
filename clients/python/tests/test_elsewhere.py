"""Redirects, proxies, names in paths, and what is told of failures that are repeated."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, timezone
from typing import Any
from unittest.mock import patch

from aiohttp import web

from hubbub import BlockingClient, Client, HubbubError, Options

from .scripted import OPTIONS, Peer, Scripted

BUSY = (503, {"code": "overloaded", "retryable": True}, {"retry-after": "0"})


class Redirects(Scripted):
    async def test_a_permanent_one_is_an_error_that_names_where_to(self) -> None:
        for status in (301, 308):
            yes, requests = await self.answering((200, {"messages": [], "id": "1"}, {"etag": '"7"'}))
            url, _ = await self.answering((status, None, {"location": f"{yes}/there"}))
            client = await self.client(url)
            keys, queue = client.keys, client.queue("q")
            works: tuple[Callable[[], Awaitable[object]], ...] = (
                lambda: keys.put("k", "v"), lambda: keys.put("k", "v", revision=3), lambda: keys.get("k"),
                lambda: keys.delete("k", revision=3), queue.create, lambda: queue.send("text"),
                lambda: client.room("r").send("text"), keys.watch().__anext__,
            )
            for work in works:
                with self.assertRaisesRegex(HubbubError, "redirects to .*/there") as raised:
                    await asyncio.wait_for(work(), 5)
                error = raised.exception
                self.assertEqual((error.code, error.status, error.retryable), ("unexpected", status, False))
            self.assertEqual(requests, [])

    async def test_one_without_a_place_is_an_error_too(self) -> None:
        for status in (300, 301, 304):
            url, requests = await self.answering((status, None, {}))
            client = await self.client(url)
            for work in (client.keys.get("k"), client.room("r").send("text")):
                with self.assertRaisesRegex(HubbubError, "redirects elsewhere"):
                    await asyncio.wait_for(work, 5)
            self.assertEqual(len(requests), 2)

    async def test_a_temporary_one_is_a_lost_connection(self) -> None:
        begin = 'event: watching\ndata: {"epoch":"e","after":4}\n\n'
        for status in (302, 303, 307):
            moved = 3

            async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
                await peer.subscribed(frame, 1)

            @web.middleware
            async def move(request: web.Request, handler: Any) -> web.StreamResponse:
                nonlocal moved
                moved -= 1
                if moved < 0:
                    return await handler(request)
                return web.Response(status=status, headers={"location": "http://127.0.0.1:1/there"})

            client = await self.socket(on_frame, middlewares=[move])
            event = await asyncio.wait_for(client.room("r").subscribe().__anext__(), 20)
            self.assertEqual((event.type, moved), ("ready", -1))
            there = (status, None, {"location": "/there"})
            url, requests = await self.answering(there, there, (200, begin, {"etag": '"7"'}))
            watching = await asyncio.wait_for((await self.client(url)).keys.watch().__anext__(), 20)
            self.assertEqual((watching.type, len(requests)), ("ready", 3))
            url, requests = await self.answering(there, there, (200, None, {"etag": '"7"'}))
            await asyncio.wait_for((await self.client(url)).keys.get("k"), 20)
            self.assertEqual(len(requests), 3)

    async def test_a_temporary_one_that_stays_is_told(self) -> None:
        url, requests = await self.answering((302, None, {"location": "/there"}))
        client = await self.client(url, Options(backoff_first=0.001, backoff_max=0.004, patience=0.02))
        with self.assertRaisesRegex(HubbubError, "redirects to /there") as raised:
            await client.keys.get("k")
        self.assertEqual((raised.exception.code, raised.exception.status), ("unexpected", 302))
        self.assertGreater(len(requests), 1)
        with self.assertRaises(asyncio.TimeoutError):
            await asyncio.wait_for(client.room("r").send("text"), 0.2)
        assert client.last_error
        self.assertEqual(client.last_error.code, "unexpected")
        self.assertRegex(str(client.last_error), "redirects to /there")
        self.assertFalse([request for request, _ in requests if "there" in request.path])

    async def test_a_put_is_done_only_if_the_server_says_so(self) -> None:
        for status, created in ((200, None), (201, True), (202, None), (204, False)):
            url, _ = await self.answering((status, None, {"etag": '"7"'}))
            putting = (await self.client(url)).keys.put("k", "v", revision=3)
            if created is not None:
                self.assertIs((await putting).created, created)
                continue
            with self.assertRaises(HubbubError) as raised:
                await putting
            self.assertEqual(raised.exception.code, "protocol")


class Proxies(Scripted):
    async def test_only_one_that_is_given_is_used(self) -> None:
        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            await peer.ack(frame, 1)

        url = (await self.socket(on_frame))._http.url
        proxy, requests = await self.answering((403, {"code": "forbidden"}, {}))
        with patch.dict(os.environ, {"http_proxy": proxy, "HTTP_PROXY": proxy}):
            self.assertEqual((await (await self.client(url)).room("r").send("text")).seq, 1)
        self.assertEqual(requests, [])
        client = await self.client(url, Options(proxy=proxy))
        for work in (client.room("r").send("text"), client.keys.get("k"), client.keys.watch().__anext__()):
            with self.assertRaises(HubbubError) as raised:
                await work
            self.assertEqual(raised.exception.code, "forbidden")
        self.assertEqual(len(requests), 3)


class Told(Scripted):
    """Why nothing comes."""

    async def over_tls(self) -> Client:
        """A client of a server that speaks no TLS."""
        url, _ = await self.answering((200, None, {}))
        return await self.client(url.replace("http:", "https:"))

    async def cause_of(self, work: Awaitable[object]) -> HubbubError:
        with self.assertRaises(asyncio.TimeoutError) as raised:
            await asyncio.wait_for(work, 0.3)
        cause: BaseException | None = raised.exception
        while cause and not isinstance(cause, HubbubError):
            cause = cause.__cause__
        assert cause
        return cause

    async def test_a_wait_that_is_given_up_says_why(self) -> None:
        client = await self.over_tls()
        self.assertIsNone(client.last_error)
        subscription = client.room("r").subscribe()
        for work in (client.room("r").send("text"), subscription.__anext__(), client.keys.get("k"), client.keys.watch().__anext__()):
            cause = await self.cause_of(work)
            self.assertEqual(cause.code, "unreachable")
            self.assertRegex(str(cause), "(?i)ssl")
        assert client.last_error
        self.assertRegex(str(client.last_error), "(?i)ssl")

    async def test_so_does_a_blocking_client(self) -> None:
        url = (await self.over_tls())._http.url

        def follow() -> HubbubError:
            with BlockingClient(url, options=OPTIONS) as client:
                client.room("r").subscribe()
                stream = client.room("s").subscribe()
                while client.last_error is None:
                    pass
                stream.close()
                return client.last_error

        self.assertRegex(str(await asyncio.wait_for(asyncio.to_thread(follow), 20)), "(?i)ssl")

    async def test_a_lost_connection_is_no_trouble_once_there_is_another(self) -> None:
        found: list[HubbubError | None] = []

        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            if peer.number == 1:
                await peer.socket.close(code=4409, message=b"slow")
                while not client.last_error:
                    await asyncio.sleep(0)
                return found.append(client.last_error)
            found.append(client.last_error)
            await peer.ack(frame, 1)

        client = await self.socket(on_frame, Options(backoff_first=0.05))
        with patch("random.random", lambda: 1.0):
            await client.room("r").send("text")
        self.assertEqual([error and str(error) for error in found], ["slow", None])

    async def test_a_watch_and_poll_tell_it_until_they_go_on(self) -> None:
        begin = (200, 'event: watching\ndata: {"epoch":"e","after":4}\n\n', {"content-type": "text/event-stream"})
        client = await self.client((await self.answering(BUSY, begin))[0])
        watch = client.keys.watch()
        await watch.__anext__()
        self.assertIsNone(client.last_error)
        works: tuple[Callable[[Client], Awaitable[object]], ...] = (
            lambda client: client.keys.watch().__anext__(), lambda client: client.queue("q").poll(lambda _: None),
        )
        for work in works:
            client = await self.client((await self.answering(BUSY))[0], Options(backoff_first=0.001, patience=0.0))
            waiting = asyncio.ensure_future(work(client))
            while not client.last_error:
                await asyncio.sleep(0.001)
            self.assertEqual(client.last_error.code, "overloaded")
            client.keys.end_watches()
            waiting.cancel()
            await asyncio.wait_for(asyncio.gather(waiting, return_exceptions=True), 20)
            await asyncio.sleep(0)
            self.assertIsNone(client.last_error)


class Said(Scripted):
    async def test_names_of_dots_reach_the_server(self) -> None:
        url, requests = await self.answering((200, {"messages": [], "id": "1"}, {}))
        client = await self.client(url)
        for name in (".", "..", "..."):
            await client.queue(name).create()
            await client.room(name).history()
        paths = [request.raw_path.removeprefix("/v1").rstrip("?") for request, _ in requests]
        self.assertEqual(paths, [
            "/queues/%2E", "/rooms/%2E/messages", "/queues/%2E%2E", "/rooms/%2E%2E/messages", "/queues/...", "/rooms/.../messages",
        ])

    async def test_a_message_says_when_it_was_sent(self) -> None:
        said: list[str] = []

        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            said.append(frame["timestamp"])
            if len(said) == 1:
                await peer.socket.close(code=4409)
            else:
                await peer.ack(frame, 1)

        room = (await self.socket(on_frame)).room("r")
        before = datetime.now(timezone.utc) - timedelta(milliseconds=1)
        await room.send("text")
        await room.send("text", timestamp="2026-01-31T12:00:00Z")
        self.assertTrue(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", said[0]))
        self.assertTrue(before <= datetime.fromisoformat(said[0].replace("Z", "+00:00")) <= datetime.now(timezone.utc))
        self.assertEqual(said[1:], [said[0], "2026-01-31T12:00:00Z"])
