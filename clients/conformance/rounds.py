"""One round: rooms, queues and keys under load, a fault in the middle, and what must hold afterwards."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Awaitable, Callable

from adapter import Adapter
from keys import KeyLoad
from queues import QueueLoad
from rooms import RoomLoad
from server import Server

#: What happens to the server in the middle of a round.
FAULTS = ("kill", "pause", "restore", "overload", "terminate")

#: A client that notices silence soon, so that a pause looks to it like a dead server.
OPTIONS = {"backoffFirst": 20, "backoffMax": 400, "answerMax": 700, "silenceMax": 500, "patience": 60_000}

#: Requests of one user in a second.
LOW_LIMITS = {"HUBBUB_LIMITS_USER_REQUESTS": "30"}

#: Everything must have come to an end by then, in seconds.
STUCK_AFTER = 60


class Round:
    def __init__(self, server: Server, adapter: Adapter, seed: str, number: int, fault: str) -> None:
        self.server = server
        self.adapter = adapter
        self.random = random.Random(seed)
        self.number = number
        self.fault = fault
        self.is_restore = fault == "restore"
        self.clients: list[str] = []

    async def open(self, user: str) -> str:
        """A client of its own for this round."""
        client = f"{self.number}-{user}-{len(self.clients)}"
        await self.adapter.call("open", client=client, url=self.server.url, user=user, options=OPTIONS)
        self.clients.append(client)
        return client

    async def run(self) -> None:
        loads = [RoomLoad(self), QueueLoad(self), KeyLoad(self)]
        for load in loads:
            await load.prepare()
        if self.fault == "overload":
            await self.server.kill()
            await self.server.up(LOW_LIMITS)
        working = [asyncio.create_task(load.work()) for load in loads]
        try:
            await asyncio.wait_for(self.disturb(loads, working), STUCK_AFTER)
            for load in loads:
                await asyncio.wait_for(load.check(), STUCK_AFTER)
        except asyncio.TimeoutError:
            raise AssertionError("stuck: " + "; ".join(load.state() for load in loads)) from None
        finally:
            for task in working:
                task.cancel()
        for client in self.clients:
            await self.adapter.call("close", client=client)

    async def disturb(self, loads: list[Any], working: list[asyncio.Task[None]]) -> None:
        """Lets the fault happen, and waits until all work is done."""
        faults: dict[str, Callable[[], Awaitable[None]]] = {
            "kill": self.kill, "pause": self.pause, "restore": self.restore, "overload": self.overload,
            "terminate": self.terminate,
        }
        for _ in range(self.random.choice([1, 2]) if self.fault in ("kill", "pause") else 1):
            await self.progress(loads, working)
            await faults[self.fault]()
        for load in loads:
            load.undisturbed()
        await asyncio.gather(*working)
        if self.fault == "overload":
            refusals = await self.server.refusals()
            asked = sum(load.requests() for load in loads)
            assert refusals > 0, "the low limits refused nothing"
            assert refusals <= 4 * asked, f"{refusals} refusals of {asked} requests: the client does not wait"
            await self.server.kill()
            await self.server.up()

    async def progress(self, loads: list[Any], working: list[asyncio.Task[None]]) -> None:
        """Waits until a random part of one of the loads was answered, so that the fault hits the middle of it."""
        wanted = [load.answered() + self.random.randrange(5, 60) for load in loads]
        while all(load.answered() < want for load, want in zip(loads, wanted)):
            for task in working:
                if task.done():
                    task.result()
            if all(task.done() for task in working):
                return
            await asyncio.sleep(0.002)

    async def kill(self) -> None:
        await self.server.kill()
        await asyncio.sleep(self.random.choice([0, 0, 0.3]))
        await self.server.up()

    async def terminate(self) -> None:
        assert self.server.process
        self.server.process.terminate()
        await self.server.process.wait()
        await self.server.up()

    async def pause(self) -> None:
        self.server.stop()
        await asyncio.sleep(self.random.uniform(0.1, 2.0))
        self.server.go_on()

    async def restore(self) -> None:
        backup = await self.server.backup()
        await asyncio.sleep(self.random.uniform(0, 0.05))
        await self.server.restore(backup)

    async def overload(self) -> None:
        """The limits are low already."""
