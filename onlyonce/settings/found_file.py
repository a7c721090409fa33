"""Whether what was found in the current folder, and not named, may be used: only if its owner is the caller or root."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from onlyonce.model.errors import Refused


def refuse_foreign(file: Path) -> None:
    """Raise Refused if another user could have put it there: the file, its folder, or a link to one of them belongs to
    another user, or all may write to it."""
    for path in (file, file.parent, file.resolve(), file.resolve().parent):
        theirs = any(found.st_uid not in (os.geteuid(), 0) for found in (path.lstat(), path.stat()))
        # In a folder such as /tmp no user can replace the file of another one.
        open_to_all = path.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH
        if theirs or open_to_all:
            raise Refused(
                f"{file} was found, but {path} "
                f"{'belongs to another user' if theirs else 'may be written by every user'}, and declarations and "
                "settings run code as yours",
                data="nothing was run, read or written",
                hint="name the file if you trust it: --pipelines, ONLYONCE_PIPELINES, or ONLYONCE_CONFIG for settings",
            )


def others_may_write(folder: Path) -> bool:
    """Return whether another user may put files into a folder, such as /tmp.

    `python -m` would import its modules from there.
    """
    found = folder.stat()
    return found.st_uid not in (os.geteuid(), 0) or bool(found.st_mode & stat.S_IWOTH)
