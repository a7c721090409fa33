"""Whether a file with declarations that was found, and not named, may be run: only if its owner is the caller or root."""

from __future__ import annotations

import os
from pathlib import Path

from onlyonce.model.errors import Refused


def refuse_foreign(file: Path, folder: Path) -> None:
    """Raise Refused if the file or its folder belongs to another user: the owner of a folder can replace what is in it."""
    for path in (file, folder):
        if path.stat().st_uid not in (os.geteuid(), 0):
            raise Refused(
                f"{file} was found, but {path} belongs to another user, and a file with declarations is run as yours",
                data="nothing was run, read or written",
                hint="name the file if you trust it: --pipelines, or ONLYONCE_PIPELINES",
            )
