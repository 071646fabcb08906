"""The real server as a process of its own, on a port that outlives it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

#: Variables of this program are not the server's.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("HUBBUB_")}


class Server:
    def __init__(self, binary: str) -> None:
        self.binary = binary
        self.dir = Path(tempfile.mkdtemp(prefix="hubbub-clients-"))
        self.generation = 0
        self.listen = "127.0.0.1:0"
        self.url = ""
        self.process: asyncio.subprocess.Process | None = None

    @property
    def data(self) -> Path:
        return self.dir / f"data-{self.generation}"

    async def up(self, settings: dict[str, str] | None = None) -> None:
        """Starts it, again on the same port, and waits until it is ready."""
        self.process = await asyncio.create_subprocess_exec(
            self.binary, "serve", "--listen", self.listen, "--data", str(self.data),
            env={**ENVIRONMENT, **(settings or {})},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )
        assert self.process.stdout
        line = await asyncio.wait_for(self.process.stdout.readline(), 60)
        assert line.startswith(b"ready "), f"the server did not start: {line!r}"
        self.url = line.decode().split()[1]
        self.listen = self.url.removeprefix("http://")

    async def kill(self) -> None:
        """As a power failure would: nothing gets a chance to finish."""
        if self.process and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    def stop(self) -> None:
        assert self.process
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process
        self.process.send_signal(signal.SIGCONT)

    async def run(self, *args: str) -> None:
        process = await asyncio.create_subprocess_exec(
            self.binary, *args, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        _, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()

    async def backup(self) -> Path:
        backup = self.dir / f"backup-{self.generation}"
        await self.run("backup", str(backup), "--server", self.url)
        return backup

    async def restore(self, backup: Path) -> None:
        """Loses everything after the backup, with the machine."""
        await self.kill()
        shutil.rmtree(self.data)
        self.generation += 1
        await self.run("restore", str(backup), "--to", str(self.data))
        shutil.rmtree(backup)
        await self.up()

    async def get(self, path: str, accept: str = "application/json") -> str:
        """Asks as nobody in particular; limits of users do not apply."""
        request = urllib.request.Request(self.url + path, headers={"accept": accept})

        def ask() -> str:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.read().decode()

        return await asyncio.to_thread(ask)

    async def put(self, path: str, body: Any) -> None:
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method="PUT")
        await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=30).close())

    async def history(self, room: str) -> tuple[str, list[dict[str, Any]]]:
        """The epoch, and everything the room holds."""
        messages: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            page = json.loads(await self.get(f"/v1/rooms/{room}/messages?after={after}&limit=1000"))
            messages += page["messages"]
            after = page["next"]
        return page["epoch"], messages

    async def refusals(self) -> int:
        """How often it refused for overload since it started."""
        text = await self.get("/metrics", "text/plain")
        names = [line.split() for line in text.splitlines() if "reason=\"too_many_requests\"" in line or "reason=\"overloaded\"" in line]
        return sum(int(float(line[-1])) for line in names)

    async def remove(self) -> None:
        await self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)
