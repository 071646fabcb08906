#!/usr/bin/env python3
"""Runs every programme that a client's documents show, against a server of its own: `examples.py CLIENT BUILT`.

`BUILT` has what `scripts/clients-test.sh` made: the packages, the virtual environment.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from adapter import CLIENTS
from server import Server

#: What the documents call the server.
ADDRESS = "http://127.0.0.1:8080"

Runner = Callable[[Path, Path], list[str]]


def javascript(dir: Path, built: Path) -> list[str]:
    """As a user of the package: installed from what is packed, and nothing else."""
    package = next(built.glob("packages/hubbub-client-*.tgz"))
    if not (dir / "node_modules").exists():
        subprocess.run(["npm", "install", "--offline", "--no-audit", "--no-fund", "--silent", str(package)], cwd=dir, check=True)
    return ["node", "example.mjs"]


def python(dir: Path, built: Path) -> list[str]:
    return [str(built / "venv/bin/python"), "example.py"]


def go(dir: Path, built: Path) -> list[str]:
    with zipfile.ZipFile(next(built.glob("packages/hubbub-client-go-*.zip"))) as packed:
        packed.extractall(dir / "module")
    module = next((dir / "module/hubbub/clients").glob("go@*"))
    require = [line for line in (module / "go.mod").read_text().splitlines() if line.startswith("require")]
    lines = ["module example", "go 1.23", "require hubbub/clients/go v0.1.0", *require]
    (dir / "go.mod").write_text("\n".join([*lines, f"replace hubbub/clients/go => {module}"]) + "\n")
    (dir / "go.sum").write_text((module / "go.sum").read_text())
    return ["go", "run", "-mod=mod", "example.go"]


def rust(dir: Path, built: Path) -> list[str]:
    """A package of its own. What it needs is compiled as in the workspace, and once for all examples."""
    for crate in built.glob("packages/*.crate"):
        with tarfile.open(crate) as packed:
            packed.extractall(dir)
    client, ws = (next(dir.glob(f"hubbub-{name}-*")) for name in ("client", "ws"))
    (dir / "src").mkdir(exist_ok=True)
    (dir / "example.rs").rename(dir / "src/main.rs")
    lines = [
        "[package]", 'name = "example"', 'edition = "2024"', "[workspace]", "[dependencies]",
        f'hubbub-client = {{ path = "{client.name}" }}',
        'tokio = { version = "1", features = ["macros", "rt-multi-thread"] }',
        "[patch.crates-io]", f'hubbub-ws = {{ path = "{ws.name}" }}',
        '[profile.dev.package."*"]', "debug = false", "opt-level = 1",
    ]
    (dir / "Cargo.toml").write_text("\n".join(lines) + "\n")
    shutil.copy(CLIENTS.parent / "Cargo.lock", dir)
    return ["cargo", "run", "--quiet", "--offline", "--target-dir", str(built.parent)]


#: Client → the language of its blocks, the name of a file with one, how it is run.
LANGUAGES: dict[str, tuple[str, str, Runner]] = {
    "javascript": ("js", "example.mjs", javascript),
    "python": ("python", "example.py", python),
    "go": ("go", "example.go", go),
    "rust": ("rust[^\n]*", "example.rs", rust),
}


async def main(client: str, built: Path) -> None:
    language, name, runner = LANGUAGES[client]
    documents = [CLIENTS / client / "README.md", CLIENTS.parent / "docs" / f"{client}.md"]
    server = Server(os.environ["HUBBUB_BIN"])
    try:
        await server.up()
        with tempfile.TemporaryDirectory() as temporary:
            dir = Path(temporary)
            for document in documents:
                blocks = re.findall(rf"```{language}\n(.*?)```", document.read_text(), re.DOTALL)
                assert blocks, f"{document} shows no programme"
                for number, block in enumerate(blocks, 1):
                    (dir / name).write_text(block.replace(ADDRESS, server.url))
                    command = runner(dir, built)
                    done = subprocess.run(command, cwd=dir, text=True, capture_output=True, timeout=600)
                    where = f"{document.relative_to(CLIENTS.parent)}, programme {number}"
                    assert done.returncode == 0, f"{where}:\n{done.stdout}{done.stderr}"
                    assert done.stdout.strip(), f"{where} prints nothing"
                    # What it shows of a position is that of a message, not of the beginning.
                    assert not re.search(r"seq\W*0\b", done.stdout, re.IGNORECASE), f"{where}:\n{done.stdout}"
                    print(f"{where}: ok")
    finally:
        await server.remove()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
