"""``mamf-finder``: achievable matrix multiplies, as mamf-finder.py of ml-engineering logs them."""

from __future__ import annotations

import json
import re

from steptax.app.errors import InputError
from steptax.connectors.bench.whole import BenchFileConnector, Found, positive
from steptax.connectors.wholefile import LINE_CHARACTERS, numbered

_NUMBER = r"(\d{1,7}(?:\.\d{1,6})?)"
_SHAPE = r"(\d{1,7}x\d{1,7}x\d{1,7})"
_OLD_ROW = re.compile(
    rf"\s*\d+ \|\s*{_NUMBER}\(mean\)\s+{_NUMBER}\(median\)\s+{_NUMBER}\(max\) @ {_SHAPE}\b.*"
)
_NEW_ROW = re.compile(
    rf"\s*\d+\s+{_SHAPE}\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}"
    rf"(?:\s+{_NUMBER}(?:\s+{_NUMBER})?)?\s*"
)
_BEST = re.compile(rf"(mean|median|max):\s+{_NUMBER} TFLOPS @ {_SHAPE}\b.*")
_HEADLINE = re.compile(rf"(MAMF|MSMF) \([^)]{{1,60}}\):\s+{_NUMBER}\s*TFLOPS\b.{{0,20}}?{_SHAPE}.*")
_DTYPE = re.compile(r"\*\* Dtype: (?:torch\.)?(\w{1,30})\s*")
_SOFTWARE = re.compile(r"(torch|cuda|hip|hpu|benchmark version)\s*[=:]\s*([\w.+-]{1,60})\s*,?.*")
_DEVICE = re.compile(r".{0,40}Properties\(name='([^']{1,80})'.*")
_SHORT = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "float8_e4m3fn": "fp8",
    "float8_e4m3fnuz": "fp8",
}


class MamfFinderConnector(BenchFileConnector):
    """Output file of mamf-finder.py."""

    kind = "mamf-finder"
    version = 1
    title = "mamf-finder: achievable TFLOP/s of matrix multiplies by shape (ml-engineering)"
    doc = (
        "The output file of mamf-finder.py (stas00/ml-engineering), of its versions 1 to 4: one "
        "line per shape, and the best of each statistic at the end.\n"
        "Gives bench_results: 'gemm', the median over the iterations of each M x N x K in "
        "TFLOP/s (as steptax bench gemm counts it), and 'gemm best mean', 'gemm best median', "
        "'gemm best max', of newer versions 'gemm MAMF' (short bursts at boost clock) and "
        "'gemm MSMF' (sustained). Which of them a table means differs: the published comparison "
        "table of the tool uses the mean.\n"
        "Run: --job, else the file's name; node: --host."
    )
    sees = "what one device reaches in matrix multiplies of every shape tried"
    cannot_see = "the spread over iterations; all devices at once"
    marks = (b"TFLOPS", b"** Dtype", b"(median)", b"Benchmark started on")
    is_not = "is no output of mamf-finder.py"
    hint = "name the file of its --output_file"

    def take(self, text: str, found: Found, where: str) -> None:
        """See `BenchFileConnector.take`."""
        dtype, model = "unknown", None
        software: dict[str, str] = {}
        seen: set[tuple[str, str]] = set()
        for number, line in numbered(text.replace("\033[K", "\n")):
            if len(line) > LINE_CHARACTERS:
                continue
            if told := _DTYPE.fullmatch(line):
                dtype = _SHORT.get(told[1], told[1])
            elif told := _SOFTWARE.match(line):
                software[told[1]] = told[2]
                found.software = json.dumps(software, sort_keys=True)
            elif told := _DEVICE.match(line):
                model = told[1]
            elif told := _OLD_ROW.fullmatch(line):
                _row(found, number, told[4], told[2], dtype, model, seen)
            elif told := _NEW_ROW.fullmatch(line):
                _row(found, number, told[1], told[3], dtype, model, seen)
            elif told := _BEST.fullmatch(line) or _HEADLINE.match(line):
                _best(found, number, told, dtype, model)
        if not found.rows and not found.rejects:
            raise InputError(self.is_not, where=where, hint=self.hint)


def _row(
    found: Found,
    line: int,
    shape: str,
    median: str,
    dtype: str,
    model: str | None,
    seen: set[tuple[str, str]],
) -> None:
    """One shape; newer versions try the best ones again: the first measurement is kept."""
    value = positive(median)
    if value is None:
        found.reject(line, f"expected TFLOP/s above 0, found {median}", "median")
        return
    if (shape, dtype) in seen:
        found.notes.setdefault("shapes that were tried again are taken once, the first time")
        return
    seen.add((shape, dtype))
    found.add(
        line,
        device="device",
        test="gemm",
        size=shape,
        dtype=dtype,
        value=value,
        unit="TFLOP/s",
        p50=value,
        gpu_model=model,
    )


def _best(found: Found, line: int, told: re.Match[str], dtype: str, model: str | None) -> None:
    value = positive(told[2])
    if value is None:
        found.reject(line, f"expected TFLOP/s above 0, found {told[2]}", told[1])
        return
    name = told[1] if told[1] in ("MAMF", "MSMF") else f"best {told[1]}"
    found.add(
        line,
        device="device",
        test=f"gemm {name}",
        size=told[3],
        dtype=dtype,
        value=value,
        unit="TFLOP/s",
        gpu_model=model,
    )
