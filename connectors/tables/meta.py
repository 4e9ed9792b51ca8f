"""The sizes of a job from a YAML file beside its trace."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import yaml

from steptax.app.errors import InputError
from steptax.connectors.sources import check_file

_MAX_BYTES = 1 << 20
#: Sizes whose product is the world size.
_FACTORS = ("dp_size", "pp_size", "tp_size", "dsp_size")
_SIZES = (*_FACTORS, "vpp_size", "world_size")


@dataclass(frozen=True)
class JobMeta:
    """Sizes of a job, all None where the file does not say; ``name`` is its ``trial_name``.

    ``run_id`` is only echoed: no column of ``jobs`` holds it.
    """

    dp_size: int | None = None
    pp_size: int | None = None
    tp_size: int | None = None
    dsp_size: int | None = None
    vpp_size: int | None = None
    world_size: int | None = None
    name: str | None = None
    run_id: int | str | None = None

    def job(self) -> dict[str, Any]:
        """What is known, by column of ``jobs``."""
        return {name: value for name, value in self.echoed().items() if name != "run_id"}

    def echoed(self) -> dict[str, Any]:
        """All that the file says."""
        return {name: value for name, value in vars(self).items() if value is not None}


def read_meta(path: Path) -> JobMeta:
    """Sizes in ``path``; without ``world_size`` it is the product of the other sizes, if all known.

    InputError when the file is no YAML mapping, a size is no positive whole number, or
    ``world_size`` is not dp x pp x tp x dsp.
    """
    check_file(path)
    where = str(path)
    with path.open("rb") as handle:
        data = handle.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise InputError(
            "is too large for a file of sizes", where=where, hint="write lines such as dp_size: 4"
        )
    try:
        found = yaml.safe_load(data)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise InputError(
            f"is no YAML: {str(error).splitlines()[0][:200]}",
            where=where,
            hint="write lines such as dp_size: 4",
        ) from error
    if not isinstance(found, dict):
        raise InputError("holds no sizes", where=where, hint="write lines such as dp_size: 4")
    sizes = {name: _size(found[name], name, where) for name in _SIZES if name in found}
    factors = [sizes.get(name) for name in _FACTORS]
    known = [size for size in factors if size is not None]
    if len(known) == len(factors):
        product = prod(known)
        if sizes.setdefault("world_size", product) != product:
            raise InputError(
                f"world_size is {sizes['world_size']}, but dp x pp x tp x dsp is "
                f"{' x '.join(map(str, known))} = {product}",
                where=where,
                hint="correct one of the sizes",
            )
    name = found.get("trial_name")
    run = found.get("run_id")
    if run is not None and type(run) is not int:
        run = str(run)[:200]
    return JobMeta(**sizes, name=None if name is None else str(name)[:200], run_id=run)


def _size(value: Any, name: str, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1 or value >= 2**31:
        raise InputError(
            f"{name} must be a positive whole number, not {str(value)[:40]!r}",
            where=where,
            hint=f"write a line such as {name}: 4",
        )
    return value
