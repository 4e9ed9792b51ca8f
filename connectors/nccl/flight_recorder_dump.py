"""A flight recorder dump as it is written: its group table, its entries, and whose it is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steptax.app.errors import InputError
from steptax.connectors.nccl.flight_recorder_pickle import load_plain
from steptax.connectors.wholefile import Whole, text_in, whole_json

_RANK_HINT = "name the file as PyTorch does, ..._rank_N or PREFIXN, or say it: --rank N"
_DIGITS = re.compile(r"(\d+)$")
_MARKED = re.compile(r"(?:^|[_.-])(?:rank|dump)?[_.-]?(\d+)$", re.IGNORECASE)
_ENDINGS = (".gz", ".json", ".pickle", ".pkl", ".txt", ".log", ".bin")
_WORLD = ("default_pg", "0")


@dataclass(frozen=True)
class Dump:
    """One rank's dump. ``notes`` is what a person must know of how it was read."""

    rank: int
    body: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    lost: str | None = None
    """Why the entries are not all there."""
    groups: Mapping[str, frozenset[int] | None] = field(default_factory=dict)
    """Members by the name of a group; None where the dump does not say them."""


def read_dumps(whole: Whole, path: str, said_rank: int | None) -> list[Dump]:
    """The dumps of a file: one, or one per rank of a collection; InputError when it is none."""
    lost = None
    if whole.data[:1] == b"\x80":
        body: Any = load_plain(whole.data, path)
    else:
        body, lost = _json(text_in(whole, path), path)
    if isinstance(body, list) and body and isinstance(body[0], dict) and "state" in body[0]:
        # Before version 2 a dump was the bare list of its entries.
        body = {"entries": body}
    if isinstance(body, dict) and "entries" not in body and isinstance(body.get("ranks"), list):
        return [_member(item, path, number) for number, item in enumerate(body["ranks"], 1)]
    _require_dump(body, path)
    groups = group_members(body)
    rank, notes = _rank_of(Path(path).name, groups, said_rank, path)
    return [Dump(rank, body, notes, lost, groups)]


def group_members(body: Mapping[str, Any]) -> dict[str, frozenset[int] | None]:
    """Members of each group by its name: ``pg_config``, whose ranks are written as a text."""
    found: dict[str, frozenset[int] | None] = {}
    config = body.get("pg_config")
    for name, said in config.items() if isinstance(config, dict) else ():
        ranks = said.get("ranks") if isinstance(said, dict) else None
        members = re.findall(r"\d{1,9}", ranks) if isinstance(ranks, str) else ranks
        # A nameless group is what Gloo leaves: it stands for no group that has entries.
        if str(name).strip():
            plain = isinstance(members, list) and all(_is_rank(m) for m in members)
            found[str(name)] = frozenset(map(int, members)) if plain and members else None
    return found


def _is_rank(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, int) and 0 <= value < 2**31)


def _require_dump(body: Any, where: str) -> dict[str, Any]:
    if not (isinstance(body, dict) and isinstance(body.get("entries"), list)):
        held = f"the keys {', '.join(map(str, body))[:120]}" if isinstance(body, dict) else "none"
        raise InputError(
            f"is no flight recorder dump: expected a dictionary with entries, found {held}",
            where=where,
            hint="name files that TORCH_NCCL_DUMP_ON_TIMEOUT or dump_nccl_trace wrote",
        )
    return body


def _member(item: Any, path: str, number: int) -> Dump:
    where = f"{path}, dump {number}"
    body = _require_dump(item.get("dump") if isinstance(item, dict) else None, where)
    rank = item.get("rank")
    if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < 2**31:
        raise InputError(
            f"expected the rank of a dump, found {str(rank)[:80]}", where=where, hint=_RANK_HINT
        )
    return Dump(rank, body, groups=group_members(body))


def _json(text: str, where: str) -> tuple[Any, str | None]:
    """A JSON document; of one that breaks off, the whole entries, and why the rest is lost."""
    try:
        return whole_json(text), None
    except ValueError as error:
        begins = text.find('"entries"')
        opens = text.find("[", begins) if begins >= 0 else -1
        entries = _whole_entries(text, opens + 1) if opens >= 0 else []
        if not entries:
            raise InputError(
                f"is no flight recorder dump: neither a pickle nor whole JSON: {error}",
                where=where,
                hint="a dump begins with { or with the bytes of a pickle; copy or dump it anew",
            ) from None
        body = {key: _part(text, key) for key in ("version", "pg_config", "pg_status")}
        return body | {"entries": entries}, f"the file breaks off or is damaged: {error}"


def _whole_entries(text: str, at: int) -> list[Any]:
    decoder = json.JSONDecoder()
    entries: list[Any] = []
    while True:
        begins = re.compile(r"[\s,]*(?=\{)").match(text, at)
        if begins is None:
            return entries
        try:
            entry, at = decoder.raw_decode(text, begins.end())
            json.dumps(entry, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            return entries
        entries.append(entry)


def _part(text: str, key: str) -> Any:
    begins = re.search(rf'"{key}"\s*:\s*', text)
    try:
        part = json.JSONDecoder().raw_decode(text, begins.end())[0] if begins else None
        json.dumps(part, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return part


def _rank_of(
    name: str, groups: Mapping[str, frozenset[int] | None], said: int | None, where: str
) -> tuple[int, tuple[str, ...]]:
    """The rank of a dump, by what a person says, its name, or the groups that it lists.

    A name may run a host and a rank together (``trace_node1203`` for rank 3 of node120): then only
    an end of the digits that is a member of the groups counts.
    """
    if said is not None:
        return said, ()
    known = [members for members in groups.values() if members]
    world = frozenset().union(*known) if known else None
    common = frozenset.intersection(*known) if known else frozenset()
    stem = name
    for ending in _ENDINGS:
        stem = stem[: -len(ending)] if stem.lower().endswith(ending) and stem != ending else stem
    digits = _DIGITS.search(stem)
    if digits and (world is None or _MARKED.search(stem)) and len(digits[1]) < 10:
        rank = int(digits[1])
        if world is None or rank in world:
            note = f"{name}: read as rank {rank}, which is in none of some groups that it lists"
            return rank, (note,) if known and rank not in common else ()
    if digits and world is not None:
        ends = {int(digits[1][i:]) for i in range(max(0, len(digits[1]) - 9), len(digits[1]))}
        fits = sorted(ends & (common or world))
        if len(fits) == 1:
            return fits[0], (f"{name}: read as rank {fits[0]}, the only end of its digits that is",)
    if len(common) == 1:
        (rank,) = common
        return rank, (f"{name}: read as rank {rank}, the only member of all groups that it lists",)
    raise InputError("does not say whose dump it is", where=where, hint=_RANK_HINT)
