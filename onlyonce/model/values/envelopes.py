"""Takes Debezium's envelope apart: the row as a line of JSON, what happened, its position in the database's log, and
when.

The row's numbers stay as they are written. The conversion table then reads the row like any other line. An envelope in
Avro arrives as JSON.

- PostgreSQL: source.lsn, of the change itself, in 20 digits; a row is locked until its transaction ends.
- MySQL, MariaDB: number of source.file (10), source.pos (20), source.row (10 digits); the binlog has transactions one
  after the other.

A digit follows: 0 for a row of the snapshot, 1 for a change, so the snapshot comes first at one position. All positions
of a database have one length.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, TypeGuard

from onlyonce.model.values import conversions, line_values
from onlyonce.model.values.conversions import Number, Unfit
from onlyonce.model.values.line_values import Invalid, shown

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CONNECTORS = ("postgresql", "mysql", "mariadb")
"""The connectors whose positions are known."""
CHANGES = ("c", "u", "d", "r")
NO_ENVELOPE = "the message is no envelope of Debezium, which has op and source"
NO_ROW = {
    "t": "the table was truncated: which rows that deletes the change does not say",
    "m": "a message in the log of the database, and no change of a row",
}
NO_PLACE = "the change has no place in the log of the database: source has no lsn, or no file and pos"
NO_KEY = (
    "the delete does not say which row: the table needs a primary key, or REPLICA IDENTITY FULL; or declare "
    "the message's key"
)
UNAVAILABLE = (
    "column %s has Debezium's placeholder for a value that did not change and that PostgreSQL stores out of line "
    "(TOAST): "
    "the value is not in the message. Run ALTER TABLE … REPLICA IDENTITY FULL on the table, then take its "
    "snapshot again"
)
FILE = re.compile(r"\.([0-9]{1,10})\Z")
POSITION = conversions.whole("bigint")


class Change(NamedTuple):
    """The parts of an envelope; or the reason why it is no change, with the op if there is one."""

    reason: str | None
    row: str | None = None
    op: str | None = None
    position: str | None = None
    time: datetime | None = None


def reader(columns: Collection[str], placeholder: str, *, keyed: bool) -> Callable[[str], Change]:
    """Return what takes an envelope apart.

    `columns`: the declared ones that come from the row. `keyed`: the message's key says which row a delete removed.
    """
    names = frozenset(columns)

    def read(line: str) -> Change:
        op = None
        try:
            with line_values.deep(line):
                envelope = _envelope(line)
                op = shown(envelope["op"])
                return _change(envelope, names, placeholder, keyed)
        except Invalid as wrong:
            return Change(str(wrong), op=op)

    return read


def _envelope(line: str) -> dict[str, Any]:
    try:
        found = line_values.decoded(line)
    except Invalid as wrong:
        raise Invalid(f"{NO_ENVELOPE} ({wrong})") from None
    # A message with the schema in it has the envelope as its payload.
    envelope = found.get("payload", found)
    if (
        not isinstance(envelope, dict)
        or not _is_text(envelope.get("op"))
        or not isinstance(envelope.get("source"), dict)
    ):
        raise Invalid(NO_ENVELOPE)
    return envelope


def _change(envelope: dict[str, Any], columns: Collection[str], placeholder: str, keyed: bool) -> Change:
    op, source = envelope["op"], envelope["source"]
    if op in NO_ROW:
        raise Invalid(NO_ROW[op])
    if op not in CHANGES:
        raise Invalid(f"the op of the change is not one of c, u, d and r: {shown(op)}")
    if source.get("connector") not in CONNECTORS:
        raise Invalid(
            f"the order of changes by this connector is not known: {shown(conversions.text(source.get('connector')))}"
        )
    position = f"{_position(source)}{int(op != 'r')}"
    row = _row(envelope, columns, placeholder, keyed)
    line_values.check_strings(row)
    return Change(None, conversions.text(row), op, position, _time(envelope))


def _row(envelope: dict[str, Any], columns: Collection[str], placeholder: str, keyed: bool) -> dict[str, Any]:
    before, after = envelope.get("before"), envelope.get("after")
    if envelope["op"] == "d":
        if not isinstance(before, dict):
            if keyed:
                return {}
            raise Invalid(NO_KEY)
        return {name: None if _is_unavailable(value, placeholder) else value for name, value in before.items()}
    if not isinstance(after, dict):
        raise Invalid("the change has no row after it")
    return {name: _available(name, value, before, columns, placeholder) for name, value in after.items()}


def _available(name: str, value: Any, before: Any, columns: Collection[str], placeholder: str) -> Any:
    """Return the value; in place of the placeholder the value before the change, since it did not change.

    Raise Invalid if that is missing too.
    """
    if name not in columns or not _is_unavailable(value, placeholder):
        return value
    if not isinstance(before, dict) or name not in before or _is_unavailable(before[name], placeholder):
        raise Invalid(UNAVAILABLE % name)
    return before[name]


def _is_unavailable(value: Any, placeholder: str) -> bool:
    # Debezium writes the placeholder as a string, as bytes in base64, in an array, or as key and value of a map.
    if isinstance(value, list):
        return len(value) == 1 and _is_unavailable(value[0], placeholder)
    if isinstance(value, dict):
        return list(value.items()) == [(placeholder, placeholder)]
    return _is_text(value) and value in (placeholder, base64.b64encode(placeholder.encode()).decode())


def _position(source: dict[str, Any]) -> str:
    if source["connector"] == "postgresql":
        return _digits(source.get("lsn"), 20)
    name = source.get("file")
    file = FILE.search(name) if _is_text(name) else None
    row = source.get("row")
    return (
        _digits(Number(int(file[1])) if file else None, 10)
        + _digits(source.get("pos"), 20)
        + _digits(Number("0") if row is None else row, 10)
    )


def _digits(value: Any, width: int) -> str:
    try:
        number = POSITION(value, [])
    except Unfit:
        raise Invalid(NO_PLACE) from None
    if number < 0 or len(str(number)) > width:
        raise Invalid(NO_PLACE)
    return f"{number:0{width}}"


def _time(envelope: dict[str, Any]) -> datetime | None:
    """Return when the database made the change; None if the envelope does not say it, or if the time has no year from 1
    to 9999."""
    value = envelope["source"].get("ts_ms")
    try:
        return EPOCH + timedelta(milliseconds=POSITION(envelope.get("ts_ms") if value is None else value, []))
    except (Unfit, OverflowError):
        return None


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and not isinstance(value, Number)
