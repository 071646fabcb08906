"""Tokens that end while something goes on with them, and newer ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from hubbub import Client, HubbubError, Options

from .scripted import OPTIONS, Scripted

OnRequest = Callable[[web.Request], Awaitable[web.StreamResponse]]
OnFrame = Callable[[dict[str, Any], web.WebSocketResponse], Awaitable[None]]

REFUSAL = {"code": "unauthorized", "status": 401, "retryable": False}


class Renewing(Scripted):
    async def asyncSetUp(self) -> None:
        #: Of each request, in their order.
        self.tokens: list[str] = []
        self.came = asyncio.Event()
        #: Set when the first token ends.
        self.ended = asyncio.Event()

    async def first(self, answer: OnRequest, options: Options = OPTIONS) -> Client:
        """A client with the first token."""

        async def note(request: web.Request) -> web.StreamResponse:
            self.tokens.append(request.headers["Authorization"].removeprefix("Bearer "))
            self.came.set()
            return await answer(request)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", note)
        client = Client(await self.serve(app), "first", options=options)
        self.addAsyncCleanup(client.close)
        return client

    async def renew(self, client: Client) -> None:
        """Gives the second token while a request with the first is on the way."""
        await self.came.wait()
        client.set_token("second")
        self.ended.set()

    async def test_a_request_goes_on_with_the_newer_one(self) -> None:
        async def answer(request: web.Request) -> web.StreamResponse:
            if request.headers["Authorization"] == "Bearer first":
                await self.ended.wait()
                return web.json_response(REFUSAL, status=401)
            if request.method == "POST":
                return web.json_response({"messages": []})
            return web.Response(status=204 if request.method == "PUT" else 200, headers={"etag": '"4"'})

        client = await self.first(answer)
        for work in (client.queue("q").take(wait_ms=5_000), client.keys.put("k", "v")):
            self.tokens.clear()
            self.came.clear()
            self.ended.clear()
            client.set_token("first")
            _, _ = await asyncio.gather(work, self.renew(client))
            self.assertEqual(self.tokens[:2], ["first", "second"])

    async def test_working_through_a_queue_goes_on_without_patience(self) -> None:
        async def answer(request: web.Request) -> web.StreamResponse:
            if len(self.tokens) == 1:
                await self.ended.wait()
                return web.json_response(REFUSAL, status=401)
            return web.json_response({"code": "forbidden"}, status=403)

        client = await self.first(answer, Options(backoff_first=0.001, backoff_max=0.004, patience=0.0))
        with self.assertRaises(HubbubError) as raised:
            await asyncio.gather(client.queue("q").poll(lambda _: None), self.renew(client))
        self.assertEqual((raised.exception.code, self.tokens), ("forbidden", ["first", "second"]))

    async def test_a_request_without_a_newer_one_is_final(self) -> None:
        async def answer(request: web.Request) -> web.StreamResponse:
            return web.json_response(REFUSAL, status=401)

        client = await self.first(answer)
        for work in (client.queue("q").take(), client.keys.watch().__anext__()):
            self.tokens.clear()
            with self.assertRaises(HubbubError) as raised:
                await work
            self.assertEqual((raised.exception.code, self.tokens), ("unauthorized", ["first"]))

    async def test_a_watch_goes_on_with_the_newer_one_until_that_ends(self) -> None:
        afters: list[str | None] = []

        async def answer(request: web.Request) -> web.StreamResponse:
            afters.append(request.query.get("after"))
            revision = len(afters) + 4
            stream = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await stream.prepare(request)
            await stream.write(f'id: e:{revision}\nevent: put\ndata: {{"key":"k","revision":{revision}}}\n\n'.encode())
            await self.ended.wait()
            await stream.write(f"event: error\ndata: {json.dumps(REFUSAL)}\n\n".encode())
            return stream

        client = await self.first(answer)
        watch = client.keys.watch(after=4, epoch="e")
        first = await watch.__anext__()
        second, _ = await asyncio.gather(watch.__anext__(), self.renew(client))
        self.assertEqual([getattr(event, "revision") for event in (first, second)], [5, 6])
        with self.assertRaises(HubbubError) as raised:
            await watch.__anext__()
        self.assertEqual((raised.exception.code, self.tokens, afters), ("unauthorized", ["first", "second"], ["4", "5"]))

    async def with_socket(self, on_frame: OnFrame) -> Client:
        """The same, with a server that takes every token for a handshake."""

        async def answer(request: web.Request) -> web.StreamResponse:
            socket = web.WebSocketResponse(timeout=0.1)
            await socket.prepare(request)
            async for message in socket:
                await on_frame(json.loads(message.data), socket)
            return socket

        return await self.first(answer)

    async def test_a_socket_closed_for_the_old_one_is_opened_with_the_newer_one(self) -> None:
        async def on_frame(frame: dict[str, Any], socket: web.WebSocketResponse) -> None:
            if frame["type"] == "auth":
                # Refused once, or too late: the old token ends.
                await socket.send_json({"type": "error", "ref": frame["ref"], **REFUSAL})
                await socket.close(code=4401)
            elif len(self.tokens) == 2:
                await socket.send_json({"type": "ack", "ref": frame["ref"], "messageId": frame["messageId"], "seq": 1})

        client = await self.with_socket(on_frame)
        receipt, _ = await asyncio.gather(client.room("r").send("text"), self.renew(client))
        self.assertEqual((receipt.seq, self.tokens), (1, ["first", "second"]))

    async def test_a_socket_that_is_closed_with_the_newest_is_final(self) -> None:
        async def on_frame(frame: dict[str, Any], socket: web.WebSocketResponse) -> None:
            if frame["type"] == "auth" or len(self.tokens) == 2:
                await socket.close(code=4401)

        client = await self.with_socket(on_frame)
        with self.assertRaises(HubbubError) as raised:
            await asyncio.gather(client.room("r").send("text"), self.renew(client))
        self.assertEqual((raised.exception.code, self.tokens), ("unauthorized", ["first", "second"]))

    async def test_a_handshake_refused_for_the_old_one_is_repeated_with_the_newer_one(self) -> None:
        async def answer(request: web.Request) -> web.StreamResponse:
            await self.ended.wait()
            return web.Response(status=401)

        client = await self.first(answer)
        with self.assertRaises(HubbubError) as raised:
            await asyncio.gather(client.room("r").send("text"), self.renew(client))
        self.assertEqual((raised.exception.code, self.tokens), ("unauthorized", ["first", "second"]))
