"""Show reports, rows and errors: as tables for people, as JSON for scripts. The look of the tables may change."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import IO, Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from onlyonce.core.errors import OnlyonceError, Refused, in_json, visible
from onlyonce.core.runs import Report

Row = dict[str, Any]

_WIDTH_IN_A_PIPE = 240
# The raw content of an invalid record may be a line without end; JSON has all of it.
_LONGEST_CELL = 300
_LONGEST_WORD = 10
# Grouped, 63,000, as people read counts. Any other number may be an id, which is to be copied as it is.
_COUNTS = frozenset(("in", "kept", "late", "duplicate", "invalid", "remnant", "in_time", "rejected", "rows"))


class Visible(Console):
    """A console that shows the control characters of what it prints, instead of sending them to the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of a renderable. Rich's own control sequences are segments of a kind of their own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))

    def on_broken_pipe(self) -> None:
        """Raise the error for the caller, who ends the program; Rich would end it itself, with exit code 1."""
        raise


def console(*, stderr: bool = False, file: IO[str] | None = None) -> Console:
    """Return where to write. A pipe has no width, and cutting columns to 80 would lose what was asked for."""
    found = Visible(stderr=stderr, file=file, highlight=False)
    return found if found.is_terminal else Visible(stderr=stderr, file=file, highlight=False, width=_WIDTH_IN_A_PIPE)


def show_report(report: Report, out: Console) -> None:
    """Print a report: its facts in one line, each of its tables, its warnings."""
    out.print(Text(report.title, style="bold"))
    if report.facts:
        out.print(Text("  ".join(f"{name}: {plain(value)}" for name, value in report.facts.items())))
    for name, rows in report.tables.items():
        show_rows(rows, out, title=name.replace("_", " "))
    for warning in report.warnings:
        out.print(Text(f"! {warning}", style="yellow"))


def show_rows(rows: Sequence[Row], out: Console, *, title: str = "", empty: str = "no rows") -> None:
    """Print rows as a table: the columns of the first row, numbers to the right. Leave out columns without a value."""
    if not rows:
        out.print(Text(f"{title}: {empty}" if title else empty, style="dim"))
        return
    names = [n for n in rows[0] if any(row[n] is not None for row in rows)] or list(rows[0])
    table = Table(title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in names:
        values = [row[name] for row in rows]
        # A terminal is narrow: a short word is never cut in two.
        least = min(len(name), _LONGEST_WORD)
        kind: Any = "right" if _are_numbers(values) else "left"
        table.add_column(Text(name), justify=kind, overflow="fold", min_width=least)
    for row in rows:
        table.add_row(*[Text(_cell(name, row[name]), style=_style(row[name])) for name in names])
    out.print(table)


def show_error(error: OnlyonceError, out: Console) -> None:
    """Print an error in three lines: what happened, what it means for the data, what to do next.

    A refusal without words on the data was not begun.
    """
    out.print(Text(error.what, style="bold red"), soft_wrap=True)
    for label, text in (("data", _of_data(error)), ("next", error.hint)):
        if text:
            out.print(Text.assemble((f"  {label}: ", "dim"), text), soft_wrap=True)


def as_json(value: Report | Sequence[Row]) -> str:
    """Return a report or rows as JSON; times in ISO 8601, anything else that JSON lacks as a string."""
    plain_value = value.as_dict() if isinstance(value, Report) else list(value)
    return in_json(json.dumps(plain_value, indent=2, default=_for_json, ensure_ascii=False))


def error_as_json(error: OnlyonceError) -> str:
    """Return an error as JSON: its three lines and the exit code."""
    return in_json(
        json.dumps(
            {"error": error.what, "data": _of_data(error), "next": error.hint, "exit_code": error.exit_code},
            indent=2,
            ensure_ascii=False,
        )
    )


def _of_data(error: OnlyonceError) -> str:
    return error.data or ("nothing was done" if isinstance(error, Refused) else "")


def plain(value: Any) -> str:
    """Return a value as people read it: times in UTC, fractions with two digits, nothing for null."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float | Decimal):
        return f"{value:.2f}" if value % 1 else f"{value:.0f}"
    if isinstance(value, datetime):
        return _time(value)
    # Before it is laid out: the escape is wider than the character.
    return json.dumps(value, default=str) if isinstance(value, dict | list) else visible(str(value))


def _cell(column: str, value: Any) -> str:
    text = f"{value:,}" if column in _COUNTS and isinstance(value, int) else plain(value)
    return text if len(text) <= _LONGEST_CELL else text[:_LONGEST_CELL] + "…"


def _time(value: datetime) -> str:
    utc = value if value.tzinfo is None else value.astimezone(UTC)
    return f"{utc:%Y-%m-%d %H:%M:%S}" + ("" if value.tzinfo is None else "Z")


def _for_json(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value) if value % 1 else int(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _are_numbers(values: list[Any]) -> bool:
    return all(v is None or (isinstance(v, int | float | Decimal) and not isinstance(v, bool)) for v in values)


def _style(value: Any) -> str:
    return "red" if value is False else ""
