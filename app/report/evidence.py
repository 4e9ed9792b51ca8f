"""The evidence pack for a claim against a provider: one HTML, its CSVs, and their digests."""

from __future__ import annotations

import hashlib
import io
import json
import time
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime

import steptax
from steptax.app.charts.devices import devices_table
from steptax.app.charts.evidence import (
    bench_pairs_table,
    bench_rows_table,
    claimed_devices_table,
    facts_table,
    incidents_table,
    lost_table,
    samples_table,
)
from steptax.app.errors import NotFoundError
from steptax.app.format import format_measure, format_moment
from steptax.app.report.html import as_html
from steptax.app.report.models import Link, Report, Section
from steptax.app.views.devices.text import coverage
from steptax.app.views.evidence.models import EvidenceView

NO_SERIALS = (
    "Serial numbers of boards are not in the samples: a device is told by its UUID, from which "
    "nvidia-smi --query-gpu=uuid,serial --format=csv on the host gives the serial number; --serial "
    "UUID=SERIAL writes it beside."
)
#: Lines of the table of figures that are printed.
PRINTED_FACTS = 60
#: Of the moment in the entries of the archive, so that the same evidence gives the same file.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def evidence_report(
    view: EvidenceView,
    link: Link,
    *,
    serials: Mapping[str, str] | None = None,
    now_us: int | None = None,
) -> Report:
    """``view`` as a report; ``serials`` are board serial numbers by UUID.

    NotFoundError for a serial number of a device that is none of the view's.
    """
    known = dict(serials or {})
    own = {facts.gpu_uuid for facts in view.devices.facts}
    for uuid in known:
        if uuid not in own:
            raise NotFoundError(
                f"device {uuid!r} is not among those of the claim",
                where="--serial",
                hint=f"there are {', '.join(sorted(filter(None, own))[:8]) or 'none with a UUID'}",
            )
    start_us, end_us = view.window_us
    return Report(
        kind="evidence",
        title=f"Evidence: job {view.job_id}",
        period=f"{format_moment(start_us)} to {format_moment(end_us)} ({view.window_basis})",
        sentence=view.sentence,
        numbers=(),
        sections=(
            Section(
                "devices",
                "Devices",
                claimed_devices_table(view, known),
                text=(coverage(view.devices),),
            ),
            Section("incidents", "What happened", incidents_table(view)),
            Section(
                "facts",
                "Beside their peers",
                facts_table(view),
                text=(_against(view),),
                columns=("rank", "figure", "own", "peers", "unit"),
                rows=PRINTED_FACTS,
            ),
            _pairs(view),
            Section("bench", "Every benchmark figure", bench_rows_table(view), is_printed=False),
            Section("lost", "What was lost", lost_table(view), text=_said_of_lost(view)),
            Section(
                "device_figures",
                "All figures of the devices",
                devices_table(view.devices),
                is_printed=False,
            ),
            Section("samples", "Raw samples", samples_table(view), is_printed=False),
        ),
        basis=(
            f"About {view.chosen}.",
            *(() if view.card is None else (f"Straggler card: {view.card}",)),
            view.price_basis,
            "All times are UTC.",
        ),
        notes=(*view.warnings, *(() if known else (NO_SERIALS,))),
        link=link,
        made_at_us=time.time_ns() // 1000 if now_us is None else now_us,
        version=steptax.__version__,
    )


def as_zip(report: Report) -> bytes:
    """The pack: report.html, a CSV per table, and MANIFEST.json with the SHA-256 of each."""
    files = {"report.html": as_html(report).encode()}
    files |= {
        f"{section.key}.csv": section.table.csv().encode()
        for section in report.sections
        if section.table is not None and section.table.rows
    }
    manifest = {
        "title": report.title,
        "period": report.period,
        "made": datetime.fromtimestamp(report.made_at_us / 1e6, UTC).isoformat(),
        "made_by": f"Steptax {report.version}",
        "page": report.link.url,
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    }
    files["MANIFEST.json"] = json.dumps(manifest, indent=2, ensure_ascii=False).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            pack.writestr(entry, content)
    return out.getvalue()


def _against(view: EvidenceView) -> str:
    return (
        f"Held against {view.peers:,} other devices of the same job. Figures are means over the "
        "window, each sample weighted with the time that it stands for."
    )


def _pairs(view: EvidenceView) -> Section:
    title = "Benchmark before and after"
    made = bench_pairs_table(view)
    text: tuple[str, ...] = ()
    if not made.rows:
        text = (
            f"{len(view.bench):,} figures of these devices are stored, none of the same test both "
            "before and after: steptax bench on the host now gives the one after",
        )
    return Section(
        "benchmark",
        title,
        made,
        text=text,
        columns=(
            "gpu_uuid",
            "test",
            "unit",
            "before",
            "before_at",
            "after",
            "after_at",
            "gap_ratio",
            "verdict",
        ),
    )


def _said_of_lost(view: EvidenceView) -> tuple[str, ...]:
    if not view.lost:
        return ("What was lost is not known: no straggler among them, no failure on record.",)
    first = view.lost[0]
    said = f"{format_measure(first.gpu_hours, full=True)}, {format_measure(first.usd, full=True)}"
    return (f"{first.what}: {said}.", "The lines may overlap: they are not to be added up.")
