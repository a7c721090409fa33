"""Show reports, rows and errors: as tables for people, as JSON for scripts. The look of the tables may change."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import IO, Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from onlyonce.core.errors import OnlyonceError, Refused, in_json, visible
from onlyonce.core.runs import Report
from onlyonce.core.unrepeatable import STAGED_TABLE

Row = dict[str, Any]

_WIDTH_IN_A_PIPE = 240
# The raw content of an invalid record may be a line without end; JSON has all of it.
_LONGEST_LINE = 300
_MOST_LINES = 60
_LINES_IN_A_TABLE = 3
_BETWEEN_COLUMNS = 3
_DIGITS = 6  # of a decimal's fraction are shown as they are, since it may be money; a longer one is a ratio
# Grouped, 63,000, as people read counts. Any other number may be an id, which must be copied unchanged.
_COUNTS = frozenset(("in", "kept", "late", "duplicate", "invalid", "expired", "in_time", "rejected", "rows"))


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
    """Print a report: its facts in one line, each of its tables, its warnings. A blank line parts two tables."""
    _show(report.title, out, style="bold")
    if report.facts:
        _show("  ".join(f"{name}: {plain(value)}" for name, value in report.facts.items()), out)
    for at, (name, rows) in enumerate(report.tables.items()):
        if at:
            out.print()
        # A sentence in each field is read in a line of its own, also in a pipe.
        rows = _without_rare_zeros(rows) if name == "fates" else rows
        show_rows(rows, out, title=name.replace("_", " "), blocks=name == STAGED_TABLE)
    for warning in report.warnings:
        _show(f"! {warning}", out, style="yellow")


RARE = ("unknown_fields", "written_again")
"""The columns of a run's fates that people see only if a row counts something there: the others fit 80 columns."""


def _without_rare_zeros(rows: Sequence[Row]) -> list[Row]:
    hidden = {name for name in RARE if not any(row.get(name) for row in rows)}
    return [{name: value for name, value in row.items() if name not in hidden} for row in rows]


def show_rows(
    rows: Sequence[Row],
    out: Console,
    *,
    title: str = "",
    empty: str = "no rows",
    blocks: bool = False,
    whole: bool = False,
) -> None:
    """Print rows as a table, or as a block for each row if the columns do not fit the width. Break no word.

    `blocks`: always as blocks, each with all its columns. `whole`: with the columns that have no value in any row,
    and with all digits of each number.

    Leave out columns without a value, and name them below. If the columns do not fit, print what all rows share once,
    above them. Report each column whose values are cut.
    """
    if not rows:
        _show(f"{title}: {empty}" if title else empty, out, style="dim")
        return
    names = [n for n in rows[0] if whole or any(row[n] is not None for row in rows)] or list(rows[0])
    written = _exact if whole else plain
    full = {name: [_full(name, row[name], written) for row in rows] for name in names}
    cells = {name: [_cut(cell) for cell in column] for name, column in full.items()}
    if title:
        _show(title, out, style="bold italic")
    widths = None if blocks else _widths(cells, out.width)
    if widths is None and len(rows) > 1 and not blocks:
        shared = {name: column[0] for name, column in cells.items() if len(set(column)) == 1 and "\n" not in column[0]}
        if 0 < len(shared) < len(cells):
            _show("in all rows: " + "  ".join(f"{name}: {cell}" for name, cell in shared.items()), out)
            cells = {name: column for name, column in cells.items() if name not in shared}
            widths = _widths(cells, out.width)
    if widths is None:
        _show_blocks(rows, cells, out)
    else:
        _show_table(rows, cells, widths, out)
    if empty_columns := [name for name in rows[0] if name not in names]:
        _show(f"without a value: {', '.join(empty_columns)}", out, style="dim")
    if cut := [name for name, column in full.items() if column != [_cut(cell) for cell in column]]:
        _show(f"cut here, whole with --json: {', '.join(cut)}", out, style="dim")


def _show(text: str, out: Console, *, style: str = "", indent: int = 0) -> None:
    """Print a string, wrapped between words. A word that is wider than the terminal stays whole, so it can be
    copied."""
    for line in visible(text).expandtabs().split("\n"):
        for number, part in enumerate(_wrapped(line, out.width - indent)):
            out.print(Text(" " * indent * (number > 0) + part, style=style), soft_wrap=True)


def _widths(cells: Mapping[str, Sequence[str]], width: int) -> list[int] | None:
    """Return the columns' widths; None if a column is too narrow for a word, or a cell needs too many lines."""
    columns = [[visible(name), *column] for name, column in cells.items()]
    lines = [[line for cell in column for line in cell.split("\n")] for column in columns]
    most = [max(map(cell_len, column)) for column in lines]
    least = [max(cell_len(word) for line in column for word in line.split() or [""]) for column in lines]
    room = width - _BETWEEN_COLUMNS * (len(columns) - 1)
    if sum(least) > room:
        return None
    # The widest columns are wrapped first.
    capped = (
        [max(low, min(high, cap)) for low, high in zip(least, most, strict=True)] for cap in range(max(most), -1, -1)
    )
    found = next(widths for widths in capped if sum(widths) <= room)
    tallest = max(
        sum(len(_wrapped(line, size)) for line in cell.split("\n"))
        for column, size in zip(columns, found, strict=True)
        for cell in column
    )
    return found if tallest <= _LINES_IN_A_TABLE else None


def _wrapped(line: str, width: int) -> list[str]:
    """Return a line in parts that fit the width, each of whole words. Blanks before and within a part stay."""
    parts, part = [], ""
    for piece in re.findall(r"\s*\S+|\s+$", line):
        if part and cell_len(part + piece.rstrip()) > width:
            parts.append(part)
            part = piece.lstrip()
        else:
            part += piece
    return [*parts, part]


def _show_table(rows: Sequence[Row], cells: Mapping[str, Sequence[str]], widths: Sequence[int], out: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, width in zip(cells, widths, strict=True):
        kind: Any = "right" if _are_numbers([row[name] for row in rows]) else "left"
        table.add_column(Text(name), justify=kind, overflow="fold", width=width)
    for at, row in enumerate(rows):
        table.add_row(*[Text(column[at], style=_style(row[name])) for name, column in cells.items()])
    out.print(table)


def _show_blocks(rows: Sequence[Row], cells: Mapping[str, Sequence[str]], out: Console) -> None:
    """Print each row as a block with a line for each field; leave out fields without a value."""
    for at, row in enumerate(rows):
        if at:
            out.print()
        for name, column in cells.items():
            if row[name] is None:
                continue
            lines = column[at].split("\n")
            if len(lines) > 1:
                _show(f"  {name}:", out)
            for line in [f"  {line}" for line in lines] if len(lines) > 1 else [f"{name}: {lines[0]}"]:
                _show(f"  {line}", out, style=_style(row[name]), indent=4)


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
    return in_json(json.dumps(plain_value, indent=2, default=for_json, ensure_ascii=False))


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
    if isinstance(value, Decimal) and value.is_finite() and int(value.as_tuple().exponent) >= -_DIGITS:
        return f"{value:f}" if value % 1 else f"{value:.0f}"
    if isinstance(value, float | Decimal):
        return f"{value:.2f}" if value % 1 else f"{value:.0f}"
    if isinstance(value, datetime):
        return _time(value)
    # Before it is laid out: the escape is wider than the character.
    return json.dumps(value, default=str) if isinstance(value, dict | list) else visible(str(value)).expandtabs()


def _exact(value: Any) -> str:
    """Return a value as `plain` does, a number with all its digits."""
    if isinstance(value, Decimal) and value.is_finite():
        return f"{value:f}"
    return repr(value) if isinstance(value, float) else plain(value)


def _full(column: str, value: Any, written: Callable[[Any], str]) -> str:
    return f"{value:,}" if column in _COUNTS and isinstance(value, int) else written(value)


def _cut(text: str) -> str:
    """Return a cell without the ends of long lines, and without its last lines if it has very many."""
    lines = text.split("\n")
    cut = [line if len(line) <= _LONGEST_LINE else line[:_LONGEST_LINE] + "…" for line in lines[:_MOST_LINES]]
    return "\n".join([*cut, "…"] if len(lines) > _MOST_LINES else cut)


def _time(value: datetime) -> str:
    utc = value if value.tzinfo is None else value.astimezone(UTC)
    return f"{utc:%Y-%m-%d %H:%M:%S}" + ("" if value.tzinfo is None else "Z")


def for_json(value: Any) -> Any:
    """Return a value that JSON lacks as one that it has: a number, a time in ISO 8601, or a string.

    A decimal is a number if JSON's readers keep all its digits, else a string.
    """
    if isinstance(value, Decimal):
        if not value.is_finite():
            return str(value)
        if value == value.to_integral_value():
            return int(value)
        return float(value) if Decimal(repr(float(value))) == value else str(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _are_numbers(values: list[Any]) -> bool:
    return all(v is None or (isinstance(v, int | float | Decimal) and not isinstance(v, bool)) for v in values)


def _style(value: Any) -> str:
    return "red" if value is False else ""
