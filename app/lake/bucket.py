"""An object store as a lake needs it: list, read, write whole, write if absent, delete.

An object appears when it was written to its last byte, and an object that was written is listed and
read by everybody from then on (S3 promises both). So nothing is renamed here.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from steptax.app.errors import UserError, install_hint

#: A URL, also as ``pathlib`` writes it, which folds the slashes of ``s3://bucket``.
_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+):/+(?P<rest>[^/].*?)/*")


def url_of(place: Path | str) -> str | None:
    """The URL that ``place`` names, without a slash at its end; None for a path."""
    match = _URL.fullmatch(str(place))
    return None if match is None else f"{match['scheme']}://{match['rest']}"


class Bucket:
    """Objects below a URL, by their names relative to it. Credentials are the environment's."""

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        try:
            self._files, root = url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise UserError(
                f"what reads {url.partition('://')[0]}:// is not known or not installed",
                where=url,
                hint=f"for s3://, {install_hint('s3')}",
            ) from error
        self.url = url
        self._root = str(root).rstrip("/")

    def names(self, folder: str) -> list[str]:
        """Names of the objects directly in ``folder``, sorted; none where there are none."""
        return [name for name, kind in self._entries(folder) if kind != "directory"]

    def folders(self, folder: str) -> list[str]:
        """Names of the folders directly in ``folder``, sorted."""
        return [name for name, kind in self._entries(folder) if kind == "directory"]

    def read(self, names: Sequence[str]) -> dict[str, bytes]:
        """The content of objects, by name; those that are gone are left out."""
        paths = {self._path(name): name for name in names}
        found: Mapping[str, Any] = (
            self._files.cat(list(paths), on_error="return") if len(paths) else {}
        )
        bodies = {}
        for path, body in found.items():
            if isinstance(body, FileNotFoundError):
                continue
            if isinstance(body, BaseException):
                raise body
            bodies[paths[path]] = bytes(body)
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
            self._files.get(
                [self._path(name) for name in temporary], [str(to) for to in temporary.values()]
            )
            for name, to in files.items():
                temporary[name].replace(to)
        finally:
            for path in temporary.values():
                path.unlink(missing_ok=True)

    def put(self, files: Mapping[str, Path]) -> None:
        """Copy local files into objects; each appears when it is there whole."""
        for name, path in files.items():
            self._files.put_file(os.fspath(path), self._path(name))

    def write(self, name: str, data: bytes) -> None:
        """Write one object, in the place of what it held."""
        self._files.pipe_file(self._path(name), data)

    def create(self, name: str, data: bytes) -> bool:
        """Write one object unless there is one of that name; False where there was."""
        try:
            self._files.pipe_file(self._path(name), data, mode="create")
        except FileExistsError:
            return False
        return True

    def delete(self, names: Iterable[str]) -> None:
        """Remove objects."""
        if paths := [self._path(name) for name in names]:
            self._files.rm(paths)

    def _entries(self, folder: str) -> list[tuple[str, str]]:
        try:
            found = self._files.ls(self._path(folder), detail=True)
        except FileNotFoundError:
            return []
        names = ((str(e["name"]).rstrip("/").rpartition("/")[2], str(e["type"])) for e in found)
        return sorted(names)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"
