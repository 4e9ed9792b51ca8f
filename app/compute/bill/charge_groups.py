"""Charges added up where nothing tells them apart, so that a month of a million is divided fast.

A charge is spread evenly over its period. Charges of one resource that follow each other without a
gap, are of equal length and cost the same are therefore one charge over all of their time: whatever
part of it is asked for, it is the same amount exactly. Of those that belong to a label, such as a
team, this does not hold, and they are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_COSTS = ("billed_cost", "effective_cost")
_SPAN = ("charge_start_us", "charge_end_us")
_FLAGS = ("lacks_effective", "lacks_billed")
_KEYS = ("currency", "resource_id", "job_id", "holder", "is_unused", *_FLAGS)
#: Name of the rate for costs in a currency that a bill does not state.
UNSTATED = "UNSTATED"
_FIRST = ("provider", "invoice", "line")


def group_charges(
    charges: pa.Table,
    resource_of: Callable[[str], str | None],
    claim_of: Callable[[str], tuple[str | None, str | None]],
) -> list[dict[str, Any]]:
    """Rows for ``reconcile``; their costs are those of ``charges`` exactly.

    ``charges`` is what the query ``fleet_charges`` gives. ``resource_of`` tells how hosts call a
    resource, None where it is no host; ``claim_of`` tells whom the tags of a charge (JSON) name: a
    job, and a label of several. Each is asked once for each text.
    """
    unused = [
        pc.fill_null(pc.equal(charges[name], "Unused"), False)
        for name in ("commitment_status", "reservation_status")
    ]
    resource = _translated(charges["resource_id"], resource_of)
    job = _translated(charges["tags"], lambda tags: claim_of(tags)[0])
    label = _translated(charges["tags"], lambda tags: claim_of(tags)[1])
    placed = pc.or_(pc.is_valid(resource), pc.is_valid(job))
    named = {
        "currency": charges["currency"],
        "resource_id": resource,
        "job_id": job,
        # A label counts only where nothing tells more.
        "holder": pc.if_else(placed, pa.scalar(None, pa.string()), label),
        "is_unused": pc.or_(*unused),
        **{name: charges[name] for name in (*_FLAGS, *_SPAN, *_FIRST, *_COSTS, "charge_count")},
    }
    rows: list[dict[str, Any]] = _without_seams(
        _added_up(pa.table(named), (*_KEYS, *_SPAN))
    ).to_pylist()
    return rows


def _translated(column: pa.ChunkedArray, meaning: Callable[[str], str | None]) -> pa.Array:
    coded = column.combine_chunks().dictionary_encode()
    told = [None if word is None else meaning(word) for word in coded.dictionary.to_pylist()]
    return pa.array(told, pa.string()).take(coded.indices)


def _added_up(rows: pa.Table, keys: tuple[str, ...], **spans: str) -> pa.Table:
    """``rows`` with equal ``keys`` as one; of ``spans`` the least or the largest value."""
    sums = [*((name, "sum") for name in (*_COSTS, "charge_count"))]
    kept = [*((name, "min") for name in _FIRST), *spans.items()]
    found = rows.group_by(list(keys), use_threads=False).aggregate([*sums, *kept])
    names = {f"{name}_{how}": name for name, how in (*sums, *kept)}
    return found.rename_columns([names.get(name, name) for name in found.column_names])


def _without_seams(rows: pa.Table) -> pa.Table:
    """Charges that follow each other at the same rate as one."""
    if not rows.num_rows:
        return rows
    order: list[tuple[str, str]] = [(name, "ascending") for name in (*_KEYS, *_SPAN)]
    rows = rows.sort_by(order).combine_chunks()
    length = pc.subtract(rows["charge_end_us"], rows["charge_start_us"])
    begins = _differs(length)
    for name in (*_KEYS, *_COSTS, "charge_count"):
        begins |= _differs(rows[name])
    after = pc.equal(
        rows["charge_start_us"].slice(1), rows["charge_end_us"].slice(0, len(rows) - 1)
    )
    begins |= ~_true(after)
    moves = _true(pc.greater(length, 0))
    begins |= ~moves[1:]
    # What a label's jobs held is asked for each charge by itself.
    begins |= np.asarray(pc.is_valid(rows["holder"]).to_numpy())[1:]
    run = pa.array(np.concatenate([[0], np.cumsum(begins)]))
    spans = {"charge_start_us": "min", "charge_end_us": "max"}
    found = _added_up(rows.append_column("run", run), ("run", *_KEYS), **spans)
    return found.sort_by("run").drop_columns("run")


def _differs(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Of each value but the first whether it is another than the one before it."""
    first, second = column.slice(0, len(column) - 1), column.slice(1)
    other = _true(pc.not_equal(first, second))
    return np.asarray(other | _true(pc.xor(pc.is_null(first), pc.is_null(second))))


def _true(mask: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    return np.array(pc.fill_null(mask, False).to_numpy(), bool)


def converted(
    rows: list[dict[str, Any]], rates: Mapping[str, Fraction], currency: str
) -> list[dict[str, Any]]:
    """``rows`` with the costs in currencies of ``rates`` in ``currency``, exact.

    ``rates`` tells how much of ``currency`` one unit of another one is, under ``UNSTATED`` of one
    that nobody named. Costs in a currency that is not in it stay what they are.
    """
    out = []
    for row in rows:
        rate = rates.get(row["currency"] or UNSTATED)
        if rate is not None and row["currency"] != currency:
            costs = {n: None if row[n] is None else Fraction(row[n]) * rate for n in _COSTS}
            row = {**row, **costs, "currency": currency}
        out.append(row)
    return out
