"""Opens a file that somebody else has put into a folder.

Only a regular file is opened: no link is followed, and no pipe is waited for.

Otherwise anybody who may write to an inbox could make the driver read any file that its user may read. Who calls it:
whatever lists or reads an inbox. Errors: NoFile, and OSError. Not promised: protection from hard links, which can't be
told from the file itself; and from folders of a recursive inbox that are swapped for a link between the look when a
batch begins and its reading.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

KINDS = (
    (stat.S_ISLNK, "a symbolic link, which is not followed; links=True of the source allows them"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device file"),
    (stat.S_ISBLK, "a device file"),
    (stat.S_ISDIR, "a folder"),
)


class NoFile(OSError):
    """It is there, and is no regular file."""


def kind(mode: int) -> str | None:
    """What a name stands for, by its mode; None for a regular file."""
    return next((told for is_it, told in KINDS if is_it(mode)), None)


def opened(path: str) -> int:
    """The descriptor of a regular file, to read from it."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _no_file(path, stat.S_IFLNK) from error
        raise
    if (mode := os.fstat(file).st_mode) and not stat.S_ISREG(mode):
        os.close(file)
        raise _no_file(path, mode)
    return file


@contextmanager
def by_descriptor(path: str) -> Iterator[str]:
    """Yield a name of an opened regular file for a library that opens by name, which then opens the same file, whatever
    has taken its place."""
    descriptor = opened(path)
    try:
        yield f"/dev/fd/{descriptor}"
    finally:
        os.close(descriptor)


def is_directly_below(path: str, inbox: str) -> bool:
    """Return whether no folder between an inbox and a file is a link. Links above the inbox are its owner's."""
    below = os.path.dirname(path).removeprefix(inbox)  # noqa: PTH120 - as it is written
    return os.path.realpath(inbox + below) == os.path.realpath(inbox).rstrip("/") + below.rstrip("/")


def place(path: str, *, links: bool) -> str:
    """Where a file is opened: itself, or, where links are allowed, what it names."""
    return os.path.realpath(path) if links else path


def _no_file(path: str, mode: int) -> NoFile:
    return NoFile(errno.EINVAL, f"it is {kind(mode)}", path)
