"""Which of a run's scalars is its training loss, and how a tag is called in the lake."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Tags that are the loss, best first, as ``_plain`` and ``_bare`` write them.
_LOSSES = (
    "lm loss",
    "reduced train loss",
    "global avg loss",
    "train loss",
    "training loss",
    "loss",
    "train lm loss",
    "loss train",
    "loss global avg",
    "train loss step",
    "loss step",
    "train step loss",
    "loss iter",
    "ce loss",
    "cross entropy loss",
    "cross entropy",
    "train loss epoch",
    "loss epoch",
)
#: Words of losses that are not what the run minimises, or not on training data.
_OTHER = re.compile(
    r"\b(val|valid|validation|eval|evaluation|test|dev|aux|auxiliary|balanc\w*|z|mtp|router|scale|"
    r"ema|best|min|max|std|ppl)\b"
)
_PREFIX = re.compile(r"^(?:train|training|trainer|losses|loss metrics|loss|metrics)/+")
_SPLIT = re.compile(r"[\s_\-.]+")
VERSUS_SAMPLES = " vs samples"


def _plain(tag: str) -> str:
    """``tag`` in small letters with single blanks; ``train/loss`` is ``train loss``."""
    text = _SPLIT.sub(" ", tag.strip().lower())
    return " ".join(text.replace("/", " ").split())


def _bare(tag: str) -> str:
    """The same without the group in front: ``train/lm loss`` is ``lm loss``."""
    text = _SPLIT.sub(" ", tag.strip().lower())
    return " ".join(_PREFIX.sub("", text).replace("/", " ").split())


def may_be_loss(tag: str, wanted: str | None = None) -> bool:
    """Whether the tag can turn out to be the loss; with ``wanted`` only that one can."""
    if wanted is not None:
        return tag == wanted or _plain(tag) == _plain(wanted)
    return _rank(tag) is not None or _is_some_loss(tag)


def choose_loss(tags: Iterable[str], wanted: str | None = None) -> tuple[str | None, str | None]:
    """The tag of the training loss, and what there is to say of the choice.

    ``wanted``: what the person names; its exact spelling goes before one that only differs in
    blanks, dashes and capitals. Else the first of the known names that the run has; else the only
    tag with the word loss that is not of an evaluation and not an auxiliary one; else none.
    """
    known = list(dict.fromkeys(tags))
    listed = ", ".join(repr(tag) for tag in known[:12]) + (" ..." if len(known) > 12 else "")
    if wanted is not None:
        found = wanted if wanted in known else None
        if found is None:
            found = next((tag for tag in known if may_be_loss(tag, wanted)), None)
        return found, None if found else f"there is no tag {wanted!r}; the tags are {listed}"
    ranked = sorted((rank, place) for place, tag in enumerate(known) for rank in _ranks(tag))
    if ranked:
        chosen = known[ranked[0][1]]
        others = [tag for tag in known if tag != chosen and may_be_loss(tag)]
        beside = f"; --loss-tag chooses another: {', '.join(map(repr, others[:8]))}"
        return chosen, f"the loss is tag {chosen!r}{beside if others else ''}"
    some = [tag for tag in known if _is_some_loss(tag)]
    if len(some) == 1:
        return some[0], f"the loss is tag {some[0]!r}, the only one of a training loss"
    if some:
        named = ", ".join(map(repr, some[:8]))
        return None, f"which tag is the loss is not clear: --loss-tag names it, e.g. one of {named}"
    return None, f"no tag is a training loss (--loss-tag names it); the tags are {listed}"


def _ranks(tag: str) -> list[tuple[int, int]]:
    rank = _rank(tag)
    return [] if rank is None else [rank]


def _rank(tag: str) -> tuple[int, int] | None:
    """Place among the known names, and if a prefix had to be taken off; None where unknown."""
    if tag.lower().endswith(VERSUS_SAMPLES):
        return None
    found = [
        (_LOSSES.index(text), taken_off)
        for taken_off, text in enumerate((_plain(tag), _bare(tag)))
        if text in _LOSSES
    ]
    return min(found, default=None)


def _is_some_loss(tag: str) -> bool:
    text = _plain(tag)
    return (
        "loss" in text.split() and _OTHER.search(text) is None and not text.endswith(VERSUS_SAMPLES)
    )
