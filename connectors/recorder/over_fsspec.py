"""Writing into a lake in an object store, or wherever else fsspec reaches.

Objects have the names and the layout of a lake. Their names follow from the identity of the batch:
a batch that is sent again replaces its own objects by the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from steptax.connectors.recorder.batch import Piece, decode_batch, inflate
from steptax.connectors.recorder.parquet import steps_encoder
from steptax.connectors.recorder.segments import Encoder, job_folder
from steptax.connectors.recorder.transport import DONE, Answer

#: Stores whose objects appear whole when they are put; elsewhere a rename makes them appear.
_WHOLE = frozenset(("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss", "memory"))
_UNPACKED_BYTES = 1 << 30


class FsspecTransport:
    """Puts one object a table and job for each batch; raises ImportError without fsspec.

    Steps become Parquet where pyarrow is installed, JSON Lines elsewhere.
    """

    # An object a second from each node is what a store bills, and what readers must list.
    pack_s = 10.0
    beat_s = 10.0

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise ImportError(
                f"fsspec is not installed, which {url.partition(':')[0]}:// needs (for s3:// "
                "pip install s3fs); rows wait in the spool"
            ) from None
        self._files, self._root = url_to_fs(url)
        protocol = self._files.protocol
        names = {protocol} if isinstance(protocol, str) else set(protocol)
        self._is_whole = bool(names & _WHOLE)
        self._beats: dict[str, dict[int, dict[str, Any]]] = {}
        try:
            self._encoder: Encoder | None = steps_encoder()
        except Exception:  # absent, or broken in a way of its own
            self._encoder = None

    def send(self, data: bytes, *, is_first: bool) -> Answer:
        """Put the objects of a batch."""
        try:
            header, parts = decode_batch(inflate(data, _UNPACKED_BYTES))
        except ValueError as error:
            return Answer("refused", str(error))
        groups: dict[tuple[str, str, str], list[tuple[Piece, bytes]]] = {}
        for piece, body in parts:
            suffix = piece.name.rpartition(".")[2]
            # Parquet cannot be concatenated: each such segment is an object.
            unit = "" if suffix == "jsonl" else piece.name
            groups.setdefault((piece.table, piece.job_id, unit), []).append((piece, body))
        try:
            for (table, job_id, unit), found in groups.items():
                identity = f"{header.stream} {header.seq} {table} {job_id} {unit}"
                unique = hashlib.sha256(identity.encode()).hexdigest()[:8]
                self._put_group(table, job_id, header.created_us, unique, found, is_first)
        except Exception as error:  # every store has its own
            return Answer("retry", f"{type(error).__name__}: {error}"[:300])
        return DONE

    def send_beats(self, sender: str, beats: Sequence[dict[str, Any]]) -> Answer:
        """Put one object a job with what its ranks on this node last said."""
        for beat in beats:
            self._beats.setdefault(str(beat["job_id"]), {})[beat["rank"]] = beat
        try:
            for job_id in {str(beat["job_id"]) for beat in beats}:
                folder = f"{self._root}/live/{job_folder(job_id)}"
                # An object is replaced as a whole: those that did not change are in it too.
                body = json.dumps(list(self._beats[job_id].values())).encode()
                self._put(folder, f"beats-{sender}.json", body)
        except Exception as error:
            return Answer("retry", f"{type(error).__name__}: {error}"[:300])
        return DONE

    def close(self) -> None:
        """Nothing is held open."""

    def _put_group(
        self,
        table: str,
        job_id: str,
        created_us: int,
        unique: str,
        found: list[tuple[Piece, bytes]],
        is_first: bool,
    ) -> None:
        pieces = [piece for piece, _ in found]
        rows = sum(piece.rows for piece in pieces)
        first, last = min(p.first for p in pieces), max(p.last for p in pieces)
        stem = f"live-{created_us:017d}-{first}-{last}-{rows}-{unique}"
        folder = f"{self._root}/tables/{table}"
        if table != "jobs":
            folder += f"/{job_folder(job_id)}"
        # A sender before this one may have written it, in the encoding that it had.
        if not is_first and any(
            self._files.exists(f"{folder}/{stem}.{suffix}") for suffix in ("parquet", "jsonl")
        ):
            return
        if pieces[0].name.endswith(".parquet"):
            self._put(folder, f"{stem}.parquet", found[0][1])
        elif table == "steps" and self._encoder is not None:
            lines = [json.loads(line) for _, body in found for line in body.splitlines()]
            columns = {name: [line[name] for line in lines] for name in lines[0]}
            self._put(folder, f"{stem}.parquet", self._encoder(columns, rows))
        else:
            self._put(folder, f"{stem}.jsonl", b"".join(body for _, body in found))

    def _put(self, folder: str, name: str, data: bytes) -> None:
        if self._is_whole:
            self._files.pipe_file(f"{folder}/{name}", data)
            return
        self._files.makedirs(folder, exist_ok=True)
        temporary = f"{folder}/.{name}.tmp"
        self._files.pipe_file(temporary, data)
        self._files.mv(temporary, f"{folder}/{name}")
