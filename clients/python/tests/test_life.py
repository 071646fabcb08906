"""Connections that are slow, or dead, and how they are told apart."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing, suppress
from socket import AF_INET, SO_RCVBUF, SO_SNDBUF, SOCK_STREAM, SOL_SOCKET, socket
from typing import Any
from unittest import TestCase
from unittest.mock import patch

from hubbub import Client, Options
from hubbub._life import UPLOAD_MAX, Life, Question

from .scripted import Peer, Scripted

OPTIONS = Options(backoff_first=0.001, backoff_max=0.004, answer_max=0.7, silence_max=0.7)
#: 1.3 MB/s: several times as long as an answer may take.
CHUNK, PAUSE = 40_000, 0.03
TEXT = "x" * 4_000_000
#: What the kernel holds is out of sight. By a way inside one machine that is a lot.
KERNEL_BYTES = 64 * 1024


class Time(TestCase):
    """What is written is out of sight at once, as over TLS."""

    def is_over(self, life: Life, oldest: Question | None, now: float) -> bool:
        with patch("time.monotonic", lambda: now):
            return life.is_over(oldest, 15.0)

    def test_an_answer_has_more_time_for_the_length_of_its_frame(self) -> None:
        for size, most in ((0, 15.0), (8 * 1024, 17.0), (1 << 30, 15.0 + UPLOAD_MAX)):
            with patch("time.monotonic", lambda: 100.0):
                life, question = Life(), Question()
                life.begin(None)
            question.bytes = size
            # Until it is written, what is written tells.
            self.assertTrue(self.is_over(life, question, 115.5))
            with patch("time.monotonic", lambda: 100.0):
                question.written()
            self.assertFalse(self.is_over(life, question, 99.5 + most))
            self.assertTrue(self.is_over(life, question, 100.5 + most))

    def test_a_probe_that_is_answered_before_its_writing_is_known_is_answered(self) -> None:
        life = Life()
        with patch("time.monotonic", lambda: 100.0):
            probe = life.probe_if_silent(40.0)
        assert probe
        with patch("time.monotonic", lambda: 100.1):
            life.heard()
        with patch("time.monotonic", lambda: 100.2):
            probe.written()
            self.assertIsNone(life.probe_if_silent(40.0))
        self.assertFalse(self.is_over(life, None, 120.0))


class Slow(Scripted):
    async def over_slow(self, client: Client, is_stuck: bool = False) -> Client:
        """The same by a slow way; the first connection gets stuck after the handshake, and is not closed."""
        host, port = client._http.url.removeprefix("http://").split(":")
        count = 0

        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stuck_after: int) -> None:
            with suppress(OSError), closing(writer):
                while chunk := await reader.read(CHUNK):
                    stuck_after -= len(chunk)
                    if stuck_after < 0:
                        await asyncio.Event().wait()
                    writer.write(chunk)
                    await writer.drain()
                    await asyncio.sleep(PAUSE)

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal count
            count += 1
            up = await asyncio.open_connection(host, int(port), limit=CHUNK)
            stuck_after = 100_000 if is_stuck and count == 1 else 1 << 40
            carrying = [asyncio.ensure_future(work) for work in (
                carry(reader, up[1], stuck_after), carry(up[0], writer, 1 << 40)
            )]
            self.addCleanup(lambda: [one.cancel() for one in carrying])

        def begin(life: Life, transport: asyncio.Transport) -> None:
            transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_SNDBUF, KERNEL_BYTES)
            begun(life, transport)

        # So much text takes its time, which the loop would complain about.
        asyncio.get_running_loop().slow_callback_duration = 60.0
        begun = Life.begin
        patched = patch.object(Life, "begin", begin)
        patched.start()
        self.addCleanup(patched.stop)
        listening = socket(AF_INET, SOCK_STREAM)
        listening.setsockopt(SOL_SOCKET, SO_RCVBUF, KERNEL_BYTES)
        listening.bind(("127.0.0.1", 0))
        server = await asyncio.start_server(accept, sock=listening, limit=CHUNK)
        self.addCleanup(server.close)
        return await self.client(f"http://127.0.0.1:{listening.getsockname()[1]}", OPTIONS)

    async def test_a_message_that_is_slowly_written_is_no_dead_connection(self) -> None:
        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            if frame["type"] == "send":
                await peer.ack(frame, peer.number)

        client = await self.over_slow(await self.socket(on_frame))
        begun = time.monotonic()
        self.assertEqual((await asyncio.wait_for(client.room("r").send(TEXT), 60)).seq, 1)
        self.assertGreater(time.monotonic() - begun, 3 * OPTIONS.answer_max)

    async def test_a_message_that_is_slowly_read_is_no_dead_connection(self) -> None:
        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            if frame["type"] == "subscribe":
                await peer.subscribed(frame, 1)
                await peer.answer(
                    type="message", messageId="m", roomId="r", userId="u", message=TEXT, messageType="TEXT", timestamp="t",
                    seq=1, receivedAt="t",
                )

        client = await self.over_slow(await self.socket(on_frame))
        subscription = client.room("r").subscribe(after=0)
        events = [await asyncio.wait_for(subscription.__anext__(), 60) for _ in range(2)]
        self.assertEqual([event.type for event in events], ["ready", "message"])

    async def test_a_connection_that_is_stuck_in_the_middle_of_a_message_is_replaced(self) -> None:
        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            if frame["type"] == "send":
                await peer.ack(frame, peer.number)

        client = await self.over_slow(await self.socket(on_frame), is_stuck=True)
        self.assertEqual((await asyncio.wait_for(client.room("r").send(TEXT), 60)).seq, 2)

    async def test_what_is_written_later_is_no_answer_to_what_came_before(self) -> None:
        replaced = asyncio.Event()

        async def on_frame(frame: dict[str, Any], peer: Peer) -> None:
            if peer.number > 1:
                replaced.set()
                await peer.ack(frame, 1)

        room = (await self.socket(on_frame, OPTIONS)).room("r")
        sends = []
        while not replaced.is_set() and len(sends) < 100:
            sends.append(asyncio.create_task(room.send("text")))
            await asyncio.sleep(0.05)
        # Else it would take until as much is written as may be without an answer, and longer.
        self.assertLess(len(sends), 38)
        await asyncio.gather(*sends)
