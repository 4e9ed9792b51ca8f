"""Training jobs of four gloo processes, one of which is slow, in the way that is named.

``python jobs.py FRAMEWORK SLOW LAKE STEPS``: starts the ranks and waits for them. Slow is ``none``,
``compute``, ``input``, ``staging`` (before its collective), ``collective`` (in it, before it calls
the communication library), ``behind`` (in it, behind that call), ``library`` (in the library) or
``network`` (in the library, on all ranks); the slow one is rank 2. Imports nothing of the tests, so
that it also runs where only the framework is installed.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

RANKS, SLOW_RANK, DELAY_S, WIDTH, BATCH = 4, 2, 0.06, 64, 4
#: Links are probed in every so-manieth step.
PROBED_STEPS = 8


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port


def launch(framework: str, slow: str, lake: Path, steps: int, *, timeout_s: float = 1800) -> None:
    """Run the job; RuntimeError with the output of the first rank that failed."""
    port = str(free_port())
    root = Path(__file__).resolve().parents[2] / "src"
    ranks = []
    for place in range(RANKS):
        environment = os.environ | {
            "RANK": str(place),
            "LOCAL_RANK": str(place),
            "WORLD_SIZE": str(RANKS),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(root),
            "STEPTAX_LAKE": str(lake),
            "STEPTAX_JOB_ID": f"{framework}-{slow}",
            "HF_HUB_OFFLINE": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "TOKENIZERS_PARALLELISM": "false",
        }
        ranks.append(
            subprocess.Popen(
                [sys.executable, __file__, "--rank", framework, slow, str(steps)],
                env=environment,
                cwd=lake.parent,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        outputs = [rank.communicate(timeout=timeout_s)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for number, ended in enumerate(ranks):
        if ended.returncode != 0:
            raise RuntimeError(f"rank {number} of {framework} failed:\n{outputs[number][-4000:]}")


class Slow:
    """What this rank does more than the others."""

    def __init__(self, kind: str) -> None:
        is_slow = int(os.environ["RANK"]) == SLOW_RANK or kind == "network"
        self.kind = kind if is_slow else "none"

    def compute(self) -> None:
        """Real work on the processor for the delay."""
        if self.kind == "compute":
            import torch

            matrix = torch.ones(96, 96)
            until = time.perf_counter() + DELAY_S
            while time.perf_counter() < until:
                matrix = (matrix @ matrix).clamp(0, 1)

    def input(self) -> None:
        """A storage that answers late."""
        if self.kind == "input":
            time.sleep(DELAY_S)

    def staging(self) -> None:
        """Gradients that are slow to be packed for the collective."""
        if self.kind == "staging":
            time.sleep(DELAY_S)

    def collective(self) -> None:
        """A collective that does something else before it calls the library."""
        if self.kind == "collective":
            time.sleep(DELAY_S)

    def behind(self) -> None:
        """A collective that does something else once the library is through."""
        if self.kind == "behind":
            time.sleep(DELAY_S)

    def messages(self) -> None:
        """Make the library itself slow: what it does with messages takes longer."""
        if self.kind not in ("library", "network"):
            return
        import torch.distributed as dist

        def late(original: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                time.sleep(DELAY_S)
                return original(*args, **kwargs)

            return call

        for name in ("allreduce", "send", "recv"):
            setattr(dist.ProcessGroup, name, late(getattr(dist.ProcessGroup, name)))


def dataset(slow: Slow, rows: int, *, as_dict: bool = False) -> Any:
    import torch

    fetched = count()

    class Rows(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return rows

        def __getitem__(self, place: int) -> Any:
            if next(fetched) % BATCH == 0:
                slow.input()
            made = torch.Generator().manual_seed(place)
            x = torch.randn(WIDTH, generator=made)
            return {"x": x, "labels": x.sum()} if as_dict else (x, x.sum())

    return Rows()


def model(slow: Slow) -> Any:
    import torch

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.body = torch.nn.Sequential(
                torch.nn.Linear(WIDTH, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1)
            )

        def forward(self, x: Any, labels: Any = None) -> Any:
            slow.compute()
            y = self.body(x).squeeze(-1)
            if labels is None:
                return y
            return {"loss": (y - labels).square().mean(), "logits": y}

    return Net()


def run_loop(slow: Slow, steps: int) -> None:
    """A plain loop that reduces its gradients itself."""
    import torch
    import torch.distributed as dist

    from steptax.connectors.recorder.integrations import (
        recorded_calls,
        recorded_steps,
        recorder_from_environment,
    )
    from steptax.connectors.recorder.integrations.probe import LinkProbe

    def reduce(packed: Any) -> None:
        slow.collective()
        dist.all_reduce(packed)
        slow.behind()

    slow.messages()
    dist.init_process_group("gloo")
    net = model(slow)
    optimiser = torch.optim.SGD(net.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(dataset(slow, BATCH * steps), batch_size=BATCH)
    with recorder_from_environment() as rec:
        join = recorded_calls(rec, reduce)
        probe = LinkProbe(rec, every=PROBED_STEPS, size_bytes=1 << 16)
        for step, (x, y) in recorded_steps(rec, loader):
            probe(step)
            with rec.phase("compute"):
                loss = (net(x) - y).square().mean()
                optimiser.zero_grad()
                loss.backward()
            with rec.phase("other"):
                slow.staging()
                packed = torch.cat([p.grad.flatten() for p in net.parameters()])
            join(packed)  # arrival is stamped here, when this rank has no more to do of its own
            with rec.phase("compute"):
                packed /= RANKS
                parts = packed.split([p.numel() for p in net.parameters()])
                for parameter, part in zip(net.parameters(), parts, strict=True):
                    parameter.grad.copy_(part.view_as(parameter))
                optimiser.step()
            rec.loss(loss)
            rec.tokens(x.shape[0])
    check(rec)
    dist.destroy_process_group()


def run_ddp(slow: Slow, steps: int) -> None:
    """A loop with DistributedDataParallel."""
    import torch
    import torch.distributed as dist

    from steptax.connectors.recorder.integrations import recorded_steps, recorder_from_environment
    from steptax.connectors.recorder.integrations.ddp import GradientTimer

    dist.init_process_group("gloo")
    net = torch.nn.parallel.DistributedDataParallel(model(slow))
    optimiser = torch.optim.SGD(net.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(dataset(slow, BATCH * steps), batch_size=BATCH)
    with recorder_from_environment() as rec:
        timer = GradientTimer(rec)
        assert timer.attach(net)
        for _, (x, y) in recorded_steps(rec, loader):
            with rec.phase("compute"):
                loss = (net(x) - y).square().mean()
                optimiser.zero_grad()
                with timer:
                    loss.backward()
                optimiser.step()
            rec.loss(loss)
        assert timer.seen == steps, timer.seen
    check(rec)
    dist.destroy_process_group()


def run_lightning(slow: Slow, steps: int) -> None:
    """A LightningModule under DDP."""
    import lightning.pytorch as pl
    import torch
    from lightning.pytorch.strategies import DDPStrategy

    from steptax.connectors.recorder.integrations.lightning import lightning_callback

    class Module(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = model(slow)

        def training_step(self, batch: Any, _: int) -> Any:
            x, y = batch
            return (self.net(x) - y).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    callback = lightning_callback(probe_links_every=PROBED_STEPS)
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=RANKS,
        strategy=DDPStrategy(process_group_backend="gloo"),
        max_steps=steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[callback],
    )
    loader = torch.utils.data.DataLoader(dataset(slow, BATCH * RANKS * steps), batch_size=BATCH)
    trainer.fit(Module(), loader)
    assert callback.gradients.seen == steps, callback.gradients.seen
    assert callback.probe.probes == (steps - 1) // PROBED_STEPS, callback.probe.probes
    check(callback.recorder)


def run_hf(slow: Slow, steps: int) -> None:
    """The Trainer of transformers under DDP."""
    from transformers import Trainer, TrainingArguments

    from steptax.connectors.recorder.integrations.hf import record

    arguments = TrainingArguments(
        output_dir=f"hf-out-{os.environ['RANK']}",
        use_cpu=True,
        max_steps=steps,
        per_device_train_batch_size=BATCH,
        logging_steps=5,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=False,
        ddp_find_unused_parameters=False,
        remove_unused_columns=False,
    )
    trainer = Trainer(
        model=model(slow),
        args=arguments,
        train_dataset=dataset(slow, BATCH * RANKS * steps, as_dict=True),
    )
    callback = record(trainer, probe_links_every=PROBED_STEPS)
    trainer.train()
    assert callback.gradients.seen == steps, callback.gradients.seen
    assert callback.probe.probes == (steps - 1) // PROBED_STEPS, callback.probe.probes
    check(callback.recorder)


def check(rec: Any) -> None:
    stats = rec.stats
    assert stats["misuse"] == stats["errors"] == 0, stats


RUNS = {"loop": run_loop, "ddp": run_ddp, "lightning": run_lightning, "hf": run_hf}


def main(arguments: list[str]) -> None:
    if arguments[0] == "--rank":
        _, framework, slow, steps = arguments
        RUNS[framework](Slow(slow), int(steps))
        return
    framework, slow, lake, steps = arguments
    launch(framework, slow, Path(lake).resolve(), int(steps))


if __name__ == "__main__":
    main(sys.argv[1:])
