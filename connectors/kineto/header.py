"""What a trace says of its process: rank, groups, clock, device. Everything else is left alone.

Only named keys are taken, so user and host names (``username``, ``host_name``, ``tw_*``,
``mast_*``) never leave the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from steptax.connectors.kineto import names, repair

_RANK_IN_NAME = re.compile(r"(?<![a-z])rank[-_.]?(\d{1,7})(?!\d)", re.IGNORECASE)
_ENDINGS = re.compile(r"(?:\.pt)?(?:\.trace)?(?:\.json)?(?:\.gz)?$", re.IGNORECASE)
_KEYS = ("distributedInfo", "deviceProperties", "baseTimeNanoseconds")
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*"?(\d{1,19})')
#: What group descriptions of Megatron and of PyTorch's device meshes say of a rank's place.
_PLACES = (
    ("tp", re.compile(r"^(?:mesh_)?tp$|^tensor_model_parallel_group$", re.IGNORECASE)),
    ("pp", re.compile(r"^(?:mesh_)?pp$|^pipeline_model_parallel_group$", re.IGNORECASE)),
    ("dp", re.compile(r"^(?:mesh_)?dp$|^data_parallel_group$", re.IGNORECASE)),
    ("cp", re.compile(r"^(?:mesh_)?cp$|^context_parallel_group$", re.IGNORECASE)),
    ("ep", re.compile(r"^(?:mesh_)?ep$|^expert_model_parallel_group$", re.IGNORECASE)),
)


@dataclass(frozen=True)
class Group:
    """A process group that the rank belongs to."""

    name: str
    what: str
    size: int | None
    ranks: tuple[int, ...]

    @property
    def label(self) -> str:
        """As its operations carry it."""
        return names.label(self.name, self.what, self.size)


@dataclass(frozen=True)
class Header:
    """What is known of the process that wrote a trace; None where it does not say."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    groups: tuple[Group, ...] = ()
    base_ns: int | None = None
    gpu_model: str | None = None
    notes: tuple[str, ...] = field(default=())

    def merged(self, other: Header) -> Header:
        """What either knows; this one where both do."""
        known = {k: v for k, v in vars(self).items() if v not in (None, ())}
        return replace(other, **known | {"notes": self.notes + other.notes})

    def places(self, rank: int) -> dict[str, tuple[int, int]]:
        """Coordinate and size of each parallel group that is told apart: ``{"tp": (3, 8)}``."""
        found: dict[str, tuple[int, int]] = {}
        for group in self.groups:
            for place, pattern in _PLACES:
                if pattern.search(group.what) and rank in group.ranks:
                    found.setdefault(place, (sorted(group.ranks).index(rank), len(group.ranks)))
        return found


def read_header(data: bytes) -> Header:
    """What the keys before or after the events say.

    ``data`` is the text up to the list of events, or from its end; it may be cut or damaged.
    """
    text = data.strip()
    if text.startswith(b"["):
        return Header()  # A list without keys.
    text = text.lstrip(b"],\r\n\t ")
    opened = text if text.startswith(b"{") else b"{" + text
    candidates = (opened, opened + b"]}", opened.rstrip().rstrip(b",") + b"}")
    for candidate in candidates:  # Of sound text, without the slower search for what is broken.
        sound = repair.keys(candidate)
        if sound is not None:
            return _from_keys(sound)
    for candidate in candidates:
        found = repair.first(candidate)
        if found is not None and isinstance(found[0], dict):
            return _from_keys(found[0])
    keys = {key: _value_of(key, text) for key in _KEYS}
    base = _BASE.search(text)
    if keys["baseTimeNanoseconds"] is None and base:
        keys["baseTimeNanoseconds"] = int(base[1])
    told = _from_keys({k: v for k, v in keys.items() if v is not None})
    if len(text.strip(b"]} \r\n\t,")) == 0:
        return told
    note = "the keys beside the events are damaged; of them only what could be told is taken"
    return replace(told, notes=(note,))


def rank_in_name(path: str) -> int | None:
    """The rank that a file's name holds: ``rank3.pt.trace.json``, ``rank-34.Jul_15.json.gz``."""
    found = _RANK_IN_NAME.findall(Path(path).name)
    return int(found[-1]) if len(set(found)) == 1 else None


def job_in_name(path: str) -> str:
    """A name for the job that the files of its ranks share: their names without rank and endings.

    Where nothing is left of the name it is that of the folder.
    """
    file = Path(path)
    stem = _RANK_IN_NAME.sub("", _ENDINGS.sub("", file.name)).strip("-_. ")
    return stem or file.resolve().parent.name or "trace"


def _value_of(key: str, text: bytes) -> Any:
    found = re.search(rb'"' + key.encode() + rb'"\s*:\s*', text)
    value = repair.first(text[found.end() :]) if found else None
    return value[0] if value else None


def _from_keys(keys: Mapping[str, Any]) -> Header:
    info = keys.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    backend = info.get("backend")
    return Header(
        rank=_count(info.get("rank"), 0),
        world_size=_count(info.get("world_size"), 1),
        backend=backend if isinstance(backend, str) else None,
        groups=_groups(info.get("pg_config")),
        base_ns=_count(keys.get("baseTimeNanoseconds"), 0),
        gpu_model=_device(keys.get("deviceProperties")),
    )


def _count(value: object, least: int) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63:
        return None
    return value


def _groups(config: object) -> tuple[Group, ...]:
    found = []
    for entry in config if isinstance(config, list) else ():
        if not isinstance(entry, dict):
            continue
        name, what, ranks = (entry.get(k) for k in ("pg_name", "pg_desc", "ranks"))
        if isinstance(name, str) and name:
            members = tuple(r for r in ranks if type(r) is int) if isinstance(ranks, list) else ()
            size = _count(entry.get("pg_size"), 1)
            found.append(Group(name, what if isinstance(what, str) else "", size, members))
    return tuple(found)


def _device(properties: object) -> str | None:
    models = {
        d["name"]
        for d in (properties if isinstance(properties, list) else ())
        if isinstance(d, dict) and isinstance(d.get("name"), str)
    }
    return models.pop() if len(models) == 1 else None
