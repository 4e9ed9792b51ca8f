"""Events and scores that lines of a log tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from steptax.connectors.logs.marks import Mark
from steptax.connectors.logs.rows import LogRows
from steptax.connectors.logs.state import LogState

_ENDED = {"process_end": "completed", "failure": "failed"}


@dataclass(frozen=True)
class Moment:
    """Where an event stands: its line and clock; ``own_clock`` is False for an earlier line's."""

    attempt: int
    line: int
    at_us: int | None
    own_clock: bool


class LogEvents:
    """Makes rows of ``events`` and of ``reported_scores``; ``name`` is the file's."""

    def __init__(self, rows: LogRows, state: LogState, name: str) -> None:
        self._rows = rows
        self._state = state
        self._name = name
        self._happened: set[tuple[Any, ...]] = set()

    def take(self, mark: Mark, attempt: int) -> None:
        """An event mark of attempt ``attempt``."""
        assert mark.event is not None
        state, moment = self._state, self.moment(mark, attempt)
        if mark.event == "checkpoint_saved":
            # A log that does not say which one ended means the one that began last.
            newest = next(reversed(state.saves), "")
            self.end_save(newest if mark.step is None else str(mark.step), mark.line.at_us)
            return
        if mark.event in _ENDED:
            state.ended = state.ended or _ENDED[mark.event]
        if mark.event == "checkpoint_save":
            where = (moment.attempt, moment.line, moment.at_us, moment.own_clock)
            state.saves.setdefault(str(mark.step), [*where, mark.step, mark.detail])
            return
        self.happen(mark.event, moment, step=mark.step, text=mark.detail)

    def moment(self, mark: Mark, attempt: int) -> Moment:
        """When the line of ``mark`` was printed; the newest clock before it where it has none."""
        own = mark.line.at_us
        return Moment(attempt, mark.line.number, own or self._state.last_us, own is not None)

    def end_saves(self, before: int | None = None) -> None:
        """Saves that no line ended: all, or those of steps before ``before``, which has ended."""
        for key, save in list(self._state.saves.items()):
            if before is None or (save[4] is not None and save[4] < before):
                self.end_save(key, None)

    def end_save(self, key: str, end_us: int | None) -> None:
        """The save called ``key`` has ended, at ``end_us`` if that is known."""
        save = self._state.saves.pop(key, None)
        if save is None:
            return
        attempt, line, at_us, own, step, text = save
        end = end_us if own and at_us is not None and end_us and end_us > at_us else None
        moment = Moment(attempt, line, at_us, own)
        self.happen("checkpoint_save", moment, step=step, text=text, end_us=end)

    def happen(
        self,
        kind: str,
        moment: Moment,
        *,
        step: int | None = None,
        text: str | None = None,
        end_us: int | None = None,
    ) -> None:
        """A row, unless another process has said the same or nothing tells when it was."""
        if moment.at_us is None:
            self._rows.note(
                f"{kind} without a moment: no line before it has a clock, so it is no event"
            )
            return
        key = (moment.attempt, kind, moment.at_us if step is None else step)
        if key in self._happened:
            return
        self._happened.add(key)
        detail: dict[str, Any] = {} if step is None else {"step": step}
        if text:
            detail["text"] = text[:200]
        if not moment.own_clock:
            detail["clock"] = "of the newest line before it that has one"
        self._rows.add(
            "events",
            moment.line,
            attempt=moment.attempt,
            start_us=moment.at_us,
            kind=kind,
            end_us=end_us,
            detail=orjson.dumps(detail).decode() if detail else None,
        )

    def scores(self, mark: Mark, attempt: int, step: int | None) -> None:
        """A line of a straggler report; titles and heads of lists tell what follows them."""
        line, state = mark.line, self._state
        here = f"{self._name} line {line.number}"
        if mark.detail is not None:
            word, _, text = mark.detail.partition(" ")
            if word == "title":
                state.section, state.listed = f"{text} performance", ""
            else:
                state.listed, state.ranks_total = text, mark.step
        follows = mark.detail is not None and "relative" not in mark.detail and state.report
        if mark.new_report and not follows:
            # The blocks of one report of NVRx follow each other, relative scores first.
            state.report = here if line.at_us is None else f"{line.at_us} {here}"
        for score in mark.scores:
            listed = score.listed or state.listed or "listed"
            metric = score.metric or state.section or "performance"
            key = ("score", state.report or here, metric, listed, score.rank)
            if key in self._happened:
                continue  # a rank that leads a list stands in the summary too
            self._happened.add(key)
            self._rows.add(
                "reported_scores",
                line.number,
                attempt=attempt,
                report=state.report or here,
                metric=metric,
                listed=listed,
                rank=score.rank,
                tool=score.tool,
                at_us=line.at_us,
                step=step,
                host=score.host,
                score=score.value,
                unit=score.unit or None,
                flagged=score.flagged,
                ranks_total=score.ranks_total or (None if score.metric else state.ranks_total),
            )
        if state.ranks_total:
            state.facts.setdefault("world_size", state.ranks_total)
