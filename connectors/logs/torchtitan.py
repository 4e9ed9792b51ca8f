"""``torchtitan``: logs of torchtitan."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from steptax.connectors.logs.connector import LogConnector
from steptax.connectors.logs.lines import Line, whole
from steptax.connectors.logs.marks import Fault, Kind, Mark, Printed, printed, value_of
from steptax.connectors.logs.noise import read_failure, read_noise

_STEP = re.compile(r"step: *(?P<step>[\d,]+) +(?P<rest>\w.*)$")
_BEGINS = re.compile(r"(?:^|- INFO - )\s*(?:validate )?step: ")
_FIELD = re.compile(r"(?P<name>[A-Za-z_][\w ]*?): *(?P<value>[^\s:]+)(?:\s+|$)")
_MEMORY = re.compile(r"^(?P<size>[\d.,]+GiB)\((?P<share>[\d.,]+%)\)$")
_STARTS = re.compile(r"Training starts at step (?P<step>\d+)")
_MESH = re.compile(r"Building (?:\d-D )?device mesh with parallelism: (?P<sizes>.*)$")
_SIZE = re.compile(r"(?P<name>\w+)=(?P<value>\d+)")
_CAPACITY = re.compile(r"CUDA capacity: (?P<device>.+?) with [\d.]+GiB memory")
_PARAMETERS = re.compile(
    r"Total parameter count: .*?dense (?P<dense>[\d,]+), sparse (?P<sparse>[\d,]+)"
    r", active (?P<active>[\d,]+)"
)
_SIZE_OF_MODEL = re.compile(r"size: (?P<total>[\d,]+) total parameters")
_BATCH = re.compile(
    r"global batch size (?P<batch>\d+).*?sequence length (?P<length>\d+), total steps \d+"
)
_SAVING = re.compile(r"Saving (?:the|a|an? \w+) checkpoint")
_SAVED = re.compile(r"Finished saving (?:the|a) checkpoint")
_LOADED = re.compile(
    r"Loading the checkpoint (?:at step (?P<step>\d+)|from \S*?step-(?P<folder>\d+))"
)
_CURVE = re.compile(r"^(?P<step>\d{1,12}) (?P<loss>\d+\.\d+)$")
_OURS = re.compile(r"\[titan\] |torchtitan")


def read_step(line: Line) -> Mark | Fault | None:
    """``step: 10  loss: 4.98934  grad_norm: 19.25  memory: ...  tps: 9,982  ...  mfu: ...``.

    ``mfu: N/A`` is printed where the peak of the number format is not known.
    """
    text = line.text
    at = text.find("step:")
    if at < 0 or not _BEGINS.search(text):
        return None
    validation = text[:at].endswith("validate ")
    found = _STEP.match(text, at)
    step = None if found is None else whole(found["step"])
    if found is None or step is None:
        return Fault("expected 'step: NUMBER  loss: ...', found a damaged line", "step")
    rest, values, end = found["rest"].strip(), [], 0
    for field in _FIELD.finditer(rest):
        if field.start() != end:
            break
        end = field.end()
        values += _values(field["name"].strip(), field["value"])
    got = tuple(values)
    if end != len(rest) or (value_of(got, "loss") is None and not validation):
        return Fault("expected 'step: NUMBER  loss: ...  tps: ...', found a damaged line", "loss")
    # mfu is the last field of a training line, and a percentage or N/A.
    last = got[-1] if got else None
    whole_line = last is not None and last.printed_as == "mfu" and last.text[-1:] in ("%", "A")
    if not validation and not whole_line:
        return Fault("expected 'mfu: NUMBER%' at the end, found a line that is cut", "mfu")
    if validation:
        values = [
            Printed(
                f"val_{v.name}" if not v.name.startswith("val_") else v.name,
                v.printed_as,
                v.text,
                v.value,
                v.unit,
                v.subject,
                v.rank,
            )
            for v in got
        ]
        return Mark(Kind.EVENT, line, step=step, event="eval", detail=rest, printed=tuple(values))
    loss = value_of(got, "loss")
    return Mark(
        Kind.STEP,
        line,
        step=step,
        loss=loss if loss is not None and abs(loss) < float("inf") else None,
        printed=got,
        dialect="torchtitan",
    )


def _values(name: str, text: str) -> list[Printed]:
    memory = _MEMORY.match(text) if name == "memory" else None
    if memory is not None:
        return [printed("memory", memory["size"]), printed("memory share", memory["share"])]
    value = printed(name, text)
    return [value]


def read_job(line: Line) -> Mark | None:
    """Sizes of the job, its device, where training begins and ends."""
    text = line.text
    found = _STARTS.search(text)
    if found is not None and (step := whole(found["step"])):
        return Mark(Kind.BEGIN, line, step=step)
    for pattern, read in ((_MESH, _mesh), (_CAPACITY, _device), (_PARAMETERS, _parameters)):
        found = pattern.search(text)
        if found is not None:
            return Mark(Kind.FACTS, line, facts=read(found))
    found = _SIZE_OF_MODEL.search(text)
    if found is not None:
        total = whole(found["total"])
        return Mark(Kind.FACTS, line, facts={"params_total": total} if total else {})
    found = _BATCH.search(text)
    if found is not None:
        facts = {"batch": int(found["batch"]), "seq_len": int(found["length"])}
        return Mark(Kind.FACTS, line, facts=facts if max(facts.values()) < 2**31 else {})
    if "torchtitan version" in text or "Starting job:" in text:
        return Mark(Kind.EVENT, line, event="process_start")
    if text.rstrip().endswith("Training completed"):
        return Mark(Kind.EVENT, line, event="process_end", detail="Training completed")
    return None


def _mesh(found: re.Match[str]) -> dict[str, Any]:
    sizes = {m["name"]: int(m["value"]) for m in _SIZE.finditer(found["sizes"])}
    facts: dict[str, Any] = {
        f"{name}_size": sizes[name] for name in ("tp", "pp", "cp", "ep") if name in sizes
    }
    parts = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
    if all(0 < sizes.get(name, 0) < 2**20 for name in parts):
        facts["dp_size"] = sizes["dp_replicate"] * sizes["dp_shard"]
        # Expert parallel ranks are also ranks of the other dimensions.
        world = facts["dp_size"] * sizes["pp"] * sizes["cp"] * sizes["tp"]
        if world < 2**31:
            facts["world_size"] = world
    return {name: value for name, value in facts.items() if 0 < value < 2**31}


def _device(found: re.Match[str]) -> dict[str, Any]:
    return {"gpu_model": found["device"]}


def _parameters(found: re.Match[str]) -> dict[str, Any]:
    dense, sparse, active = (whole(found[name]) for name in ("dense", "sparse", "active"))
    if dense is None or sparse is None or active is None:
        return {}
    return {"params_total": dense + sparse, "params_active": active}


def read_checkpoint(line: Line) -> Mark | None:
    """Saving and loading of checkpoints."""
    text = line.text
    if "heckpoint" not in text:
        return None
    if _SAVED.search(text):
        return Mark(Kind.EVENT, line, event="checkpoint_saved")
    if _SAVING.search(text):
        return Mark(Kind.EVENT, line, event="checkpoint_save", detail=text[text.find("Saving") :])
    found = _LOADED.search(text)
    if found is None:
        return None
    step = whole(found["step"] or found["folder"])
    return Mark(Kind.EVENT, line, step=step, event="checkpoint_restore", detail=found[0])


def read_loss_curve(line: Line) -> Mark | None:
    """``12 3.4040474891662598``: a line of a golden loss curve of torchtitan's tests."""
    found = _CURVE.match(line.text)
    step = None if found is None else whole(found["step"])
    if found is None or step is None:
        return None
    return Mark(
        Kind.AT, line, step=step, printed=(printed("loss", found["loss"]),), dialect="losses"
    )


def read_ours(line: Line) -> Mark | None:
    """Any other line that torchtitan prints: it tells that the log is one of its."""
    return Mark(Kind.NOISE, line, dialect="torchtitan") if _OURS.search(line.text) else None


class TorchtitanConnector(LogConnector):
    """Step lines of torchtitan, of one rank or of several."""

    kind = "torchtitan"
    version = 2
    title = "logs of torchtitan"
    family = "a torchtitan log"
    dialects: ClassVar = {"torchtitan": "torchtitan", "losses": "torchtitan (loss curve)"}
    readers = (
        read_step,
        read_job,
        read_checkpoint,
        read_loss_curve,
        read_failure,
        read_ours,
        read_noise,
    )
    doc = (
        "Lines 'step: 10  loss: ...  grad_norm: ...  memory: ...  tps: ...  tflops: ...  mfu: ...' "
        "with colours and the [rank0]: prefix of torchrun as they come (on several nodes torchrun "
        "counts the processes of each node unless it is given a template); also packed by gzip.\n"
        "torchtitan prints no step time: it is the time between two step lines, by their clock, "
        "over the steps between them; of the first step it is counted from 'Training starts at "
        "step'. tps, tflops and mfu are means since the line before and are kept as printed; mfu "
        "is N/A where torchtitan knows no peak for the number format. World size, parallel sizes, "
        "device, parameters, batch and sequence length are read from the lines before training."
    )
