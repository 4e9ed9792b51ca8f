"""``sacct``: what Slurm's accounting prints of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from steptax.app.errors import InputError
from steptax.app.schema import Batch, Reject
from steptax.connectors.base import Capabilities, Connector, Options, RawChunk, Run
from steptax.connectors.schedulers.jobs_of_records import Jobs, NoJobsError
from steptax.connectors.schedulers.sacct_layout import Layout, find_layout, is_header
from steptax.connectors.schedulers.sacct_rows import Record, read_line
from steptax.connectors.sources import TextBlock, blocks, head, refuse_no_text, text_of
from steptax.connectors.tables.norows import no_rows
from steptax.connectors.values import BadValueError
from steptax.connectors.wording import said as counted

TIMEZONE = "timezone"


@dataclass(frozen=True)
class SacctText:
    """Whole lines, and how they are laid out."""

    layout: Layout
    block: TextBlock


@dataclass(frozen=True)
class RecordBatch(Batch):
    """Records of a stretch: which of them are one job only the end of the source tells."""

    records: tuple[Record, ...] = ()
    repaired: int = 0


class SacctConnector(Connector):
    """Jobs of Slurm from the output of ``sacct``."""

    kind = "sacct"
    version = 4
    title = "Slurm accounting: what sacct prints, with any separator, with or without a header"
    doc = (
        "Output of sacct with any --delimiter, of --parsable, --parsable2 or in columns of fixed "
        "width; fields are found by the header. Without one: the 26 fields of Open XDMoD, the 19 "
        "of CEEMS, else fields that their looks tell. sacct --parsable2 --allusers -o "
        "JobID,JobName,User,Account,Cluster,Partition,State,Submit,Start,End,Elapsed,AllocTRES,"
        "NodeList is enough; steptax watch slurm asks for them itself, again and again.\n"
        "Devices are gres/gpu of AllocTRES, the total of the job; typed entries (gres/gpu:h100) "
        "repeat it and are never added to it; of jobs with MIG slices they are unknown. GPU-hours "
        "are devices times Elapsed. Where End - Start differs from it (the job was suspended, or a "
        "clock change moved one of them), Elapsed holds, from Start on, and that is said. By the "
        "nodes of NodeList charges of a bill find the job. Steps (.batch, .0) are not jobs; parts "
        "of heterogeneous jobs (+0, +1) are added, those whose devices are known; tasks of an "
        "array that wait are a job each; a requeued job (sacct --duplicates) is one job whose "
        "runs are attempts. A job without Start held nothing.\n"
        "Times with an offset are exact; others are local: --timezone Europe/Berlin, else UTC. "
        "The account is who pays (team). A separator inside of a job name is repaired and counted. "
        "A state that Slurm's manual does not list is unknown, and named in a note."
    )

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Find the layout in the head of the file."""
        if options.job_id is not None:
            raise InputError(
                "accounting names its jobs itself", where="--job", hint="leave --job out"
            )
        zone_of(options)
        layout = _layout(source)
        return Capabilities(
            ("jobs", "events"),
            0,
            "jobs, accounts, states, when they ran, devices held, GPU-hours, requeues",
            "what happened inside a job: steps, phases, stragglers; which GPU it was",
            is_guess=not layout.header_line,
        )

    def fetch(self, source: Path, options: Options) -> Iterator[RawChunk]:
        """Stretches of whole lines."""
        layout = _layout(source)
        for block in blocks(source):
            yield RawChunk(str(source), block.first_line, SacctText(layout, block))

    def parse(self, raw: RawChunk, options: Options) -> list[Batch]:
        """Records and rejects of one stretch."""
        text: SacctText = raw.payload
        layout, zone = text.layout, zone_of(options)
        records: list[Record] = []
        rejects = [Reject("jobs", b.reason, b.row, None, b.raw) for b in text.block.broken]
        repaired = 0
        local = False
        for row, data in enumerate(text.block.data.split(b"\n"), text.block.first_line):
            if row <= layout.header_line or not data.strip():
                continue
            try:
                line = data.decode().rstrip("\r")
            except UnicodeDecodeError:
                rejects.append(
                    Reject(
                        "jobs",
                        "expected text in UTF-8, found other bytes",
                        row,
                        None,
                        text_of(data),
                    )
                )
                continue
            if is_header(line, layout) or not line.strip("- "):
                continue
            try:
                found = read_line(line, layout, row, zone)
            except BadValueError as error:
                rejects.append(Reject("jobs", str(error), row, error.field, text_of(data)))
                continue
            records.append(found.record)
            repaired += found.repaired
            local |= found.local_time
        notes = layout.notes
        if local and TIMEZONE not in options.extra:
            notes += ("times without a zone are taken as UTC: pass --timezone if they are local",)
        if not {"alloctres", "reqtres", "allocgres", "reqgres"} & layout.at.keys():
            notes += ("no field says how many GPUs a job held: ask sacct for AllocTRES",)
        elif not {"alloctres", "allocgres"} & layout.at.keys():
            notes += ("devices are those asked for (ReqTRES): ask sacct for AllocTRES",)
        nothing = no_rows("jobs")
        return [RecordBatch("jobs", nothing, tuple(rejects), notes, tuple(records), repaired)]

    def begin(self, source: Path, options: Options) -> Run:
        """Holds all records until the end."""
        return _SacctRun(source, options)


class _SacctRun(Run):
    def __init__(self, source: Path, options: Options) -> None:
        self._source, self._options = source, options
        self._jobs = Jobs()
        self._repaired = 0
        self._refused = False

    def take(self, batch: Batch) -> Iterator[Batch]:
        """Hold the records back, pass rejects and notes on."""
        if isinstance(batch, RecordBatch):
            self._jobs.add(batch.records)
            self._repaired += batch.repaired
        self._refused |= bool(batch.rejects)
        yield Batch(batch.table, batch.rows, batch.rejects, batch.notes)

    def close(self) -> Iterator[Batch]:
        """One row per job."""
        if not len(self._jobs):
            if not self._refused:
                raise NoJobsError(
                    "holds no job", where=str(self._source), hint="check sacct's -S, -E and -a"
                )
            return
        yield from self._jobs.batches(self._options)
        if self._repaired:
            note = f"{counted(self._repaired, 'line')} repaired: a name holds the separator"
            yield Batch("jobs", no_rows("jobs"), notes=(note,))


def zone_of(options: Options) -> tzinfo:
    """The zone of local times; InputError for one that does not exist."""
    name = options.extra.get(TIMEZONE)
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
        raise InputError(
            f"there is no time zone {name!r}",
            where="--timezone",
            hint="name it as Europe/Berlin or America/New_York",
        ) from None


def _layout(source: Path) -> Layout:
    data = head(source)
    refuse_no_text(data, str(source), "the text that sacct prints is read")
    return find_layout(data.decode("utf-8", "replace"), str(source))
