"""Decide which invalid and expired rows one reprocessing takes, and under which name. Pure.

Rows are reprocessed in sets. A set is all rows of one batch that have the same reason, or one file that could not be
read. The log's primary key lets each set be reprocessed at most once. So a reprocessing that is repeated, even months
later, adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import PurePath
from typing import Literal

from onlyonce.core import stored_names
from onlyonce.core.errors import Refused

Kind = Literal["invalid", "expired"]


@dataclass(frozen=True, order=True)
class RowSet:
    """Rows of `events` of one batch and reason. `file` names the file that could not be read, if that is the reason."""

    incarnation: str
    batch_id: int
    reason: str
    file: str
    rows: int

    @property
    def key(self) -> tuple[str, int, str, str]:
        """Return the key of the set in the log. A reason may quote a record, so the log keeps its hash."""
        return self.incarnation, self.batch_id, sha256(self.reason.encode()).hexdigest(), self.file


def file_name(kind: Kind, number: int) -> str:
    """Return the name of a reprocessing's input file: the same for every attempt, so the inbox gets it once."""
    return stored_names.reprocessed_file(kind, number)


def among(paths: Iterable[str]) -> list[str]:
    """Return the files of reprocessings among the files of a batch."""
    return sorted(path for path in paths if PurePath(path).name.startswith(stored_names.REPROCESSED_PREFIX))


def sets(
    rows: Iterable[tuple[str, int, str, str, int]], facts: Mapping[tuple[str, int], Mapping[str, str]]
) -> list[RowSet]:
    """Return rows of `events` as sets.

    rows   (incarnation, batch, reason, raw or '', number of rows)
    facts  the committed batches, each with the files that it could not read; rows of other batches are left out
    """
    found: dict[tuple[str, int, str, str], int] = {}
    for incarnation, batch_id, reason, raw, count in rows:
        if (incarnation, batch_id) in facts:
            is_file = facts[incarnation, batch_id].get(raw) == reason
            key = (incarnation, batch_id, reason, raw if is_file else "")
            found[key] = found.get(key, 0) + count
    return sorted(RowSet(*key, count) for key, count in found.items())


def chosen(
    found: Iterable[RowSet], reprocessed: Iterable[tuple[str, int, str, str]], batch: int | None, reason: str | None
) -> list[RowSet]:
    """Return the requested sets that were not reprocessed: of one batch, with a string in their reason, or all."""
    gone = set(reprocessed)
    return [
        one
        for one in found
        if one.key not in gone
        and batch in (None, one.batch_id)
        and (reason is None or reason.lower() in one.reason.lower())
    ]


def check_worth_it(pipeline: str, kind: Kind, lines: int, still_invalid: int, example: str | None) -> None:
    """Raise Refused if all lines of a reprocessing would be invalid again."""
    if kind == "expired" or lines == 0 or still_invalid < lines:
        return
    raise Refused(
        f"each of the {lines:,} lines would be invalid again; the first because {example}",
        data="nothing was reprocessed",
        hint=f"correct the declaration of {pipeline} first, or choose with --batch and --reason; a record whose "
        "content is wrong must come again from its source",
    )
