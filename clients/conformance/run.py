#!/usr/bin/env python3
"""Drives each client through faults of the real server, and requires that nothing is lost, repeated or reordered."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time

from adapter import PROGRAMS, Adapter
from rounds import FAULTS, Round
from server import Server

#: A round that takes longer, in seconds, is stuck where nobody looks.
ROUND_MAX = 180


async def drive(client: str, binary: str, rounds: int, seed: int, faults: list[str]) -> None:
    server = Server(binary)
    adapter = None
    try:
        await server.up()
        adapter = await Adapter.start(client)
        for number in range(rounds):
            fault = faults[number % len(faults)]
            began = time.monotonic()
            try:
                await asyncio.wait_for(Round(server, adapter, f"{seed}-{number}", number, fault).run(), ROUND_MAX)
            except Exception as finding:
                print(f"{client} round {number} ({fault}, seed {seed}): FOUND {type(finding).__name__}: {finding}", flush=True)
                raise SystemExit(1) from finding
            print(f"{client} round {number} ({fault}): ok, {time.monotonic() - began:.1f} s", flush=True)
    finally:
        if adapter:
            await adapter.end()
        await server.remove()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--client", default="all", choices=[*PROGRAMS, "all"])
    parser.add_argument("--rounds", type=int, default=len(FAULTS), help="each has one of the faults, in turn")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--server", default=os.environ.get("HUBBUB_BIN"), help="the server's binary (HUBBUB_BIN)")
    parser.add_argument("--fault", choices=FAULTS, help="only this one")
    given = parser.parse_args()
    if not given.server:
        parser.error("there is no server: set HUBBUB_BIN or --server")
    print(f"seed {given.seed}", flush=True)
    clients = list(PROGRAMS) if given.client == "all" else [given.client]
    for client in clients:
        asyncio.run(drive(client, given.server, given.rounds, given.seed, [given.fault] if given.fault else list(FAULTS)))


if __name__ == "__main__":
    sys.exit(main())
