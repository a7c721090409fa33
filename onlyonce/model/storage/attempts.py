"""The folders in which attempts write data files of the platform's own tables.

The folder's name tells whose it is. Pure.

A data file counts when a commit names it. Once the transaction of an attempt is in the table, no further commit will
name a file of it: whoever tries again finds the transaction and adds nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from onlyonce.model import stored_names

_FOLDER = re.compile(r"(\d+)-([a-z]+)-(-?\d+)-[0-9a-f]{32}")
NO_LIFE = "0"
"""Stands for the life in the folder of a manifest, which all lives share. Lives count from 1."""
HOUSEKEEPING = (stored_names.COMPACTION_BY, stored_names.RETENTION_BY)
"""What rewrites or removes rows of `events` commits for life 0 of receive (`stored_names.housekeeping`)."""


@dataclass(frozen=True)
class Attempt:
    """One attempt at a commit: the life of receive (0 for a manifest, which all lives share), what is committed
    (`events`, `close`, `files`), and the transaction's number."""

    life: int
    kind: str
    version: int

    def app_id(self, instance: str) -> str:
        """The transaction id under which it commits."""
        of_receive = self.life or self.kind in HOUSEKEEPING
        written_by = stored_names.lineage(instance, "receive", self.life) if of_receive else instance
        return stored_names.transaction(written_by, self.kind)


def folder(app_id: str, version: int, random: str) -> str:
    """The name of an attempt's folder."""
    _, *below = app_id.split("/")
    *_, life, kind = ("", NO_LIFE, *below)
    named = stored_names.attempt_folder(life, kind, version, random)
    return named if _FOLDER.fullmatch(named) else random


def read(name: str) -> Attempt | None:
    """Whose folder it is; None for one that is no attempt's, or of an older version, of which nothing is known."""
    found = _FOLDER.fullmatch(name)
    return Attempt(int(found[1]), found[2], int(found[3])) if found else None
