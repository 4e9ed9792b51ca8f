"""What a Megatron log says of its job besides steps: sizes, checkpoints, memory, the end."""

from __future__ import annotations

import re
from typing import Any

from steptax.connectors.logs.lines import Line, number, whole
from steptax.connectors.logs.marks import Kind, Mark, printed

_ARGUMENT = re.compile(r"^\s*(?P<name>[a-z][a-z0-9_]*) \.{2,} (?P<value>.+?)\s*$")
#: Argument of Megatron to column of ``jobs``.
_COLUMNS = {
    "world_size": "world_size",
    "tensor_model_parallel_size": "tp_size",
    "pipeline_model_parallel_size": "pp_size",
    "data_parallel_size": "dp_size",
    "context_parallel_size": "cp_size",
    "expert_model_parallel_size": "ep_size",
    "virtual_pipeline_model_parallel_size": "vpp_size",
    "num_layers": "layers",
    "hidden_size": "hidden",
    "ffn_hidden_size": "ffn",
    "num_attention_heads": "heads",
    "num_query_groups": "kv_heads",
    "padded_vocab_size": "vocab",
    "seq_length": "seq_len",
    "num_experts": "experts",
    "moe_router_topk": "topk",
}
_SIZES = re.compile(
    r"(?P<name>world size|(?:data|tensor-model|pipeline-model|context|expert-model)[- ]parallel"
    r"[- ]size): *(?P<value>\d+)"
)
_SIZE_NAMES = {
    "world-size": "world_size",
    "data-parallel-size": "dp_size",
    "tensor-model-parallel-size": "tp_size",
    "pipeline-model-parallel-size": "pp_size",
    "context-parallel-size": "cp_size",
    "expert-model-parallel-size": "ep_size",
}
_PARAMETERS = re.compile(r"Total number of parameters in billions: (?P<value>\d+\.\d+)")
_MEMORY = re.compile(
    r"\[Rank (?P<rank>\d{1,9})\] \(after (?P<step>\d+) iterations\) memory \(MB\) (?P<rest>\|.*)$"
)
_SAVING = re.compile(
    r"(?:saving checkpoint at|scheduled an async checkpoint save at) iteration\s+(?P<step>\d+)"
)
_SAVED = re.compile(r"successfully saved checkpoint (?:from|at) iteration\s+(?P<step>\d+)")
_LOADED = re.compile(r"successfully loaded checkpoint from .*? at iteration\s+(?P<step>\d+)")
_DATETIME = re.compile(r"\[(?P<what>[a-z][^\]]*)\] datetime: ")
_FRAME = re.compile(
    r"^\s*(?:>|-{3,}|done with setup|training \.\.\.|building |loading |using |setting |"
    r"compiling |Number of parameters|Theoretical memory|exiting program|"
    r"(?:model|train|valid|test)\w*:? )|\.npy\b|total number of (?:samples|epochs)|"
    r"(?:loaded|creating|created) (?:indexed|doc|shuffle|sample)|could not find arguments"
)


def read_arguments(line: Line) -> Mark | None:
    """A line of the table of arguments, or one that states the parallel sizes."""
    found = _ARGUMENT.match(line.text)
    if found is not None:
        return Mark(Kind.FACTS, line, facts=_argument(found["name"], found["value"]))
    sizes = {
        _SIZE_NAMES[name.replace(" ", "-")]: int(value)
        for name, value in _SIZES.findall(line.text)
        if _SIZE_NAMES.get(name.replace(" ", "-")) and 0 < int(value) < 2**31
    }
    if sizes and line.text.lstrip().startswith("using world size"):
        return Mark(Kind.FACTS, line, facts=sizes)
    parameters = _PARAMETERS.search(line.text)
    if parameters is not None:
        total = number(parameters["value"]) or 0.0
        facts = {"params_total": round(total * 1e9)} if 0 < total < 1e6 else {}
        return Mark(Kind.FACTS, line, facts=facts)
    return Mark(Kind.NOISE, line) if _FRAME.search(line.text) else None


def _argument(name: str, text: str) -> dict[str, Any]:
    if name in _COLUMNS:
        value = whole(text)
        return {_COLUMNS[name]: value} if value is not None and 0 < value < 2**31 else {}
    if text == "True" and name in ("bf16", "fp16"):
        return {"dtype": name}
    if name == "recompute_granularity":
        return {"recompute": {"None": "none"}.get(text, text)}
    if name == "global_batch_size" and (size := whole(text)) is not None:
        return {"batch": size}
    return {}


def read_memory(line: Line) -> Mark | None:
    """``[Rank 3] (after 1 iterations) memory (MB) | allocated: ... |``."""
    if "memory (MB)" not in line.text:
        return None
    found = _MEMORY.search(line.text)
    if found is None or line.text.count("memory (MB)") > 1 or int(found["rank"]) >= 2**31:
        # Two processes wrote into one line.
        return Mark(Kind.NOISE, line)
    rank = int(found["rank"])
    values = []
    for piece in found["rest"].split("|"):
        name, colon, value = piece.partition(":")
        if colon and number(value) is not None:
            values.append(
                printed(
                    f"memory {name.strip()}", value, subject=f"rank {rank}", rank=rank, unit="MB"
                )
            )
    return Mark(Kind.AT, line, step=whole(found["step"]), printed=tuple(values))


def read_events(line: Line) -> Mark | None:
    """Checkpoints, and the marks of time around training."""
    text = line.text
    if "checkpoint" in text:
        for pattern, event in (
            (_SAVED, "checkpoint_saved"),
            (_SAVING, "checkpoint_save"),
            (_LOADED, "checkpoint_restore"),
        ):
            found = pattern.search(text)
            if found is not None:
                return Mark(
                    Kind.EVENT, line, step=whole(found["step"]), event=event, detail=text.strip()
                )
    found = _DATETIME.search(text)
    if found is None:
        return None
    if found["what"].startswith("after training is done"):
        return Mark(Kind.EVENT, line, event="process_end", detail=found["what"])
    return Mark(Kind.FACTS, line, detail=found["what"])
