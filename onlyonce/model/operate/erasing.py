"""Which records are to be forgotten: those of which some columns have given values. And the receipt, which never has the values. Pure.

Who calls it: `onlyonce.operate.erase`. Errors: Refused for a condition that is not of the form `column = 'text' AND column = 17`.
"""

from __future__ import annotations

import csv
import hashlib
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onlyonce.model.errors import Refused
from onlyonce.model.values import conversions

COMPARED = ("string", "bigint", "long", "int", "integer", "smallint", "short", "tinyint", "byte")
"""The types of columns whose values have one text, in `events` as in a line of input."""
PART = re.compile(r"\s*`?([A-Za-z_]\w*)`?\s*=\s*(?:'((?:[^']|'')*)'|([+-]?\d+))\s*")
AND = re.compile(r"\s+and\s+", re.IGNORECASE)


@dataclass(frozen=True)
class Condition:
    """Values by column, as texts: a record is meant if it has them all."""

    values: Mapping[str, str]

    @property
    def columns(self) -> list[str]:
        """The columns, without their values."""
        return sorted(self.values)

    def fingerprint(self, salt: str) -> str:
        """By which the same condition is known again. Who knows the salt and has a guess can check the guess."""
        return hmac.new(salt.encode(), json.dumps(sorted(self.values.items())).encode(), hashlib.sha256).hexdigest()

    def fits(self, record: Mapping[str, Any]) -> bool:
        """Whether a record, with values as JSON has them, is meant."""
        return all(name in record and conversions.text(record[name]) == value for name, value in self.values.items())

    def fits_line(self, line: str, columns: Sequence[str] | None) -> bool:
        """Whether a line of input is meant: of JSON, or with `columns` of CSV. A line that can't be parsed is, if it gives the columns these values."""
        if columns is not None:
            fields = next(csv.reader([line]), [])
            if len(fields) == len(columns):
                return self.fits(dict(zip(columns, fields, strict=True)))
            return all(value in fields for value in self.values.values())
        try:
            found = conversions.parsed(line)
        except ValueError:
            found = None
        if isinstance(found, dict):
            return self.fits(found)
        return all(
            re.search(rf'"{re.escape(name)}"\s*:\s*"?{re.escape(value)}(?![\w-])', line)
            for name, value in self.values.items()
        )


def read(text: str, types: Mapping[str, str]) -> Condition:
    """The condition that a person has written, over the declared columns. Raises Refused."""
    values: dict[str, str] = {}
    for part in AND.split(text.strip()):
        found = PART.fullmatch(part)
        if not found:
            raise _refused(f"{len(text)} characters that are no condition", types)
        name = found[1]
        if name not in types:
            raise _refused(f"{name!r} is not a declared column", types)
        if types[name] not in COMPARED or name in values:
            raise _refused(f"{name!r} is a {types[name]}, or given twice", types)
        values[name] = found[2].replace("''", "'") if found[2] is not None else str(int(found[3]))
    return Condition(values)


def _refused(what: str, types: Mapping[str, str]) -> Refused:
    known = ", ".join(name for name, kind in types.items() if kind in COMPARED)
    return Refused(
        f"--where: {what}",
        data="nothing was changed",
        hint=f"write it as \"user = 'u17'\" or \"shop = 'x' AND number = 5\", of columns of text or whole numbers: {known}",
    )
