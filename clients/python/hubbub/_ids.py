"""Ids of messages, and names in paths."""

from __future__ import annotations

import uuid
from urllib.parse import quote


def make_id() -> str:
    return str(uuid.uuid4())


def segment_of(name: str) -> str:
    """A part of a path. Whoever passes a path on may drop a plain `.` or `..`, as if it led somewhere."""
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="")
