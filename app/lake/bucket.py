"""An object store as a lake needs it: list, read, write whole, write if absent, delete.

An object appears when it was written to its last byte, and an object that was written is listed and
read by everybody from then on (S3 promises both). So nothing is renamed here. What the store
refuses is raised as ``store_errors.told`` says it: a bucket that is gone is not an empty one.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from steptax.app.errors import DeliveryError, UserError, install_hint
from steptax.app.lake.store_errors import explained, is_conflict, told

#: Objects that are on their way into the store at once, and bytes of them: the client holds each
#: whole. A larger one goes alone.
AT_ONCE, AT_ONCE_BYTES = 8, 64 * 2**20
#: How often a store is asked to create what others create at the same moment, and when again, at
#: first: each time takes twice as long.
CREATES, AGAIN_S = 6, 0.05
#: A URL, also as ``pathlib`` writes it, which folds the slashes of ``s3://bucket``.
_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+):/+(?P<rest>[^/].*?)/*")


def url_of(place: Path | str) -> str | None:
    """The URL that ``place`` names, without a slash at its end; None for a path."""
    match = _URL.fullmatch(str(place))
    return None if match is None else f"{match['scheme']}://{match['rest']}"


def place_name(place: Path | str) -> str:
    """``place`` as people write it: ``pathlib`` folds the slashes of a URL."""
    return url_of(place) or str(place)


class Bucket:
    """Objects below a URL, by their names relative to it. Credentials are the environment's."""

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        try:
            with told(url):
                self._files, root = url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise UserError(
                f"what reads {url.partition('://')[0]}:// is not known or not installed",
                where=url,
                hint=f"for s3://, {install_hint('s3')}",
            ) from error
        self.url = url
        self._root = str(root).rstrip("/")
        # It would ask for the size of each object first: twice the requests, and an answer without
        # a body, which does not say why it is refused.
        self._whole = {"max_concurrency": 1} if url.startswith(("s3://", "s3a://")) else {}

    def names(self, folder: str) -> list[str]:
        """Names of the objects directly in ``folder``, sorted; none where there are none."""
        return [*self.sizes_bytes(folder)]

    def folders(self, folder: str) -> list[str]:
        """Names of the folders directly in ``folder``, sorted."""
        return [name for name, kind, _ in self._entries(folder) if kind == "directory"]

    def sizes_bytes(self, folder: str) -> dict[str, int]:
        """How large the objects directly in ``folder`` are, by name, sorted by it."""
        return {name: size for name, kind, size in self._entries(folder) if kind != "directory"}

    def read(self, names: Sequence[str]) -> dict[str, bytes]:
        """The content of objects, by name; those that are gone are left out."""
        paths = {self._path(name): name for name in names}
        with told(self.url):
            found: Mapping[str, Any] = (
                self._files.cat(list(paths), on_error="return", **self._whole) if paths else {}
            )
            return self._bodies((paths[path], body) for path, body in found.items())

    def read_ranges(self, ranges: Mapping[str, tuple[int, int]]) -> dict[str, bytes]:
        """Bytes of objects from one place up to another, by name; those gone are left out."""
        paths = [self._path(name) for name in ranges]
        begins, ends = [begin for begin, _ in ranges.values()], [end for _, end in ranges.values()]
        with told(self.url):
            found = self._files.cat_ranges(paths, begins, ends, on_error="return") if paths else []
            return self._bodies(zip(ranges, found, strict=True))

    def _bodies(self, found: Iterable[tuple[str, Any]]) -> dict[str, bytes]:
        """What was read, without what is gone; any other error is raised."""
        bodies = {}
        for name, body in found:
            if isinstance(body, FileNotFoundError) and explained(body, self.url) is None:
                continue
            if isinstance(body, BaseException):
                raise body
            bodies[name] = bytes(body)
        return bodies

    def fetch(self, files: Mapping[str, Path]) -> None:
        """Copy objects into local files, each whole or not at all; several at once."""
        if not files:
            return
        mark = uuid.uuid4().hex[:8]
        temporary = {name: to.with_name(f".{to.name}.{mark}.tmp") for name, to in files.items()}
        for folder in {to.parent for to in files.values()}:
            folder.mkdir(parents=True, exist_ok=True)
        try:
            with told(self.url):
                self._files.get(
                    [self._path(name) for name in temporary], [str(to) for to in temporary.values()]
                )
            for name, to in files.items():
                temporary[name].replace(to)
        finally:
            for path in temporary.values():
                path.unlink(missing_ok=True)

    def put(self, files: Mapping[str, Path]) -> None:
        """Copy local files into objects, several at once; each appears when it is there whole.

        All of them are there when this returns. Where one fails none is begun after it, and those
        that are on their way are waited for: the first error is raised.
        """
        left = [(name, path, path.stat().st_size) for name, path in files.items()]
        if len(left) == 1:
            self._put_one(*left[0][:2])
            return
        running: dict[Future[None], int] = {}
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="steptax-put") as pool:
            try:
                for name, path, size in left:
                    while running and (
                        len(running) >= AT_ONCE or sum(running.values()) + size > AT_ONCE_BYTES
                    ):
                        _settle(running)
                    running[pool.submit(self._put_one, name, path)] = size
                while running:
                    _settle(running)
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _put_one(self, name: str, path: Path) -> None:
        with told(self.url):
            self._files.put_file(os.fspath(path), self._path(name))

    def write(self, name: str, data: bytes) -> None:
        """Write one object, in the place of what it held."""
        with told(self.url):
            self._files.pipe_file(self._path(name), data)

    def create(self, name: str, data: bytes) -> bool:
        """Write one object unless there is one of that name; False where there was.

        Of some who write it at the same moment the store may send all away with 409, to ask again.
        """
        for asked in range(CREATES):
            try:
                with told(self.url):
                    self._files.pipe_file(self._path(name), data, mode="create")
            except FileExistsError:
                return False
            except DeliveryError as error:
                if asked + 1 == CREATES or not is_conflict(error):
                    raise
                time.sleep(AGAIN_S * 2**asked)
            else:
                break
        return True

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects."""
        if paths := [self._path(name) for name in names]:
            with told(self.url):
                self._files.rm(paths)

    def _entries(self, folder: str) -> list[tuple[str, str, int]]:
        try:
            with told(self.url):
                found = self._files.ls(self._path(folder), detail=True)
        except FileNotFoundError:
            return []
        return sorted(
            (
                str(entry["name"]).rstrip("/").rpartition("/")[2],
                str(entry["type"]),
                int(entry.get("size") or 0),
            )
            for entry in found
        )

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def _settle(running: dict[Future[None], int]) -> None:
    """Wait for one of ``running`` at least, and take what is done out; raises what it raised."""
    done, _ = wait(running, return_when=FIRST_COMPLETED)
    for one in done:
        del running[one]
    for one in done:
        one.result()
