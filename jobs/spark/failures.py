"""From an error that Spark hands over to one of ours: the cause is often several layers down, as text."""

from __future__ import annotations

import re

from jobs.model import errors

_OURS = re.compile(r"jobs\.model\.errors\.(\w+): (.+?)(?:\n  data: (.*?))?(?:\n  next: (.*?))?(?:\n|$)")
_KNOWN: list[tuple[str, type[errors.OnlyonceError], str, str]] = [
    (
        "CONCURRENT_STREAM_LOG_UPDATE",
        errors.Retryable,
        "another driver wrote into the same checkpoint",
        "run the same command again; the epoch decides which driver goes on",
    ),
    (
        "No space left on device",
        errors.Retryable,
        "the disk is full",
        "free space, then run the same command again",
    ),
]


def translate(error: BaseException) -> BaseException:
    """Our own error if one is at the bottom of it, else the error as it is."""
    if isinstance(error, errors.OnlyonceError):
        return error
    text = str(error)
    if found := _OURS.search(text):
        kind = getattr(errors, found[1], None)
        if isinstance(kind, type) and issubclass(kind, errors.OnlyonceError):
            return kind(found[2], data=found[3] or "", hint=found[4] or "")
    for mark, known, what, hint in _KNOWN:
        if mark in text:
            return known(what, data="nothing is half done", hint=hint)
    return error
