"""Which labels of a pod on Kubernetes name its training job and who pays for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

#: Labels by which operators mark the pods of one job, the outer ones first: a job of a JobSet has
#: children of its own.
JOB_LABELS = (
    "training.kubeflow.org/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "leaderworkerset.sigs.k8s.io/name",
    "volcano.sh/job-name",
    "ray.io/cluster",
    "batch.kubernetes.io/job-name",
    "job-name",
)
TEAM_LABELS = ("team",)


def plain_label(name: str) -> str:
    """The name as Prometheus keeps it: ``ray.io/cluster`` is ``ray_io_cluster`` there."""
    return re.sub(r"[^0-9A-Za-z_]", "_", name)


def labelled(labels: Mapping[str, object], names: Iterable[str]) -> str | None:
    """The value of the first of ``names`` that there is, in either spelling."""
    values = {plain_label(name): value for name, value in labels.items()}
    found = (values.get(plain_label(name)) for name in names)
    return next((text for text in found if isinstance(text, str) and text.strip()), None)
