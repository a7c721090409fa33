"""Inboxes that were moved.

A file is identified by the path that it had when its inbox was first read, wherever the folder is now.

The registry keeps those first paths. A file beside the registry says where each folder is now. Only a person writes it,
by `onlyonce inbox`. A run that finds its inbox at another place asks for that, and never reads old files as new input.

Who calls it: whatever lists an inbox, opens a registered file, or names one. Errors: Refused.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from onlyonce import settings
from onlyonce.model import stored_names
from onlyonce.model.errors import Refused
from onlyonce.model.storage.location import Location
from onlyonce.storage import stores

Moved = Mapping[str, str]
"""A folder as the registry names it → where it is now."""


def of(pipeline: str) -> Moved:
    """Which folders of a pipeline were moved, and where to."""
    at = _file(pipeline)
    try:
        told: dict[str, str] = json.loads(stores.of(at).read(at))
    except FileNotFoundError:
        return {}
    return told


def tell(pipeline: str, named: str, folder: str) -> None:
    """From now on the folder that the registry names so is here."""
    at = _file(pipeline)
    stores.of(at).put(at, json.dumps({**of(pipeline), named: folder}, indent=1, sort_keys=True).encode())


def place(path: str, moved: Moved) -> str:
    """Return where a registered file is now; the longest folder above it that was moved decides."""
    above = max((folder for folder in moved if path.startswith(f"{folder}/")), key=len, default=None)
    return path if above is None else moved[above] + path.removeprefix(above)


def named(pipeline: str, folder: str, roots: Collection[str], moved: Moved) -> str:
    """How the registry names an inbox; `roots` are the folders of its files, the last one last.

    Raises Refused where only a person knows."""
    for name, there in moved.items():
        if there == folder:
            return name
    if not roots or (folder in roots and folder not in moved):
        return folder
    raise Refused(
        f"the inbox of {pipeline} was {last(roots, moved)}, and is {folder} now",
        data="nothing was read or written; if it were taken for another inbox, each of its files would be read again",
        hint=f"if its files were moved or copied: onlyonce inbox {pipeline} --moved; if it is another folder, all "
        "of which is "
        f"new: onlyonce inbox {pipeline} --another (of several sources with --source NAME)",
    )


def last(roots: Collection[str], moved: Moved) -> str:
    """Where the inbox was when it was last read."""
    root = list(roots)[-1]
    return moved.get(root, root)


def _file(pipeline: str) -> Location:
    return settings.data_location(pipeline) / stored_names.INBOXES_FILE
