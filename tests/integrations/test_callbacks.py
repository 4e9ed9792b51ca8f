"""The callbacks in one process: accumulated steps, validation, checkpoints, failures."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from steptax.app.lake.lake import Lake

VALIDATION_S = CHECKPOINT_S = 0.05


def steps_of(lake: Path) -> list[dict[str, Any]]:
    return sorted(Lake(lake).read("steps", "j").to_pylist(), key=lambda row: row["step"])


def rows_of_regression(count: int, *, as_dict: bool = False) -> list[Any]:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    made = torch.Generator().manual_seed(0)
    xs = torch.randn(count, 4, generator=made)
    return [{"x": x, "labels": x.sum()} if as_dict else (x, x.sum()) for x in xs]


class TestLightning:
    def fit(self, lake: Path, *, fail_at: int | None = None, **options: Any) -> Any:
        torch = pytest.importorskip("torch", reason="torch is not installed")
        pl = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
        from steptax.connectors.recorder.integrations.lightning import lightning_callback

        class Module(pl.LightningModule):  # type: ignore[misc, name-defined]
            losses: list[float] = []  # noqa: RUF012  # one module per test

            def __init__(self) -> None:
                super().__init__()
                self.net = torch.nn.Linear(4, 1)
                self.losses = []

            def training_step(self, batch: Any, place: int) -> Any:
                if place == fail_at:
                    raise RuntimeError("a failing step")
                x, y = batch
                loss = (self.net(x).squeeze(-1) - y).square().mean()
                self.losses.append(float(loss))
                return loss

            def validation_step(self, batch: Any, place: int) -> None:
                time.sleep(VALIDATION_S)

            def on_save_checkpoint(self, checkpoint: Any) -> None:
                time.sleep(CHECKPOINT_S)

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=1e-2)

        callback, module = lightning_callback(lake, "j"), Module()
        quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
        trainer = pl.Trainer(
            accelerator="cpu",
            devices=1,
            default_root_dir=str(lake.parent),
            **quiet,
            callbacks=[callback, *options.pop("callbacks", [])],
            **{"enable_checkpointing": False, "num_sanity_val_steps": 0, **options},
        )
        loader = torch.utils.data.DataLoader(rows_of_regression(48), batch_size=4)
        validation = torch.utils.data.DataLoader(rows_of_regression(4), batch_size=4)
        trainer.fit(module, loader, validation)
        return callback, module

    @pytest.mark.filterwarnings("ignore")
    def test_a_step_is_an_optimiser_step_with_the_loss_of_a_micro_batch(
        self, tmp_path: Path
    ) -> None:
        callback, module = self.fit(
            tmp_path / "lake", max_epochs=2, accumulate_grad_batches=3, limit_val_batches=0
        )
        rows = steps_of(tmp_path / "lake")
        assert [row["step"] for row in rows] == list(range(8))
        assert [row["loss"] for row in rows] == pytest.approx(module.losses[2::3])
        for row in rows:
            assert row["compute_us"] > 0
            assert row["input_us"] + row["compute_us"] <= row["duration_us"]
        stats = callback.recorder.stats
        assert stats["misuse"] == stats["errors"] == 0
        assert stats["state"] == "closed"

    @pytest.mark.filterwarnings("ignore")
    def test_validation_and_checkpoints_are_not_the_loaders_time(self, tmp_path: Path) -> None:
        pytest.importorskip("lightning", reason="lightning is not installed")
        from lightning.pytorch.callbacks import ModelCheckpoint

        saver = ModelCheckpoint(tmp_path / "saved", every_n_train_steps=4, save_top_k=-1)
        self.fit(
            tmp_path / "lake",
            max_steps=12,
            enable_checkpointing=True,
            callbacks=[saver],
            val_check_interval=6,
        )
        rows = {row["step"]: row for row in steps_of(tmp_path / "lake")}
        assert len(rows) == 12
        for step in (4, 8):
            assert rows[step]["checkpoint_us"] > 0.9e6 * CHECKPOINT_S
            assert rows[step]["input_us"] is None or rows[step]["input_us"] < 0.5e6 * CHECKPOINT_S
        assert rows[6]["other_us"] > 0.9e6 * VALIDATION_S

    @pytest.mark.filterwarnings("ignore")
    def test_a_failure_is_the_jobs(self, tmp_path: Path) -> None:
        with pytest.raises(RuntimeError, match="a failing step"):
            self.fit(tmp_path / "lake", max_steps=12, fail_at=5, limit_val_batches=0)
        assert len(steps_of(tmp_path / "lake")) == 5
        assert Lake(tmp_path / "lake").read("jobs").to_pylist()[-1]["state"] == "failed"


class TestHuggingFace:
    def train(self, folder: Path, **options: Any) -> Any:
        torch = pytest.importorskip("torch", reason="torch is not installed")
        transformers = pytest.importorskip("transformers", reason="transformers is not installed")
        pytest.importorskip("accelerate", reason="accelerate is not installed")
        from steptax.connectors.recorder.integrations.hf import record

        class Net(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.net = torch.nn.Linear(4, 1)

            def forward(self, x: Any, labels: Any = None) -> Any:
                if not self.training:
                    time.sleep(VALIDATION_S)
                y = self.net(x).squeeze(-1)
                return {"loss": (y - labels).square().mean(), "logits": y}

        class Saver(transformers.Trainer):  # type: ignore[misc, name-defined]
            def _save_checkpoint(self, *args: Any, **kwargs: Any) -> Any:
                time.sleep(CHECKPOINT_S)
                return super()._save_checkpoint(*args, **kwargs)

        arguments = transformers.TrainingArguments(
            output_dir=str(folder / "out"),
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=False,
            remove_unused_columns=False,
            per_device_train_batch_size=4,
            **{"save_strategy": "no", **options},
        )
        trainer = Saver(
            model=Net(),
            args=arguments,
            train_dataset=rows_of_regression(48, as_dict=True),
            eval_dataset=rows_of_regression(4, as_dict=True),
        )
        callback = record(trainer, folder / "lake", "j")
        trainer.train()
        return callback, trainer

    @pytest.mark.filterwarnings("ignore")
    def test_losses_stand_at_the_steps_that_log_them(self, tmp_path: Path) -> None:
        callback, trainer = self.train(
            tmp_path, num_train_epochs=2, gradient_accumulation_steps=2, logging_steps=3
        )
        rows = steps_of(tmp_path / "lake")
        assert [row["step"] for row in rows] == list(range(12))
        logged = {e["step"]: e["loss"] for e in trainer.state.log_history if "loss" in e}
        assert sorted(logged) == [3, 6, 9, 12]
        # The Trainer counts finished steps, the recorder numbers them from 0.
        assert {row["step"] + 1: row["loss"] for row in rows if row["loss"] is not None} == (
            pytest.approx(logged)
        )
        for row in rows:
            assert row["compute_us"] > 0
        stats = callback.recorder.stats
        assert stats["misuse"] == stats["errors"] == 0
        assert stats["state"] == "closed"

    @pytest.mark.filterwarnings("ignore")
    def test_evaluation_and_checkpoints_are_not_the_loaders_time(self, tmp_path: Path) -> None:
        self.train(
            tmp_path,
            max_steps=12,
            save_strategy="steps",
            save_steps=4,
            logging_steps=4,
            eval_strategy="steps",
            eval_steps=6,
        )
        rows = {row["step"]: row for row in steps_of(tmp_path / "lake")}
        for step in (4, 8):
            assert rows[step]["checkpoint_us"] > 0.9e6 * CHECKPOINT_S
            assert rows[step]["input_us"] < 0.5e6 * CHECKPOINT_S
        assert rows[6]["other_us"] > 0.9e6 * VALIDATION_S
        assert rows[6]["input_us"] < 0.5e6 * VALIDATION_S


@pytest.mark.filterwarnings("ignore")
def test_a_callback_whose_recorder_cannot_be_made_lets_training_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from steptax.connectors.recorder.integrations import hf

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no recorder")

    monkeypatch.setattr(hf, "recorder_from_environment", fail)
    _, trainer = TestHuggingFace().train(tmp_path, max_steps=3)
    assert trainer.state.global_step == 3
