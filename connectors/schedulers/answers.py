"""One JSON document that a server answered, saved to a file: how it is known and taken apart."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from steptax.app.errors import InputError
from steptax.app.schema import Reject
from steptax.connectors.base import Capabilities, Connector, Options, RawChunk
from steptax.connectors.sources import head, refuse_no_text, text_of
from steptax.connectors.values import BadValueError
from steptax.connectors.wholefile import read_json_whole, whole_json

_SHOWN = 500


class SavedAnswer(Connector):
    """A kind whose source is such a document, and whose jobs the document names itself."""

    of: ClassVar[str]
    """Who answers: ``slurmrestd``."""
    keys: ClassVar[tuple[str, ...]]
    """Names of which the document has one at its beginning; the first is what is looked for."""
    save_by: ClassVar[str]
    """The command that saves one."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What such a document gives."""

    def probe(self, source: Path, options: Options) -> Capabilities:
        """Look for the answer's frame in the head of the file."""
        if options.job_id is not None:
            raise InputError("the answer names its jobs itself", where="--job", hint="leave it out")
        data = head(source)
        refuse_no_text(data, str(source), f"the text that {self.of} answers is read")
        if not self.is_answer(data):
            raise InputError(
                f"is no answer of {self.of}: there is no '{self.keys[0]}' at its beginning",
                where=str(source),
                hint=f"save it by: {self.save_by}",
            )
        return self.capabilities

    def is_answer(self, data: bytes) -> bool:
        """Whether a document can begin with ``data``."""
        return any(f'"{key}"'.encode() in data for key in self.keys)

    def fetch(self, source: Path, options: Options) -> Iterator[RawChunk]:
        """The whole file."""
        yield RawChunk(str(source), 1, read_json_whole(source))


def document_in(data: bytes, where: str) -> Any:
    """The document; InputError where it is no whole JSON."""
    try:
        return whole_json(data.decode("utf-8", "replace"))
    except ValueError as error:
        raise InputError(
            f"is no whole JSON: {str(error)[:150]}", where=where, hint="save the answer anew"
        ) from None


def errors_in(document: Any) -> str:
    """What an answer of slurmrestd says of its errors; empty where it tells of none."""
    errors = document.get("errors") if isinstance(document, Mapping) else None
    told = [
        str(
            (one.get("description") or one.get("error") or one) if isinstance(one, Mapping) else one
        )
        for one in (errors if isinstance(errors, list) else [errors] if errors else [])
    ]
    return "; ".join(told)[:200]


def refused(error: BadValueError, row: int, found: Any) -> Reject:
    """The reject of one entry of a document, counted from 1."""
    text = json.dumps(found, default=str)[:_SHOWN]
    return Reject("jobs", str(error), row, error.field, text_of(text.encode("utf-8", "replace")))
