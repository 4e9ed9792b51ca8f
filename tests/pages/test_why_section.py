"""The job page says why the job is slow, and says nothing where nothing is."""

from __future__ import annotations

from collections.abc import Callable

from streamlit.testing.v1 import AppTest

from steptax.app.lake import Lake
from tests.app.device_lake import store_ranks, store_samples, store_steps

JOB = "../pages/job.py"


def test_a_finding_stands_with_its_cause_its_evidence_and_what_to_do(
    lake: Lake, show: Callable[..., AppTest], text_of: Callable[[AppTest], str]
) -> None:
    store_steps(lake, "hot")
    store_ranks(lake, "hot")
    store_samples(lake)
    at = show(JOB, job="hot", price="2.0")
    assert not at.exception
    said = text_of(at)
    assert "Why it is slow" in said
    assert "the device is slowed down by heat (confidence 95 %)" in said
    assert "sw_thermal reported in 83 % of its time at work" in said
    assert "check fans, coolant and airflow" in said
    assert "docs/" not in said  # an installation has no documents beside it
    assert "[How this cause is named](reference#cause-thermal)" in said
    assert "(reference#causes)" in said
    (card,) = (one for one in at.get("html") if "steptax-card" in one.proto.body)
    assert '<a href="reference#cause-thermal">the device is slowed down by heat' in card.proto.body


def test_a_level_job_has_no_such_section(
    lake: Lake, show: Callable[..., AppTest], text_of: Callable[[AppTest], str]
) -> None:
    store_steps(lake, "level", slow=None)
    at = show(JOB, job="level")
    assert not at.exception
    assert "Why it is slow" not in text_of(at)
