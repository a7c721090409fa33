"""Checks of folders that people name.

A folder is never a URL, but that of `Files`. The path of an inbox is absolute, so it is the same for whoever runs the
pipeline. Pure."""

from __future__ import annotations

import re

from onlyonce.model.errors import Refused
from onlyonce.model.sinks.names import FOLDER

URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def check_folder(whose: str, named: str | None) -> None:
    """Refuse a URL, of which a local folder with that name would become, and a name that no folder can have."""
    if named and URL.match(named):
        raise Refused(
            f"{whose} is {named!r}, a URL: it would become a local folder of that name",
            data="nothing was read or written",
            hint="name a folder that is mounted wherever the pipeline runs, without file://. Of all places only "
            "Files(inbox='s3://bucket/prefix'), Delta(path='s3://bucket/table'), "
            "FileSink(path='s3://bucket/folder') and ONLYONCE_DATA may be in an object store",
        )
    if long := [part for part in (named or "").split("/") if FOLDER.size(part) > FOLDER.most]:
        raise Refused(
            f"{whose} has the part {long[0]!r}, which is longer than {FOLDER.most} bytes",
            data="nothing was read or written",
            hint="give the folder a shorter name: no file system has one this long",
        )


def check_inbox(whose: str, named: str | None) -> None:
    """Refuse what is another folder for another user, or from another folder."""
    check_folder(f"{whose}: inbox", named)
    if named is not None and not named.startswith("/"):
        raise Refused(
            f"{whose}: inbox {named!r} is another folder for whoever runs it elsewhere, or as somebody else",
            data="nothing was read or written",
            hint="write the whole path, from / on; or leave it out: <home>/inbox/<pipeline>",
        )
