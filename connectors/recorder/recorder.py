"""The recorder as training code sees it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from steptax.connectors.recorder.blocks import PhaseBlock, StepBlock
from steptax.connectors.recorder.book import StepBook
from steptax.connectors.recorder.clock import SYSTEM_CLOCK, Clock
from steptax.connectors.recorder.comm_calls import LibraryWatch
from steptax.connectors.recorder.delivery import SPOOL_BYTES, Delivery
from steptax.connectors.recorder.device import CudaDevice
from steptax.connectors.recorder.hooks import Hooks, outcome
from steptax.connectors.recorder.identity import Identity
from steptax.connectors.recorder.notes import Notes
from steptax.connectors.recorder.session import Session, Settings
from steptax.connectors.recorder.target import read_target, read_token
from steptax.connectors.recorder.timeline import CHECKPOINT, COMM, COMPUTE, H2D, INPUT, OTHER
from steptax.connectors.recorder.values import whole

PHASES = {
    "compute": COMPUTE,
    "input": INPUT,
    "checkpoint": CHECKPOINT,
    "h2d": H2D,
    "other": OTHER,
}
"""Phase names and their buckets."""

#: How long ``close`` waits for the device to finish the last steps.
DEVICE_WAIT_S = 2.0


class StepRecorder:
    """Records the steps of one rank of a training job into a lake.

    ``lake`` is the folder of the lake, the URL of a collector (``https://host:8600``, see ``steptax
    collect``) or one that fsspec reaches (``s3://bucket/lake``). ``job_id`` is any text; ``rank``
    and ``attempt`` count from 0, as launchers do: a restart is a further attempt. ``job`` holds
    further columns of the ``jobs`` table, written by rank 0; ``topology`` this rank's coordinates
    (tp, pp, dp, cp, ep). Rows are written every ``flush_s`` seconds by a thread; at most
    ``queue_limit`` of them wait when the disk does not take them, then the oldest are dropped and
    counted.

    What goes to a URL waits in ``spool``, a folder on the node's own disk, until it has been taken;
    one rank of the node sends for all. Beyond ``spool_bytes`` the oldest rows are dropped, counted
    and said in the heartbeat. ``token`` (else the environment's STEPTAX_TOKEN) authorises at a
    collector.

    ``cuda``: times phases by CUDA events once torch has initialised CUDA ("auto" and True; True
    says so when it has not), or never (False). ``watch_library`` tells a rank's own time inside a
    collective from communication, by when it calls torch.distributed (see `comm_calls`).
    ``encoding`` of the steps: "auto" is Parquet where pyarrow is installed, "parquet" and "jsonl"
    ask for one.

    Use it in a ``with`` statement, or call `start` and `close`. No method raises: misuse and
    failures are counted in `stats` and the first of each kind is logged as a warning of the logger
    ``steptax.recorder``. In a forked child it does nothing.

    Time is taken as it passes on the calling thread. Phases may be entered several times in a step
    and nested: the inner one's time is taken from the outer one. A garbage collection is counted as
    such and not in the phase in which it fell. What is in no phase is left as the difference
    between the duration and its parts.
    """

    _settings: Settings | None

    def __init__(
        self,
        lake: str | os.PathLike[str],
        job_id: str,
        rank: int,
        world_size: int,
        attempt: int = 0,
        job: Mapping[str, Any] | None = None,
        topology: Mapping[str, Any] | None = None,
        flush_s: float = 1.0,
        queue_limit: int = 20_000,
        clock: Clock = SYSTEM_CLOCK,
        cuda: bool | str = "auto",
        watch_library: bool = True,
        encoding: str = "auto",
        token: str | None = None,
        spool: str | os.PathLike[str] | None = None,
        spool_bytes: int = SPOOL_BYTES,
    ) -> None:
        self._prepare(clock, watch_cuda=cuda is not False, watch_library=bool(watch_library))
        try:
            if not float(flush_s) > 0:
                raise ValueError(f"flush_s must be above 0, not {flush_s}")
            identity = Identity(job_id, rank, world_size, attempt, job, topology, self._notes)
            delivery = Delivery(
                read_target(lake),
                read_token(token),
                None if spool is None else os.fsdecode(spool),
                whole(spool_bytes),
            )
            self._settings = Settings(
                delivery,
                identity,
                float(flush_s),
                whole(queue_limit),
                cuda is True,
                encoding,
            )
        except Exception as error:
            self._disable(error)

    def _prepare(self, clock: Clock, *, watch_cuda: bool, watch_library: bool) -> None:
        """State before anything is known of the job."""
        self._clock = clock
        self._notes = Notes()
        self._state = "new"
        self._settings = None
        self._session: Session | None = None
        self._hooks = Hooks(self._collection, self._close, lambda: self._silence("forked"))
        self._book = StepBook(
            clock,
            self._notes,
            watch_cuda=watch_cuda,
            on_device=self._found_device,
            on_library=self._watch_library if watch_library else None,
        )
        self._library = LibraryWatch(self._book, self._notes)
        self._blocks = {
            name: PhaseBlock(self._book, self._notes, bucket) for name, bucket in PHASES.items()
        }
        self._collective = PhaseBlock(self._book, self._notes, COMM)

    # -- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to record: says where this rank runs, and starts the writing thread."""
        if self._settings is None or self._state != "new":
            self._notes.misused("start() again, or after close()")
            return
        try:
            self._session = Session(self._settings, self._book, self._clock, self._notes)
            self._state = "running"
            self._book.is_running = True
            self._hooks.install()
        except Exception as error:
            self._disable(error)

    def close(self) -> None:
        """Write what waits and stop; the job is noted as completed. May be called again."""
        self._close("completed")

    def __enter__(self) -> StepRecorder:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close(outcome(kind, error))

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, e.g. in a spawned data loader, records nothing."""
        return (_silent_copy, ())

    # -- steps as blocks ------------------------------------------------------------------------

    def step(self, step: int) -> StepBlock:
        """A block that is one optimiser step; steps count upwards within an attempt."""
        return StepBlock(self._book, self._notes, step)

    def phase(self, name: str) -> PhaseBlock:
        """A block that is a phase: compute, input, checkpoint, h2d or other."""
        try:
            return self._blocks[name]
        except Exception:
            self._unknown_phase(name)
            return self._blocks["other"]

    def collective(self) -> PhaseBlock:
        """A block that is an exposed collective: arrival is stamped before anything in it runs."""
        return self._collective

    # -- steps as callbacks ---------------------------------------------------------------------

    def on_step_begin(self, step: int) -> None:
        """Open a step."""
        self.step(step).__enter__()

    def on_phase(self, name: str | None) -> None:
        """End the phase that the last ``on_phase`` opened and open this one; None opens none."""
        try:
            bucket = None
            if name is not None:
                bucket = PHASES.get(name)
                if bucket is None:
                    self._unknown_phase(name)
                    bucket = OTHER
            self._book.change(bucket)
        except Exception as error:
            self._notes.caught("a phase", error)

    def on_collective_begin(self) -> None:
        """Note the arrival at an exposed collective."""
        self._collective.__enter__()

    def on_collective_end(self) -> None:
        """Note the end of that collective."""
        self._collective.__exit__(None, None, None)

    def on_step_end(self, loss: Any = None, tokens: int | None = None) -> None:
        """Finish the open step."""
        if tokens is not None:
            self.tokens(tokens)
        if loss is not None:
            self.loss(loss)
        try:
            self._book.end()
        except Exception as error:
            self._notes.caught("the end of a step", error)

    # -- what a step processed ------------------------------------------------------------------

    def tokens(self, count: int, seq_sq_sum: int | None = None) -> None:
        """Add tokens to the step, and the sum of their squared sequence lengths if known."""
        try:
            payload = self._book.payload("tokens")
            if payload is not None:
                payload.add_tokens(count, seq_sq_sum)
        except Exception as error:
            self._notes.caught("tokens", error)

    def sequences(self, lengths: Any) -> None:
        """Add sequences to the step, by their lengths in tokens (any iterable of integers)."""
        try:
            payload = self._book.payload("sequences")
            if payload is not None:
                payload.add_sequences(lengths)
        except Exception as error:
            self._notes.caught("sequences", error)

    def loss(self, value: Any) -> None:
        """Note the loss: a number or a tensor of one element. A device is never waited for."""
        try:
            payload = self._book.payload("a loss")
            if payload is not None:
                payload.set_loss(value)
        except Exception as error:
            self._notes.caught("a loss", error)

    # -- between steps --------------------------------------------------------------------------

    def event(
        self,
        kind: str,
        start_us: int,
        end_us: int | None = None,
        ranks: Any = None,
        detail: str | None = None,
    ) -> None:
        """Note what happened to the job: any kind of the ``events`` table; from any thread.

        Times are microseconds since 1970 (UTC). ``ranks``: a rank, several, or None for all.
        """
        try:
            if self._session is None or self._state != "running":
                self._notes.misused("an event before start() or after close()")
            else:
                self._session.event(kind, start_us, end_us, ranks, detail)
        except Exception as error:
            self._notes.caught("an event", error)

    def link(self, step: int, peer: int, duration_us: int, size_bytes: int | None = None) -> None:
        """Note how long rank ``peer`` and this one took to exchange a message (see `LinkProbe`)."""
        try:
            if self._session is None or self._state != "running":
                self._notes.misused("a link before start() or after close()")
            else:
                self._session.link(step, peer, size_bytes, duration_us)
        except Exception as error:
            self._notes.caught("a link", error)

    @property
    def stats(self) -> dict[str, Any]:
        """How the recorder itself is doing.

        ``rows_*`` count rows of all tables, ``rows_dropped`` with the steps that the device never
        finished. ``steps_abandoned`` were left by an exception or never ended, ``steps_repeated``
        had a number that this attempt had passed. On the way to a URL ``rows_written`` are in the
        spool, and ``is_sender``, ``rows_sent``, ``rows_lost`` and ``sender_cpu_s`` tell of the
        node's rows that this process sends. ``overhead_us_mean`` is the mean time per step
        that the training thread spent in the recorder, over every 16th step.
        """
        session, book, notes = self._session, self._book, self._notes
        shipper = None if session is None else session.shipper
        return {
            "state": self._state,
            "encoding": None if session is None else session.encoding,
            "is_timed_by_device": book.is_timed_by_device,
            "rows_written": 0 if shipper is None else shipper.written,
            "rows_waiting": len(book.held) + (0 if shipper is None else shipper.waiting),
            "rows_dropped": book.held.dropped + (0 if shipper is None else shipper.dropped),
            "steps_done": book.steps_done,
            "steps_abandoned": book.steps_abandoned,
            "steps_repeated": book.steps_repeated,
            "misuse": notes.misuse,
            "last_misuse": notes.last_misuse,
            "errors": notes.errors,
            "last_error": notes.last_error,
            "overhead_us_mean": book.overhead_us_mean,
            **({} if session is None else session.sink.stats()),
        }

    # -- inside ---------------------------------------------------------------------------------

    def _close(self, state: str) -> None:
        try:
            if self._session is None or self._state != "running":
                return
            self._state = "closed"
            self._book.stop()
            self._hooks.remove()
            self._library.detach()
            self._book.drain(DEVICE_WAIT_S)
            self._session.close(state)
        except Exception as error:
            self._notes.failed("closing", error)

    def _disable(self, error: Exception) -> None:
        self._notes.failed("nothing will be recorded", error)
        self._silence("disabled")

    def _silence(self, state: str) -> None:
        """Do nothing from here on, and count nothing."""
        self._state = state
        self._notes.muted = True
        self._book.stop()
        self._session = None
        self._hooks.remove()
        self._library.detach()

    def _watch_library(self) -> bool:
        return self._library.attach()

    def _found_device(self, device: CudaDevice) -> None:
        if self._session is not None:
            self._session.found_device(device)

    def _collection(self, phase: str, info: dict[str, Any]) -> None:
        try:
            self._book.collection(phase, info)
        except Exception as error:
            self._notes.failed("timing a garbage collection", error)

    def _unknown_phase(self, name: object) -> None:
        label = repr(name) if isinstance(name, str) else f"of type {type(name).__name__}"
        self._notes.misused(f"there is no phase {label}: it counts as other", topic="phase")


def _silent_copy() -> StepRecorder:
    recorder = StepRecorder.__new__(StepRecorder)
    recorder._prepare(SYSTEM_CLOCK, watch_cuda=False, watch_library=False)
    recorder._silence("disabled")
    return recorder
