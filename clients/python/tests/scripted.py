"""A server that does on demand what a healthy one does rarely."""

from __future__ import annotations

import asyncio
import json
import unittest
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import WSMsgType, web

from hubbub import Client, Options

OPTIONS = Options(backoff_first=0.001, backoff_max=0.004, patience=10.0)

#: Answers a frame with the help of `answer`.
OnFrame = Callable[[dict[str, Any], "Peer"], Awaitable[None]]


class Peer:
    """The server's end of a socket."""

    def __init__(self, socket: web.WebSocketResponse, number: int) -> None:
        self.socket = socket
        self.number = number
        self.ponged = asyncio.Event()

    async def answer(self, **frame: Any) -> None:
        await self.socket.send_str(json.dumps(frame))

    async def ack(self, frame: dict[str, Any], seq: int) -> None:
        await self.answer(
            type="ack", ref=frame["ref"], messageId=frame["messageId"], seq=seq, epoch="e", receivedAt="t", duplicate=False
        )

    async def refuse(self, frame: dict[str, Any], code: str = "overloaded", retryable: bool = True) -> None:
        await self.answer(type="error", ref=frame["ref"], code=code, retryable=retryable)

    async def message(self, room: str, seq: int) -> None:
        await self.answer(
            type="message", messageId=f"m{seq}", roomId=room, userId="u", message=str(seq), messageType="TEXT",
            timestamp="t", seq=seq, receivedAt="t",
        )

    async def subscribed(self, frame: dict[str, Any], head: int = 0, epoch: str = "e") -> None:
        await self.answer(type="subscribed", ref=frame["ref"], roomId=frame["roomId"], epoch=epoch, oldest=1, head=head)


class Scripted(unittest.IsolatedAsyncioTestCase):
    """Tests against such a server; what they start is taken down with them."""

    async def serve(self, app: web.Application) -> str:
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.addAsyncCleanup(runner.cleanup)
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def client(self, url: str, options: Options = OPTIONS) -> Client:
        client = Client(url, user="ada", options=options)
        self.addAsyncCleanup(client.close)
        return client

    async def answering(self, *answers: tuple[int, Any, dict[str, str]] | None) -> tuple[str, list[Any]]:
        """Gives these answers one after another, the last one again and again. `None`: the connection breaks."""
        requests: list[Any] = []

        async def answer(request: web.Request) -> web.StreamResponse:
            requests.append((request, await request.read()))
            given = answers[min(len(requests), len(answers)) - 1]
            if given is None:
                assert request.transport
                request.transport.close()
                return web.Response()
            status, body, headers = given
            text = body if isinstance(body, str) else json.dumps(body)
            return web.Response(status=status, text="" if body is None else text, headers=headers)

        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        return await self.serve(app), requests

    async def socket(self, on_frame: OnFrame, options: Options = OPTIONS, middlewares: Any = ()) -> Client:
        """A client of a server whose socket answers with `on_frame`."""
        count = 0

        async def accept(request: web.Request) -> web.StreamResponse:
            nonlocal count
            count += 1
            socket = web.WebSocketResponse(autoping=False, timeout=0.1)
            await socket.prepare(request)
            peer = Peer(socket, count)
            async for message in socket:
                if message.type == WSMsgType.PONG:
                    peer.ponged.set()
                elif message.type == WSMsgType.TEXT:
                    await on_frame(json.loads(message.data), peer)
            return socket

        app = web.Application(middlewares=middlewares)
        app.router.add_get("/v1/ws", accept)
        return await self.client(await self.serve(app), options)
