"""The connectors there are: a new one is one module and one line here."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType

from steptax.app.errors import NotFoundError
from steptax.connectors.base import Connector
from steptax.connectors.bench.mamf_finder import MamfFinderConnector
from steptax.connectors.bench.nvbandwidth import NvbandwidthConnector
from steptax.connectors.bench.superbench import SuperBenchConnector
from steptax.connectors.devices.nvidia_smi import NvidiaSmiConnector
from steptax.connectors.devices.nvml import NvmlConnector
from steptax.connectors.devices.rocm_smi import RocmSmiConnector
from steptax.connectors.kineto.connector import KinetoConnector
from steptax.connectors.logs.deepspeed import DeepSpeedConnector
from steptax.connectors.logs.hf_trainer import HfTrainerConnector
from steptax.connectors.logs.lightning import LightningConnector
from steptax.connectors.logs.maxtext import MaxTextConnector
from steptax.connectors.logs.megatron import MegatronConnector
from steptax.connectors.logs.megatron_scalars import MegatronScalarsConnector
from steptax.connectors.logs.nemo import NemoConnector
from steptax.connectors.logs.nvrx import NvrxConnector
from steptax.connectors.logs.torchtitan import TorchtitanConnector
from steptax.connectors.mlperf.mllog import MlperfLogConnector
from steptax.connectors.mlperf.results import MlperfResultsConnector
from steptax.connectors.money.aws_cur import AwsCurConnector
from steptax.connectors.money.azure_cost import AzureCostConnector
from steptax.connectors.money.focus import FocusConnector
from steptax.connectors.money.prices import PricesConnector
from steptax.connectors.nccl.flight_recorder import FlightRecorderConnector
from steptax.connectors.nccl.inspector import NcclInspectorConnector
from steptax.connectors.nccl.nccl_tests import NcclTestsConnector
from steptax.connectors.nccl.ras import NcclRasConnector
from steptax.connectors.prometheus.api import PrometheusConnector
from steptax.connectors.prometheus.scrape import DcgmConnector, NodeExporterConnector
from steptax.connectors.schedulers.opencost import OpenCostConnector
from steptax.connectors.schedulers.sacct import SacctConnector
from steptax.connectors.schedulers.slurm_rest import SlurmRestConnector
from steptax.connectors.tables.device_samples import DeviceSamplesConnector
from steptax.connectors.tables.events import EventsConnector
from steptax.connectors.tables.jobs import JobsConnector
from steptax.connectors.tables.measurements import MeasurementsConnector
from steptax.connectors.tables.nodes import NodesConnector
from steptax.connectors.tables.ops import OpsConnector
from steptax.connectors.tables.scalars import ScalarsConnector
from steptax.connectors.tables.steps import StepsConnector
from steptax.connectors.trackers.mlflow import MlflowConnector
from steptax.connectors.trackers.tensorboard import TensorboardConnector
from steptax.connectors.trackers.wandb import WandbConnector

_ALL: tuple[Connector, ...] = (
    StepsConnector(),
    OpsConnector(),
    JobsConnector(),
    NodesConnector(),
    DeviceSamplesConnector(),
    MeasurementsConnector(),
    ScalarsConnector(),
    SacctConnector(),
    SlurmRestConnector(),
    OpenCostConnector(),
    FocusConnector(),
    AwsCurConnector(),
    AzureCostConnector(),
    PricesConnector(),
    MlperfResultsConnector(),
    MlperfLogConnector(),
    EventsConnector(),
    NcclInspectorConnector(),
    FlightRecorderConnector(),
    NcclRasConnector(),
    NcclTestsConnector(),
    NvbandwidthConnector(),
    MamfFinderConnector(),
    SuperBenchConnector(),
    KinetoConnector(),
    MegatronConnector(),
    MegatronScalarsConnector(),
    DeepSpeedConnector(),
    NemoConnector(),
    TorchtitanConnector(),
    MaxTextConnector(),
    HfTrainerConnector(),
    LightningConnector(),
    NvrxConnector(),
    TensorboardConnector(),
    WandbConnector(),
    MlflowConnector(),
    NvmlConnector(),
    NvidiaSmiConnector(),
    RocmSmiConnector(),
    DcgmConnector(),
    NodeExporterConnector(),
    PrometheusConnector(),
)

CONNECTORS: Mapping[str, Connector] = MappingProxyType({c.kind: c for c in _ALL})
"""Connector by kind, in the order in which lists show them."""


def connector(kind: str) -> Connector:
    """The connector of ``kind``; NotFoundError names the kinds there are."""
    try:
        return CONNECTORS[kind]
    except KeyError:
        near = difflib.get_close_matches(kind, CONNECTORS, 1)
        raise NotFoundError(
            f"there is no connector {kind!r}" + (f"; is it {near[0]!r}?" if near else ""),
            where="KIND",
            hint=f"kinds are {', '.join(CONNECTORS)}",
        ) from None
