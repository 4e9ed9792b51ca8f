"""The files that the documents call a reader's own, made of the examples of the connectors."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pyarrow.csv as pcsv
import pyarrow.parquet as pq

EXAMPLES = Path(__file__).parents[1] / "connectors" / "examples"

#: By the name that a document gives it, the example that it is.
_SAME = {
    "train.log": "megatron.log",
    "traces/rank0.json": "kineto.json",
    "sacct.txt": "sacct.psv",
    "scrape.txt": "dcgm.prom",
    "wandb/offline-run-1/run-1.wandb": "wandb.wandb",
    "runs/one/events.out.tfevents.1": "tensorboard.tfevents",
    "dumps/rank-0.json": "flight-recorder.json",
    "all_reduce.log": "nccl-tests.txt",
    "straggler_report.log": "nvrx.log",
    "smi.csv": "nvidia-smi.csv",
    "rocm.json": "rocm-smi.json",
    "inventory.csv": "nodes.csv",
    "offers.csv": "prices.csv",
    "allocation.json": "opencost.json",
}
#: What has columns of its own.
_TEXT = {
    "times.csv": "step,worker,fwd_ms,bwd_ms\n"
    + "".join(
        f"{step},{rank},{40 + 20 * (rank == 2)},{60 + step % 3}\n"
        for step in range(60)
        for rank in range(4)
    ),
    "metrics.csv": "step,loss,learning rate\n1,11.02,1e-4\n2,10.41,2e-4\n",
    "failures.csv": "kind,start,end,detail\n"
    "restart,2026-03-01T00:02:00Z,2026-03-01T00:05:00Z,node\n",
    "results.csv": (EXAMPLES / "mlperf-results.csv").read_text()
    + "".join(
        f"5.1,Example,made-up-{gpus},NVIDIA H100-SXM5-80GB,{gpus // 8},{gpus},PyTorch 2.8,"
        f"llama31_405b,{minutes},3,,,https://example.org/c\n"
        for gpus, minutes in ((512, 121.0), (1024, 62.6), (2048, 33.9))
    ),
    "pods.csv": "job_id,start_time,end_time,gpu_milli\npod-1,1795900000,1795903600,500\n",
    "gpu.csv": "timestamp,node,uuid,gpu_index,duty\n2026-05-01T08:00:00Z,gpu-1,GPU-aaaa,0,98\n",
    "sweep.csv": "test,gpu,time_per_epoch_s,network\nspeed,V100,41.5,resnet50\n",
    "index.csv": "gpu_model,series,usd_per_gpu_hour\nH100,neocloud,2.35\n",
}


def write(folder: Path) -> None:
    """Write all of them, and the examples by their own names as a checkout has them."""
    shutil.copytree(EXAMPLES, folder / "tests" / "connectors" / "examples")
    for name, example in _SAME.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(EXAMPLES / example, folder / name)
    for name, text in _TEXT.items():
        (folder / name).write_text(text)
    trace = (EXAMPLES / "kineto.json").read_bytes()
    (folder / "traces" / "rank0.json.gz").write_bytes(gzip.compress(trace))
    pq.write_table(pcsv.read_csv(EXAMPLES / "ops.csv"), folder / "trace.parquet")
    pq.write_table(pcsv.read_csv(EXAMPLES / "focus.csv"), folder / "focus.parquet")
