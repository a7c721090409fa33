"""Recognise the encoding, separator and words for null of a file, and say how to convert what no source reads. Pure.

A source reads UTF-8, and CSV by RFC 4180 with any of the separators below, even in a code page of Windows. Excel writes
other encodings and line ends by the country and the menu entry. Nothing is converted silently: the refusal names what
was recognised and a command.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from onlyonce.core.encodings import UTF_8, undefined
from onlyonce.core.errors import Refused, in_line
from onlyonce.core.line_values import DELIMITERS, is_utf8

UTF8, WESTERN = "utf-8-sig", "windows-1252"
ROWS = 200
"""How many rows are compared for one separator."""
ALIKE = 0.9
"""The share of rows that have as many values as the first one, if a separator is the right one."""
SEPARATOR_LINE = re.compile(r"\"?sep=(.)\"?\r?\n?")
"""A first line of Excel's that names the separator."""
NULLS = ("NULL", "null", "\\N", "NA", "N/A", "n/a", "-")
"""The words that programs write into CSV for null."""
WORKBOOK = b"PK\x03\x04"
NOT_READ = "nothing was written"


class Dialect(NamedTuple):
    """How a file is written.

    guessed     whether the encoding is a guess, since almost any bytes can be read by it
    separator   None: not CSV
    named       whether the first line names the separator
    returns     whether its lines end in carriage returns alone
    """

    encoding: str
    guessed: bool = False
    separator: str | None = None
    named: bool = False
    returns: bool = False


class Written(NamedTuple):
    """How a file is declared that a source can read: what separates the values of CSV, and its encoding."""

    separator: str = ","
    encoding: str = UTF_8


def null_words(columns: Iterable[tuple[str, ...]], are_typed: Callable[[list[str]], bool]) -> tuple[str, ...]:
    """Return the words for null: each is in a column whose other values are numbers or times, by `are_typed`."""
    found = set[str]()
    for column in columns:
        words = {*column}.intersection(NULLS)
        if words and are_typed([cell for cell in column if cell not in words]):
            found |= words
    return tuple(word for word in NULLS if word in found)


def refuse_workbook(path: Path, content: bytes) -> None:
    """Raise Refused for a workbook or a zip archive, by the beginning of the file."""
    if content.startswith(WORKBOOK):
        raise Refused(
            f"{path} can't be read: it is a workbook of Excel or a zip archive, whatever its name says",
            data=NOT_READ,
            hint="save it in Excel as 'CSV UTF-8 (Comma delimited)', and name that file",
        )


def check(path: Path, content: bytes, *, is_csv: bool, compressed: bool) -> Written:
    """Return how a file is declared. `content`: the beginning of the file, decompressed.

    Raise Refused if a source can't read the file as it is written.
    """
    refuse_workbook(path, content)
    encoding = _encoding(content)
    text = codecs.getincrementaldecoder(encoding)("replace").decode(content)
    found = Dialect(encoding, encoding == WESTERN)
    if is_csv:
        named = SEPARATOR_LINE.match(text)
        found = found._replace(
            separator=named[1] if named else _separator(path, text),
            named=bool(named),
            returns="\r" in text and "\n" not in text,
        )
    others = _reasons(found)
    # A code page is read as it is, but a file that is converted anyway becomes UTF-8.
    if is_csv and found.guessed and not others and not {*content} & {*undefined(WESTERN)}:
        _check_one_encoding(path, content)
    elif others := [*_encoding_reasons(found, text), *others]:
        raise Refused(
            f"{path} can't be read: {' and '.join(others)}; a source reads UTF-8",
            data=NOT_READ,
            hint=_hint(path.with_suffix("") if compressed else path, found, compressed),
        )
    return Written(found.separator or ",", WESTERN if found.guessed else UTF_8)


def _encoding(content: bytes) -> str:
    """Return the encoding of some bytes; WESTERN is a guess for what is not Unicode."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    head = content[:4096]
    for begin, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        if head[begin::2].count(0) > len(head) // 4:
            return encoding
    try:
        codecs.getincrementaldecoder(UTF8)().decode(content)
    except UnicodeDecodeError:
        return WESTERN
    return UTF8


def _check_one_encoding(path: Path, content: bytes) -> None:
    """Raise Refused if some lines are UTF-8 and others are not: by one encoding for all, letters would be wrong."""
    special = [(number, line) for number, line in enumerate(content.split(b"\n"), 1) if not line.isascii()]
    wrong = [number for number, line in special if not is_utf8(line)]
    if len(wrong) < len(special):
        raise Refused(
            f"{path}:{wrong[0]} is not UTF-8, and other lines of the file are",
            data=NOT_READ,
            hint="correct this line, or leave it out of the sample: in a run such a line is an invalid record",
        )


def _separator(path: Path, text: str) -> str:
    """Return what separates the values. Raise Refused if a comma and another character both do."""
    widths = {one: width for one in DELIMITERS if (width := _width(text, one)) > 1}
    if not widths:
        return ","
    best = max(widths, key=lambda one: widths[one])
    if "," in widths and (other := next((one for one in widths if one != "," and widths[one] >= widths[","]), None)):
        raise Refused(
            f"{path} can't be read: its values may be separated by ',' ({widths[',']} columns) or by {other!r} "
            f"({widths[other]} columns), and nothing says which",
            data=NOT_READ,
            hint=f"put each value with a comma or {other!r} in double quotes, as Excel's export does for its own "
            "separator, or name a sample without such values",
        )
    return best if "," not in widths else ","


def _width(text: str, separator: str) -> int:
    """Return how many values most rows and the first one have; 1 if the rows differ."""
    whole = text[: text.rfind("\n") + 1] or text
    try:
        rows = [row for row in islice(csv.reader(io.StringIO(whole, newline=""), delimiter=separator), ROWS) if row]
    except csv.Error:
        return 1
    if not rows:
        return 1
    width, count = Counter(map(len, rows)).most_common(1)[0]
    return width if len(rows[0]) == width and count >= ALIKE * len(rows) else 1


def _encoding_reasons(found: Dialect, text: str) -> list[str]:
    if found.guessed:
        beginning = in_line(text.splitlines()[0][:60]) if text.strip() else ""
        return [f"it is not UTF-8; as {found.encoding} (Western Europe, a guess) it begins {beginning!r}"]
    return [] if found.encoding == UTF8 else [f"it is {found.encoding.upper()}"]


def _reasons(found: Dialect) -> list[str]:
    why = []
    if found.named:
        why.append(f"its first line names the separator {found.separator!r}, and is not a record")
    if found.returns:
        why.append("its lines end in carriage returns alone")
    return why


def _hint(path: Path, found: Dialect, compressed: bool) -> str:
    new = path.with_name(f"{path.stem}.utf8{path.suffix}")
    first = "decompress it, then convert" if compressed else "convert"
    unsure = f"; if its letters come out wrong, name its encoding in place of {found.encoding}" if found.guessed else ""
    command = _command(path, new, found)
    return f"{first} this file, and each later one before it goes into the inbox{unsure}: {command}"


def _command(path: Path, new: Path, found: Dialect) -> str:
    """Return a command of the shell that writes the file as a source reads it."""
    if found.separator is None:
        code = f"open(b,'w',newline='',encoding='utf-8').write(open(a,newline='',encoding='{found.encoding}').read())"
    else:
        code = (
            f"r=csv.reader(open(a,newline='',encoding='{found.encoding}'),delimiter={found.separator!r}); "
            f"{'next(r); ' if found.named else ''}"
            "csv.writer(open(b,'w',newline='',encoding='utf-8')).writerows(r)"
        )
    return f'python3 -c "import csv,sys; a,b=sys.argv[1:]; {code}" {shlex.quote(str(path))} {shlex.quote(str(new))}'
