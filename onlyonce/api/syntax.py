"""Explain a syntax error of a user's file: the line to look at, and how to correct it."""

from __future__ import annotations

import io
import keyword
import re
import tokenize
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

VALUES = (tokenize.NAME, tokenize.NUMBER, tokenize.STRING)
NAMED_VALUES = ("None", "True", "False")
CONTINUES = ("if", "else", "for", "and", "or", "in", "is", "not")
"""The words with which an expression continues on the next line."""


class Explained(NamedTuple):
    """The line, Python's message, and what to do."""

    line: int
    message: str
    hint: str


def explained_in_file(error: BaseException) -> tuple[str, str, str] | None:
    """Return the place in a file that Python can't read, Python's message and what to do; None for any other error."""
    if not isinstance(error, SyntaxError) or not error.filename or not Path(error.filename).is_file():
        return None  # without a file it is code that the user's file has in a string
    line, message, hint = explained(error, Path(error.filename).read_text(errors="replace"))
    return f"{error.filename}:{line}", message, hint


def explained(error: SyntaxError, text: str) -> Explained:
    """Return what to correct in a text that Python can't read. Pure."""
    line, said = error.lineno or 1, error.msg
    if "'utf-8' codec can't decode" in said:
        return Explained(line, said, "save the file in UTF-8")
    if "was never closed" in said and (opened := _left_open(text)):
        return Explained(opened, said, f"close the bracket of line {opened}: {_of(text, opened)}")
    if "forgot a comma" in said:
        if lacks := _without_comma(text, line, error.end_lineno or line):
            return Explained(lacks, said, f"put a comma at the end of line {lacks}: {_of(text, lacks)}")
        return Explained(line, said, "put a comma where it is missing in that line")
    if said.startswith("expected ':'"):
        return Explained(line, said, "put a colon at the end of that line")
    if said.startswith("expected an indented block"):
        above = re.search(r"on line (\d+)", said)
        return Explained(line, said, f"indent the line below line {above[1]}" if above else "indent that line")
    if said == "unexpected indent" and (closed := _closed_early(text, line)):
        return Explained(closed, said, f"take the last closing bracket out of line {closed}: {_of(text, closed)}")
    if said.startswith(("unexpected indent", "unmatched")) and (lacks := _unopened(text, line)):
        return Explained(lacks, said, f"open a bracket at the end of line {lacks}: {_of(text, lacks)}(")
    if said == "unexpected indent":
        return Explained(line, said, "begin that line as far left as the line before it")
    if isinstance(error, IndentationError):
        return Explained(line, said, "begin that line exactly below the lines of its block")
    if said.startswith("unmatched"):
        return Explained(line, said, "take that bracket out, or put the one that it closes above it")
    if said.startswith("unterminated"):
        return Explained(line, said, "put the closing quote of that string where it ends")
    return Explained(line, said, "correct that line, or the end of the line before it")


def _of(text: str, line: int) -> str:
    return text.splitlines()[line - 1].strip()


def _left_open(text: str) -> int | None:
    """Return the line whose bracket is not closed; None if the indentation is not clear.

    Python names the outermost bracket. A closing one that begins a line, and stands further left than the line of the
    bracket that it closes, was meant for another.
    """
    lines, opened = text.splitlines(), list[int]()
    with suppress(tokenize.TokenError, SyntaxError):
        for one in tokenize.generate_tokens(io.StringIO(text).readline):
            line = one.start[0]
            if one.type == tokenize.OP and one.string in "([{":
                opened.append(line)
            elif one.type == tokenize.OP and one.string in ")]}" and opened:
                begins = not lines[line - 1][: one.start[1]].strip()
                if begins and one.start[1] < _indent(lines[opened[-1] - 1]):
                    break
                opened.pop()
    return opened[-1] if opened else None


def _closed_early(text: str, before: int) -> int | None:
    """Return the last line above another that closes all brackets and ends with a comma, as a line within a call does.

    None if the line that opened them is the same one.
    """
    lines, opened, found = text.splitlines(), list[int](), None
    with suppress(tokenize.TokenError, SyntaxError):
        for one in tokenize.generate_tokens(io.StringIO(text).readline):
            if one.start[0] >= before:
                break
            if one.type == tokenize.OP and one.string in "([{":
                opened.append(one.start[0])
            elif one.type == tokenize.OP and one.string in ")]}" and opened:
                first, after = opened.pop(), lines[one.start[0] - 1][one.end[1] :]
                is_last = not opened and first < one.start[0] and re.fullmatch(r",\s*(#.*)?", after)
                found = one.start[0] if is_last else found
    return found


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _unopened(text: str, before: int) -> int | None:
    """Return the last line above another that ends as the beginning of a call does, with deeper lines below it."""
    lines = text.splitlines()[:before]
    for number in range(len(lines) - 1, 0, -1):
        above, below = lines[number - 1].rstrip(), lines[number]
        word = re.search(r"(\w+)$|=$", above)
        if word and not keyword.iskeyword(word[1] or "") and below.strip() and _indent(below) > _indent(above):
            return number
    return None


def _without_comma(text: str, begin: int, end: int) -> int | None:
    """Return the first of some lines that ends with a value, and is followed by a line that begins with another."""
    if begin == end:
        return None
    before: tokenize.TokenInfo | None = None
    with suppress(tokenize.TokenError, SyntaxError):
        for one in tokenize.generate_tokens(io.StringIO(text).readline):
            if one.type in (tokenize.NL, tokenize.COMMENT):
                continue
            if before and begin <= before.end[0] < one.start[0] <= end and _ends(before) and _begins(one, before):
                return before.end[0]
            before = one
    return None


def _ends(one: tokenize.TokenInfo) -> bool:
    """Return whether a value may end here."""
    if one.type in VALUES:
        return not keyword.iskeyword(one.string) or one.string in NAMED_VALUES
    return one.string in (")", "]", "}")


def _begins(one: tokenize.TokenInfo, before: tokenize.TokenInfo) -> bool:
    """Return whether a new value begins here: two strings are one."""
    continues = one.type == before.type == tokenize.STRING or one.string in CONTINUES
    return one.type in VALUES and not continues
