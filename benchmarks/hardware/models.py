"""Shapes of the blocks of published models, and of a model given on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from steptax.app.errors import UserError
from steptax.benchmarks.hardware.backend import BlockShape

#: From the models' published config.json (meta-llama) and the GPT-2 paper.
MODELS: Mapping[str, BlockShape] = {
    shape.name: shape
    for shape in (
        BlockShape("gpt-2", 768, 3072, 12, 12, 1024, gated=False),
        BlockShape("llama-3-8b", 4096, 14336, 32, 8, 8192),
        BlockShape("llama-3-70b", 8192, 28672, 64, 8, 8192),
        BlockShape("llama-3.1-405b", 16384, 53248, 128, 8, 8192),
    )
}
_FIELDS = ("hidden", "ffn", "heads", "kv_heads", "seq_len", "sequences")


def read_model(text: str) -> BlockShape:
    """A named model, ``hidden=4096,ffn=14336,...``, or both: ``llama-3-8b,seq_len=4096``.

    UserError for a name that is not known, or sizes that make no block.
    """
    name, *changes = [part.strip() for part in text.split(",")]
    if "=" in name:
        changes.insert(0, name)
        name = "own"
    elif name not in MODELS:
        raise UserError(
            f"no model {name!r}",
            where="--model",
            hint=f"one of {', '.join(MODELS)}, or its sizes: hidden=4096,ffn=14336,heads=32,"
            "kv_heads=8,seq_len=4096",
        )
    given: dict[str, Any] = {}
    for change in changes:
        field, _, value = (part.strip() for part in change.partition("="))
        if field not in _FIELDS or not value.isdecimal() or int(value) < 1:
            raise UserError(
                f"expected SIZE=NUMBER, found {change!r}",
                where="--model",
                hint=f"sizes are {', '.join(_FIELDS)}",
            )
        given[field] = int(value)
    if name == "own":
        missing = [f for f in ("hidden", "ffn", "heads", "seq_len") if f not in given]
        if missing:
            raise UserError(f"{', '.join(missing)} is missing", where="--model")
        given.setdefault("kv_heads", given["heads"])
        shape = BlockShape("own", **given)
    else:
        shape = replace(MODELS[name], **given)
    if shape.hidden % shape.heads or shape.heads % shape.kv_heads:
        raise UserError(
            f"{shape.hidden} is no multiple of {shape.heads} heads, or those of "
            f"{shape.kv_heads} key-value heads",
            where="--model",
        )
    return shape
