"""Straggler reports of NVIDIA's resiliency extension and of Megatron's ``--log-straggler``."""

from __future__ import annotations

import re

from steptax.connectors.logs.lines import Line, number
from steptax.connectors.logs.marks import Fault, Kind, Mark, Score

_TITLE = re.compile(
    r"(?P<kind>GPU relative|GPU individual|Section '?[\w /.-]+?'? (?:relative|individual)|"
    r"Sections? (?:relative|individual)) performance"
)
_LIST = re.compile(r"(?P<which>Worst|Best) performing (?P<shown>\d+)/(?P<total>\d{1,9}) ranks:?")
_RANK = re.compile(r"Rank=(?P<rank>\d{1,9}) Node=(?P<host>\S+) Score=(?P<score>\S+)\s*$")
_RANK_BEGINS = re.compile(r"^\s*Rank=\d")
_WARNING = re.compile(r"STRAGGLER DETECTION WARNING: (?P<what>.*?)Affected ranks: (?P<ranks>.*)$")
_STRAGGLER = re.compile(r"StragglerId\(rank=(?P<rank>\d{1,9}), node='(?P<host>[^']*)'\)")
_FOOTER = re.compile(r"Straggler report processing time")

_MEGATRON = re.compile(r"\bMnRtt/Rnk: ")
_ITEM = re.compile(
    r"(?P<end>Mn|Mx)(?P<what>Rtt|Pwr|Tmp|Utl|Clk|DRtt|Etpt)/Rnk: "
    r"(?P<value>-?[\d.]+)(?P<unit>ms|W|C|%|MHz|TF)/(?P<rank>\d{1,9})$"
)
_METRICS = {
    "Rtt": "round trip",
    "Pwr": "power",
    "Tmp": "temperature",
    "Utl": "utilisation",
    "Clk": "clock",
    "DRtt": "data round trip",
    "Etpt": "estimated throughput",
}
_UNITS = {"C": "degC", "TF": "TFLOP/s"}
_RANKED = re.compile(
    r"\^{2,} (?P<which>Bottom|Top)\s+(?P<shown>\d+)\s+Ranks with (?:lowest|highest)\s+"
    r"Etpt\(TF\): (?P<rest>.*)$"
)
_PLACE = re.compile(r"(?P<value>-?[\d.]+)/(?P<rank>\d{1,9})")
#: Megatron prints milliwatts and calls them W; no device draws 10 kW.
_MILLIWATTS_ABOVE = 10_000.0


def read_nvrx(line: Line) -> Mark | Fault | None:
    """A line of an NVRx report. What a title says of the lines below it, the run keeps."""
    text = line.text
    found = _TITLE.search(text)
    if found is not None:
        return Mark(Kind.SCORE, line, detail=f"title {found['kind']}", new_report=True)
    found = _LIST.search(text)
    if found is not None:
        which = "lowest" if found["which"] == "Worst" else "highest"
        return Mark(Kind.SCORE, line, detail=f"list {which}", step=int(found["total"]))
    found = _RANK.search(text)
    if found is not None and int(found["rank"]) < 2**31:
        value = number(found["score"])
        if value is None:
            return Fault(f"expected a score, found {found['score'][:40]!r}", "score")
        score = Score("nvrx", "", "", int(found["rank"]), _finite(value), "", found["host"])
        return Mark(Kind.SCORE, line, scores=(score,))
    if _RANK_BEGINS.match(text):
        return Fault("expected 'Rank=N Node=NAME Score=NUMBER', found a damaged line", "score")
    found = _WARNING.search(text)
    if found is not None:
        metric = _warned(found["what"])
        named = _STRAGGLER.findall(found["ranks"])
        if not named:
            listed = found["ranks"].strip().strip("[]")
            named = [(part.strip(), "") for part in listed.split(",") if part.strip().isdigit()]
        scores = tuple(
            Score("nvrx", metric, "flagged", int(rank), None, "", host or None, flagged=True)
            for rank, host in named
            if int(rank) < 2**31
        )
        return Mark(Kind.SCORE, line, scores=scores)
    return Mark(Kind.NOISE, line) if _FOOTER.search(text) else None


def _warned(text: str) -> str:
    kind = "individual" if "individual" in text else "relative"
    return f"GPU {kind} performance" if "GPU" in text else f"section {kind} performance"


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None


def read_megatron_straggler(line: Line) -> Mark | Fault | None:
    """``| MnRtt/Rnk: 3453.08ms/8 | MxRtt/Rnk: ... |`` and the lists below it."""
    text = line.text
    found = _RANKED.search(text)
    if found is not None:
        listed = "lowest" if found["which"] == "Bottom" else "highest"
        scores = tuple(
            Score("megatron", "estimated throughput", listed, int(place["rank"]), value, "TFLOP/s")
            for place in _PLACE.finditer(found["rest"])
            if (value := number(place["value"])) is not None and int(place["rank"]) < 2**31
        )
        if len(scores) != int(found["shown"]):
            return Fault(f"expected {found['shown']} ranks, found {len(scores)}", "score")
        return Mark(Kind.SCORE, line, scores=scores)
    begin = _MEGATRON.search(text)
    if begin is None:
        return None
    scores_found = []
    for piece in text[begin.start() :].split("|"):
        item = _ITEM.match(piece.strip())
        if item is None or int(item["rank"]) >= 2**31 or (value := number(item["value"])) is None:
            return Fault(
                f"expected 'MxName/Rnk: VALUE/RANK', found {piece.strip()[:40]!r}", "score"
            )
        unit = _UNITS.get(item["unit"], item["unit"])
        if item["what"] == "Pwr" and value > _MILLIWATTS_ABOVE:
            value /= 1000.0
        listed = "lowest" if item["end"] == "Mn" else "highest"
        metric = _METRICS[item["what"]]
        scores_found.append(Score("megatron", metric, listed, int(item["rank"]), value, unit))
    return Mark(Kind.SCORE, line, scores=tuple(scores_found), new_report=True)
