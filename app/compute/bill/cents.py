"""Rounding a table of amounts so that every row, every column and the whole add up to the cent.

Controlled rounding (Cox, JASA 1987): each amount, each sum of a row and of a column and the total
become the cent below or above them. Such a rounding always exists, because these sums are flows in
a network; of all of them the one is taken that goes up where most of a cent would be lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from steptax.app.compute.bill.cost import CENT, split_to_cents
from steptax.app.compute.stats.rows import Flags, Ints

#: Cells up to which all of them are weighed against one another; beyond, those that are alone in
#: their row are left to what their column needs, which takes no time.
_FEW_CELLS = 2_000
#: Cells beyond which columns alone are kept: a larger network takes minutes.
MAX_CELLS = 60_000


def table_to_cents(
    cells: Sequence[Sequence[Fraction | None]], columns: Sequence[Decimal] | None = None
) -> list[list[Decimal | None]]:
    """``cells`` [rows][columns] in whole cents; None stays None.

    The total is the rounded sum of all amounts. ``columns`` are sums of columns that were rounded
    before: they are kept wherever rows and cells can be rounded to them. Above ``MAX_CELLS``
    amounts, rows may be off by more than a cent, while columns and total hold.
    """
    known = [
        (i, j, cell)
        for i, row in enumerate(cells)
        for j, cell in enumerate(row)
        if cell is not None
    ]
    out: list[list[Decimal | None]] = [[None] * len(row) for row in cells]
    if not known:
        return out
    down = [cell.numerator * 100 // cell.denominator for _, _, cell in known]
    # What is left of each amount, in cents, and how many cents the whole needs.
    rest = [cell * 100 - floor for (*_, cell), floor in zip(known, down, strict=True)]
    whole = sum((cell for *_, cell in known), Fraction(0))
    left = round(whole * 100) - sum(down)
    open_ = [k for k, part in enumerate(rest) if part]
    wanted = None
    if columns is not None:
        wanted = [int(amount / CENT) for amount in columns]
        for (_, j, _), floor in zip(known, down, strict=True):
            wanted[j] -= floor
    up = None
    if wanted is not None and len(open_) > _FEW_CELLS:
        up = _with_singles(known, rest, open_, wanted)
    if up is None:
        up = (
            _choose(known, rest, open_, left, wanted)
            if len(open_) <= MAX_CELLS
            else _by_column(known, rest)
        )
    for k, (i, j, _) in enumerate(known):
        out[i][j] = Decimal(down[k] + (k in up)) * CENT
    return out


@dataclass(frozen=True, eq=False)
class Amounts:
    """Many exact amounts [N] as whole numbers of one unit, in cents; of any size."""

    numerator: NDArray[np.object_]
    """0 where the amount is not known."""
    denominator: int
    known: Flags

    def exact(self, place: int) -> Fraction | None:
        """One of them, as an amount and not in cents."""
        if not self.known[place]:
            return None
        return Fraction(self.numerator[place], self.denominator) / 100


def tables_to_cents(
    cells: Sequence[Sequence[Fraction | None]],
    more: Amounts,
    column: int,
    columns: Sequence[Decimal],
) -> tuple[list[list[Decimal | None]], Ints]:
    """``cells`` and below them rows with nothing but an amount in ``column``, as in one table.

    ``columns`` are kept wherever that can be. Returns the cells in cents, and the cents of
    ``more`` [N], 0 where they are not known.
    """
    found = _with_many(cells, more, column, columns)
    if found is not None:
        return found
    width = len(columns)
    below: list[list[Fraction | None]] = [[None] * width for _ in more.known]
    for place, row in enumerate(below):
        row[column] = more.exact(place)
    cents = table_to_cents([*cells, *below], columns)
    alone = [row[column] for row in cents[len(cells) :]]
    whole = [0 if amount is None else int(amount / CENT) for amount in alone]
    return cents[: len(cells)], np.array(whole, dtype=np.int64)


def _with_many(
    cells: Sequence[Sequence[Fraction | None]],
    more: Amounts,
    column: int,
    columns: Sequence[Decimal],
) -> tuple[list[list[Decimal | None]], Ints] | None:
    """As ``_with_singles``, with the many rows as columns; None of a few, or where it cannot be."""
    known = [(i, j, c) for i, row in enumerate(cells) for j, c in enumerate(row) if c is not None]
    down = [cell.numerator * 100 // cell.denominator for _, _, cell in known]
    rest = [cell * 100 - floor for (*_, cell), floor in zip(known, down, strict=True)]
    open_ = [k for k, part in enumerate(rest) if part]
    floors = (more.numerator // more.denominator).astype(np.int64)
    left = more.numerator - floors * more.denominator
    parts = (left / more.denominator).astype(np.float64)
    free = np.flatnonzero(left > 0)
    if len(open_) + len(free) <= _FEW_CELLS:
        return None
    wanted = [int(amount / CENT) for amount in columns]
    wanted[column] -= int(floors.sum())
    for (_, j, _), floor in zip(known, down, strict=True):
        wanted[j] -= floor
    singles, others = _apart(known, open_)
    if len(others) > MAX_CELLS:
        return None
    room = {j: len(own) for j, own in singles.items()}
    room[column] = room.get(column, 0) + len(free)
    up = _solved(known, rest, others, room, wanted)
    if up is None:
        return None
    got = Counter(known[k][1] for k in up)
    for j, count in enumerate(wanted):
        own = singles.get(j, [])
        lacking = count - got[j]
        if not 0 <= lacking <= room.get(j, 0):
            return None
        also = free if j == column else free[:0]
        ranked = np.argsort(
            -np.concatenate([[float(rest[k]) for k in own], parts[also]]), kind="stable"
        )
        for place in ranked[:lacking].tolist():
            if place < len(own):
                up.add(own[place])
            else:
                floors[also[place - len(own)]] += 1
    out: list[list[Decimal | None]] = [[None] * len(row) for row in cells]
    for k, (i, j, _) in enumerate(known):
        out[i][j] = Decimal(down[k] + (k in up)) * CENT
    return out, floors


def _choose(
    known: Sequence[tuple[int, int, Fraction]],
    rest: Sequence[Fraction],
    open_: Sequence[int],
    left: int,
    wanted: Sequence[int] | None,
) -> set[int]:
    """The cells that get a cent more: ``left`` in all, ``wanted`` in each column if that can be."""
    if not open_:
        return set()
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix, vstack

    parts = np.array([float(rest[k]) for k in open_])
    rows = np.unique([known[k][0] for k in open_], return_inverse=True)[1]
    labels, columns = np.unique([known[k][1] for k in open_], return_inverse=True)
    place = np.arange(len(open_))
    sums: list[csr_matrix] = []
    low, high = [], []
    for group in (rows, columns):
        exact = [Fraction(0)] * (int(group.max()) + 1)
        for k, g in zip(open_, group.tolist(), strict=True):
            exact[g] += rest[k]
        sums.append(csr_matrix((np.ones(len(open_)), (group, place))))
        low += [part.numerator // part.denominator for part in exact]
        high += [-(-part.numerator // part.denominator) for part in exact]
    both = vstack(sums)
    limits = {"A_ub": vstack([both, -both]), "b_ub": np.concatenate([high, -np.array(low)])}
    whole = csr_matrix(np.ones((1, len(open_))))
    equal: list[tuple[csr_matrix, list[int]]] = [(whole, [left])]
    if wanted is not None:
        equal.insert(0, (vstack([whole, sums[1]]), [left, *(wanted[j] for j in labels.tolist())]))
    for matrix, amounts in equal:
        found = linprog(
            -parts, A_eq=matrix, b_eq=amounts, bounds=(0, 1), method="highs-ds", **limits
        )
        if found.x is not None:
            return {open_[k] for k in np.flatnonzero(found.x > 0.5).tolist()}
    # The flow exists; only a solver that gave up comes here.
    return _by_column(known, rest)


def _with_singles(
    known: Sequence[tuple[int, int, Fraction]],
    rest: Sequence[Fraction],
    open_: Sequence[int],
    wanted: Sequence[int],
) -> set[int] | None:
    """As ``_choose`` where most rows have one amount to round: rounding that one settles its row.

    So the other rows are solved by themselves, with what those single amounts can add to each
    column, and of these the largest get what is left of ``wanted``. None where that cannot be.
    """
    singles, others = _apart(known, open_)
    if len(others) > MAX_CELLS:
        return None
    up = _solved(known, rest, others, {j: len(own) for j, own in singles.items()}, wanted)
    if up is None:
        return None
    got = [0] * len(wanted)
    for k in up:
        got[known[k][1]] += 1
    for j, count in enumerate(wanted):
        own = singles.get(j, [])
        more = count - got[j]
        if not 0 <= more <= len(own):
            return None
        up |= set(sorted(own, key=lambda k: (-float(rest[k]), k))[:more])
    return up


def _apart(
    known: Sequence[tuple[int, int, Fraction]], open_: Sequence[int]
) -> tuple[dict[int, list[int]], list[int]]:
    """Those of ``open_`` that are alone in their row, by column, and the others."""
    in_row = Counter(known[k][0] for k in open_)
    singles: dict[int, list[int]] = {}
    others = []
    for k in open_:
        if in_row[known[k][0]] == 1:
            singles.setdefault(known[k][1], []).append(k)
        else:
            others.append(k)
    return singles, others


def _solved(
    known: Sequence[tuple[int, int, Fraction]],
    rest: Sequence[Fraction],
    cells: Sequence[int],
    room: Mapping[int, int],
    wanted: Sequence[int],
) -> set[int] | None:
    """Which of ``cells`` get a cent: each row within one, each column short by ``room`` at most."""
    if not cells:
        return set()
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix, vstack

    place = np.arange(len(cells))
    rows = np.unique([known[k][0] for k in cells], return_inverse=True)[1]
    labels, columns = np.unique([known[k][1] for k in cells], return_inverse=True)
    exact = [Fraction(0)] * (int(rows.max()) + 1)
    for k, row in zip(cells, rows.tolist(), strict=True):
        exact[row] += rest[k]
    ones = np.ones(len(cells))
    both = vstack([csr_matrix((ones, (group, place))) for group in (rows, columns)])
    most = [wanted[j] for j in labels.tolist()]
    low = [part.numerator // part.denominator for part in exact]
    low += [max(0, count - room.get(j, 0)) for j, count in zip(labels.tolist(), most, strict=True)]
    high = [-(-part.numerator // part.denominator) for part in exact] + most
    found = linprog(
        -np.array([float(rest[k]) for k in cells]),
        A_ub=vstack([both, -both]),
        b_ub=np.concatenate([high, -np.array(low)]),
        bounds=(0, 1),
        method="highs-ds",
    )
    return None if found.x is None else {cells[k] for k in np.flatnonzero(found.x > 0.5).tolist()}


def _by_column(known: Sequence[tuple[int, int, Fraction]], rest: Sequence[Fraction]) -> set[int]:
    """Largest remainder in each column, for the column sums that add up to the rounded whole."""
    members: dict[int, list[int]] = {}
    for k, (_, j, _) in enumerate(known):
        members.setdefault(j, []).append(k)
    sums = [sum((rest[k] for k in own), Fraction(0)) / 100 for own in members.values()]
    up = set()
    for own, cents in zip(members.values(), split_to_cents(sums), strict=True):
        order = sorted(own, key=lambda k: (-rest[k], k))
        up |= set(order[: int(cents / CENT)])
    return up
