#!/usr/bin/env bash
# Packs the clients into the folder $1, each as its language's tools take it:
#   hubbub-client-VERSION.tgz                  npm install FILE
#   hubbub_client-VERSION-py3-none-any.whl     pip install FILE; the sources are in hubbub_client-VERSION.tar.gz
#   hubbub-client-go-vVERSION.zip              a zip of a Go module; unpack it and name the folder in a replace directive
#   hubbub-client-VERSION.crate, hubbub-ws-…   crates of Rust; unpack both and name the folders in a path and a patch
# A language whose tools are missing is left out, aloud.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p "$1"; out="$(realpath "$1")"
work="$(mktemp -d)"; trap 'rm -rf "$work"' EXIT
left_out() { echo "not packed: the client for $1, since $2 is missing" >&2; }

if command -v npm >/dev/null; then
    (cd clients/javascript && npm pack --silent --pack-destination "$out" >/dev/null)
else
    left_out JavaScript npm
fi

# The setuptools that builds it is the one its tests have, from a Python that has it or from the package index.
python="${PYTHON:-python3}"
if ! "$python" -c 'import sys, setuptools; sys.exit(int(setuptools.__version__.split(".")[0]) < 71)' 2>/dev/null; then
    python="$work/venv/bin/python"
    python3 -m venv "$work/venv" 2>/dev/null &&
        grep '^setuptools==' clients/python/requirements-test.txt >"$work/setuptools" &&
        "$python" -m pip install --quiet --disable-pip-version-check -r "$work/setuptools" || python=
fi
if [ -n "$python" ]; then
    # In a copy: it builds beside its sources.
    mkdir "$work/python"
    cp -r clients/python/{hubbub,README.md,pyproject.toml} LICENSE "$work/python"
    find "$work/python" -name __pycache__ -exec rm -r {} +
    for kind in sdist wheel; do
        (cd "$work/python" && "$python" -c "from setuptools import build_meta as b; b.build_$kind('$out')") >"$work/log" 2>&1 ||
            { cat "$work/log" >&2; exit 1; }
    done
else
    left_out Python "a Python with venv, or the package index,"
fi

version="$(sed -nE 's/^version = "(.*)"/\1/p' Cargo.toml | head -1)"
if command -v python3 >/dev/null; then
    # As Go's module proxies serve it: below the module's path and version, with its licence.
    module="$work/go/$(sed -nE 's/^module //p' clients/go/go.mod)@v$version"
    mkdir -p "$module"
    cp -r clients/go/. LICENSE "$module"
    python3 - "$work/go" "$out/hubbub-client-go-v$version.zip" <<'PYTHON'
import pathlib, sys, zipfile
root = pathlib.Path(sys.argv[1])
with zipfile.ZipFile(sys.argv[2], "w", zipfile.ZIP_DEFLATED) as packed:
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        packed.write(path, path.relative_to(root))
PYTHON
else
    left_out Go python3
fi

cargo package --quiet --locked --allow-dirty --no-verify -p hubbub-ws -p hubbub-client 2>"$work/cargo" ||
    { cat "$work/cargo" >&2; exit 1; }
cp "${CARGO_TARGET_DIR:-target}"/package/hubbub-{ws,client}-"$version".crate "$out"
