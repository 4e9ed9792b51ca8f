"""Counts as people say them."""

from __future__ import annotations


def said(count: int, one: str, many: str | None = None) -> str:
    """``1 line``, ``1,024 lines``; ``many`` is what several are called, else ``one`` with an s."""
    return f"{count:,} {one}" if count == 1 else f"{count:,} {many or one + 's'}"
