"""What the benchmark of an outage stands on: a gate that refuses, answers that never repeat."""

from __future__ import annotations

import threading

import pytest
import requests

from steptax.benchmarks.product.outage import Exporter, Gate


def energy(text: str) -> set[str]:
    lines = [line for line in text.splitlines() if "TOTAL_ENERGY" in line]
    assert len(lines) == 2
    return {line.rpartition(" ")[2] for line in lines}


def test_a_gate_refuses_while_it_is_shut_and_no_answer_comes_twice() -> None:
    exporter = Exporter(2)
    threading.Thread(target=exporter.serve_forever, daemon=True).start()
    gate = Gate(exporter.server_port)
    try:
        gate.open()
        first = requests.get(gate.url, timeout=10).text
        gate.shut()
        with pytest.raises(requests.ConnectionError):
            requests.get(gate.url, timeout=10)
        gate.open()
        second = requests.get(gate.url, timeout=10).text
        assert energy(first) == {"1000"}
        assert energy(second) == {"2000"}
    finally:
        gate.shut()
        exporter.shutdown()
        exporter.server_close()
