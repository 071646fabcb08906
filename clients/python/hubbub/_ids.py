"""Ids of messages."""

from __future__ import annotations

import uuid


def make_id() -> str:
    return str(uuid.uuid4())
