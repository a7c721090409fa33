"""The largest size of a record, and the reason that a larger one is given. Pure."""

from __future__ import annotations

from onlyonce.model.errors import Refused

DEFAULT = 1 << 24
"""In bytes. More than the largest message of Pub/Sub takes, landed."""
MOST = 1 << 28
"""A JVM holds a record some times over."""
BEGINNING = 1 << 10
"""So many bytes of a record that is too large are kept."""


class Damaged(ValueError):
    """A file that no reader gets through, or that holds other columns than are declared; the text says what it is."""


def check_record_size(whose: str, most: object) -> None:
    """Refuse what is no bound on the bytes of a record."""
    if type(most) is not int or not 1 <= most <= MOST:
        raise Refused(
            f"{whose}: max_record_bytes is {most!r}",
            hint=f"a whole number from 1 to {MOST}; {DEFAULT} is the default. Each core holds a record some times over",
        )


def too_large(what: str, size: int | str, most: int | str) -> str:
    """Why a record is invalid: `what` names it and its place."""
    return f"{what} has {size} bytes, and max_record_bytes is {most}; kept is how it begins"


def beginning(record: bytes) -> bytes:
    """How a record begins, without half a sign at its end."""
    first = record[:BEGINNING]
    for cut in range(min(4, len(first)) if len(record) > BEGINNING else 0):
        whole = first[: len(first) - cut]
        try:
            whole.decode()
        except UnicodeDecodeError:
            continue
        return whole
    return first
