"""The pages of one big job as a real server answers them, and what it holds then (Linux)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from steptax.app.serve import free_port, server_command, wait_until_healthy
from steptax.benchmarks.product.process import peak_mib
from steptax.benchmarks.product.sessions import ask, connected

#: Pages that are about the job, or about all of them: the first one has no name.
PAGES = ("job", "", "fleet", "whatif", "compare", "health")
#: Most that the server may hold.
MOST_MIB = 2_048


@dataclass(frozen=True)
class Answered:
    """Seconds to the whole of each page, the first time and again; the most that was held."""

    first_s: dict[str, float]
    again_s: dict[str, float]
    peak_mib: float
    errors: tuple[str, ...]


def dashboard(lake: Path, job: str) -> Answered:
    """Ask a server of its own for each page of ``job``, by one reader after another."""
    port = free_port(8950)
    environment = {**os.environ, "STEPTAX_LAKE": str(lake), "STEPTAX_PRICE_USD_PER_GPU_HOUR": "2"}
    with tempfile.TemporaryFile() as said:
        server = subprocess.Popen(
            server_command("127.0.0.1", port), env=environment, stdout=said, stderr=said
        )
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until_healthy(url, server)
            errors: list[str] = []
            first_s, again_s = (asyncio.run(_all(url, job, errors)) for _ in range(2))
            return Answered(first_s, again_s, peak_mib(server.pid), tuple(errors))
        finally:
            server.terminate()
            server.wait(30)


async def _all(url: str, job: str, errors: list[str]) -> dict[str, float]:
    took_s: dict[str, float] = {}

    def read(message: ForwardMsg) -> None:
        if message.WhichOneof("type") == "delta":
            element = message.delta.new_element
            if element.WhichOneof("type") == "exception":
                errors.append(element.exception.message[:200])

    async with connected(url) as socket:
        for page in PAGES:
            begin = time.perf_counter()
            await ask(socket, page, job, None, read)
            took_s[page or "executive"] = time.perf_counter() - begin
    return took_s
