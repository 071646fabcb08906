"""Rooms: what is acknowledged is stored once, in order, and reaches everybody who follows."""

from __future__ import annotations

import asyncio
from typing import Any

ROOMS = 2
SENDERS = 2
MESSAGES = 60


class Reader:
    """What a subscription brought since the last reset."""

    def __init__(self, name: str, room: str) -> None:
        self.name = name
        self.room = room
        self.messages: list[dict[str, Any]] = []
        self.resets = 0
        self.epoch: str | None = None
        self.fault: str | None = None

    def __call__(self, frame: dict[str, Any]) -> None:
        kind = frame["event"]
        if kind in ("ready", "reset"):
            # A `ready` of another history comes before its reset: the cursor still belongs to the old one.
            if kind == "reset" or self.epoch is None:
                self.epoch = frame["epoch"]
        if kind == "reset":
            self.resets += 1
            self.messages.clear()
            self.check(frame["historyReplaced"], "a reset that does not tell why")
        elif kind == "message":
            message = frame["message"]
            last = self.messages[-1]["seq"] if self.messages else 0
            self.check(message["seq"] > last, f"seq {message['seq']} after {last}")
            self.check(message["roomId"] == self.room, f"a message of {message['roomId']}")
            self.messages.append(message)
        elif kind == "end":
            self.check(False, f"the subscription ended: {frame.get('error')}")

    def check(self, holds: bool, otherwise: str) -> None:
        if not holds and self.fault is None:
            self.fault = f"{self.name} in {self.room}: {otherwise}"


class RoomLoad:
    def __init__(self, round: Any) -> None:
        self.round = round
        self.rooms = [f"room-{round.number}-{index}" for index in range(ROOMS)]
        self.readers: list[Reader] = []
        #: (room, text) → receipt
        self.receipts: dict[tuple[str, str], dict[str, Any]] = {}
        self.sent: dict[str, list[tuple[str, int]]] = {room: [] for room in self.rooms}
        self.phase = "work"
        self.wanted: dict[str, int] = {}

    def answered(self) -> int:
        return len(self.receipts)

    def requests(self) -> int:
        return ROOMS * SENDERS * MESSAGES

    def state(self) -> str:
        heard = [f"{reader.name} {len(reader.messages)}/{self.wanted.get(reader.room)} ({reader.resets} resets)" for reader in self.readers]
        return f"rooms ({self.phase}) {len(self.receipts)} of {self.requests()} acknowledged, {', '.join(heard)}"

    async def follow(self, reader: Reader, client: str, **options: Any) -> None:
        self.round.adapter.streams[reader.name] = reader
        await self.round.adapter.call("subscribe", sub=reader.name, client=client, room=reader.room, **options)

    async def prepare(self) -> None:
        round = self.round
        reading, self.second = await round.open("reader"), await round.open("reader")
        self.senders = [await round.open(f"sender-{index}") for index in range(SENDERS)]
        for room in self.rooms:
            # Everybody has something that a reset can take away.
            await round.adapter.call("send", client=self.senders[0], room=room, text="first -1", messageId=f"{room}-first")
            self.sent[room].append(("first", -1))
            for kind, options in (("steady", {}), ("slow", {"bufferMax": 5})):
                reader = Reader(f"{kind}-{room}", room)
                self.readers.append(reader)
                await self.follow(reader, reading if kind == "steady" else self.second, after=0, **options)
        # Moves from one client to another in the middle.
        self.moving = Reader(f"moving-{self.rooms[0]}", self.rooms[0])
        self.readers.append(self.moving)
        third = await round.open("reader")
        await self.follow(self.moving, third, after=0)
        while any(not reader.messages for reader in self.readers):
            await asyncio.sleep(0.002)
        for room in self.rooms:
            await round.adapter.call("hold", sub=f"slow-{room}")

    async def work(self) -> None:
        sends = [self.send(index, client, room) for index, client in enumerate(self.senders) for room in self.rooms]
        await asyncio.gather(self.move(), *sends)

    async def send(self, index: int, client: str, room: str) -> None:
        """In waves of which each is sent without waiting for receipts."""
        number = 0
        while number < MESSAGES:
            wave = range(number, min(MESSAGES, number + self.round.random.randrange(1, 30)))
            calls = []
            for number in wave:
                text = f"{index} {number}"
                message_id = f"{room}-{index}-{number}"
                self.sent[room].append((str(index), number))
                call = self.round.adapter.call("send", client=client, room=room, text=text, messageId=message_id)
                call.add_done_callback(lambda answer, text=text: self.keep(room, text, answer))
                calls.append(call)
            await asyncio.gather(*calls)
            number = wave[-1] + 1

    def keep(self, room: str, text: str, answer: asyncio.Future[Any]) -> None:
        if not answer.cancelled() and answer.exception() is None:
            self.receipts[room, text] = answer.result()

    async def move(self) -> None:
        """Another client goes on where this one was, as after a restart of the program."""
        moving = self.moving
        while len(moving.messages) < 20:
            await asyncio.sleep(0.002)
        await self.round.adapter.call("stop", sub=moving.name)
        client = await self.round.open("reader")
        moving.name += "-again"
        after = moving.messages[-1]["seq"] if moving.messages else 0
        await self.follow(moving, client, after=after, epoch=moving.epoch)

    def undisturbed(self) -> None:
        for room in self.rooms:
            self.round.adapter.call("release", sub=f"slow-{room}")

    async def check(self) -> None:
        self.phase = "reading"
        for room in self.rooms:
            epoch, history = await self.round.server.history(room)
            self.wanted[room] = len(history)
            self.check_history(room, epoch, history)
            wanted = [(message["seq"], message["messageId"], message["message"]) for message in history]
            for reader in self.readers:
                if reader.room == room:
                    await self.check_reader(reader, wanted)

    def check_history(self, room: str, epoch: str, history: list[dict[str, Any]]) -> None:
        texts = [message["message"] for message in history]
        assert len(set(texts)) == len(texts), f"{room} holds a message twice"
        stored = {message["message"]: message["seq"] for message in history}
        for (of, text), receipt in self.receipts.items():
            # What was acknowledged before a restore may be lost with the machine.
            if of == room and receipt["epoch"] == epoch:
                assert text in stored, f"{room} lost {text!r}, acknowledged as {receipt['seq']}"
                assert stored[text] == receipt["seq"], f"{room} has {text!r} elsewhere than the receipt says"
        if not self.round.is_restore:
            assert len(texts) == len(self.sent[room]), f"{room} holds {len(texts)} of {len(self.sent[room])}"
        for sender in range(SENDERS):
            numbers = [int(text.split()[1]) for text in texts if text.split()[0] == str(sender)]
            assert numbers == sorted(numbers), f"{room} has another order: {numbers}"

    async def check_reader(self, reader: Reader, wanted: list[Any]) -> None:
        due = 1 if self.round.is_restore else 0
        while reader.fault is None and (reader.resets < due or len(reader.messages) < len(wanted)):
            await asyncio.sleep(0.005)
        assert reader.fault is None, reader.fault
        heard = [(message["seq"], message["messageId"], message["message"]) for message in reader.messages]
        assert heard == wanted, f"{reader.name} heard something else than is stored: {heard} {wanted}"
        assert reader.resets == due, f"{reader.name} was told {reader.resets} resets, not {due}"
