"""The errors of the platform, the line of user code that an error comes from, and safe printing of any text. Pure.

The class of an error decides who must act:

| class              | who must act                                   | exit code |
|--------------------|------------------------------------------------|-----------|
| Retryable          | the same command, run again                    | 75        |
| Superseded         | no one: another driver is running              | 69        |
| CommitStateUnknown | the platform: read the log, then decide        | 75        |
| Refused            | the caller: the request is wrong, see the hint | 64        |
| InvariantBroken    | a person: stop, look at the data named         | 70        |

`FunctionFails` is a Refused for the author of a function. `Unexpected` stands for an error that the platform does not
know. It is a Retryable, since it is safe to run the command again.
"""

from __future__ import annotations

import ast
import io
import linecache
import pkgutil
import re
import sys
import sysconfig
import tokenize
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from onlyonce.core.near_names import did_you_mean, near

HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""C0, DEL and C1; line separators; changes of direction, by which a name reads as another one; halves of surrogate
pairs. Java reads the pattern as Python does.

A terminal would obey these characters or can't print them; records, file names and errors may have any of them."""
_LAYOUT = "\n\t"


def visible(text: str) -> str:
    r"""Return the string with hidden characters as `\x1b` or `\u202e`. Line breaks and tabs stay."""
    return HIDDEN.sub(lambda one: one[0] if one[0] in _LAYOUT else _written(one), text)


def in_line(text: str) -> str:
    """Return the string with all hidden characters written out, line breaks and tabs too."""
    return HIDDEN.sub(_written, text)


def in_json(text: str) -> str:
    """Return JSON with the escapes of JSON for its hidden characters.

    Line breaks stay: within strings JSON escapes them itself.
    """
    return HIDDEN.sub(lambda one: one[0] if one[0] in _LAYOUT else f"\\u{ord(one[0]):04x}", text)


def _written(one: re.Match[str]) -> str:
    code = ord(one[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


class OnlyonceError(Exception):
    """An error. Base of all errors that the platform raises itself.

    `what` happened, what it means for the `data`, and the `hint`: what to do next. They are printed as three lines,
    never longer than a screen.
    """

    exit_code = 1
    at: str | None = None
    """The line of a declaration's option, 'file:line', which its file's loader puts in front."""

    def __init__(self, what: str, *, data: str = "", hint: str = "") -> None:
        # What happened may quote a record or the name of a file.
        super().__init__(visible(what))
        self.what = visible(what)
        self.data = visible(data)
        self.hint = visible(hint)

    def __str__(self) -> str:
        lines = [self.what]
        if self.data:
            lines.append(f"  data: {self.data}")
        if self.hint:
            lines.append(f"  next: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        # Errors are pickled from Spark's workers to the driver, which loses keyword arguments.
        return (_rebuild, (type(self), self.what, self.data, self.hint))


def _rebuild(kind: type[OnlyonceError], what: str, data: str, hint: str) -> OnlyonceError:
    return kind(what, data=data, hint=hint)


class Retryable(OnlyonceError):
    """A required service or part did not answer. Nothing is half done; the same command may run again."""

    exit_code = 75


class DatabaseAway(Retryable):
    """The log or a sink's database did not answer. The platform retries by itself, for a bounded time."""


class Superseded(OnlyonceError):
    """A newer driver, or a new incarnation, has taken the incarnation. This driver stops; what it has committed
    stays.
    """

    exit_code = 69


class CommitStateUnknown(OnlyonceError):
    """The answer to a COMMIT was lost. Only the log can show whether the transaction is committed."""

    exit_code = 75


class Refused(OnlyonceError):
    """The request is wrong, and nothing was done. The hint names the right call."""

    exit_code = 64


class FunctionFails(Refused):
    """A user's function fails on the rows that it gets: a retry gives it the same rows."""


class Unexpected(Retryable):
    """An error that the platform does not know. Each commit was whole, so the same command may run again."""


class InvariantBroken(OnlyonceError):
    """An invariant does not hold. The platform stops before it does damage; a person must look."""

    exit_code = 70


EXIT_CODES: dict[int, type[OnlyonceError]] = {
    kind.exit_code: kind for kind in (CommitStateUnknown, Retryable, Superseded, Refused, InvariantBroken)
}
WITHOUT_MEMORY = (3, 52)
"""The exit codes of a JVM without memory: by the option that `engine/options` adds, and by Spark if a task had none."""


# The line of user code that an error comes from, as `file:line`; None if no line of the traceback is the user's.
#
# The line is not exact for an expression that is written over several lines: Python and Spark may name its first or its
# last one.


# As Python imported it: the file of a frame is a path in which links are not resolved.
OURS = str(Path(__file__).absolute().parents[1]) + "/"
_LIBRARY_FOLDERS = tuple(str(sysconfig.get_path(name)) + "/" for name in ("purelib", "platlib"))
_NEVER = (OURS, "<")
_PYTHON = str(sysconfig.get_path("stdlib")) + "/"
_LIBRARIES = (
    "/pyspark/",
    "/py4j/",
    "pyspark.zip",
    "/cloudpickle/",
    "/pandas/",
    "/numpy/",
    "/pyarrow/",
    "/delta/",
    "/deltalake/",
    "/fastavro/",
    "/fsspec/",
    "/tenacity/",
    "/sqlalchemy/",
    "/psycopg2/",
    "/structlog/",
    "/click/",
    "/typer/",
    "/rich/",
    "/httpx/",
    "/pydantic",
)
"""Libraries between our code and a function, or that call our code. Other libraries in the same folders may be a
team's own."""
_CALLED = re.compile(r"was called from\n(\S+\.py):(\d+)")
"""How Spark names the line on which an expression of a plan was written (`onlyonce.engine.failures`)."""
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def is_users(file: str) -> bool:
    """Return whether code is a user's: neither ours, nor Python's, nor a library's."""
    return not _is_never(file) and not file.startswith(_LIBRARY_FOLDERS)


def of_python(named: Any) -> bool:
    """Return whether a function or class is part of Python's own library: built in, or of its standard library."""
    name = getattr(named, "__module__", None)
    file = getattr(sys.modules.get(str(name)), "__file__", None)
    if file is None:  # built in, or frozen into Python
        return str(name).partition(".")[0] in {*sys.stdlib_module_names, "builtins"}
    return file.startswith(_PYTHON) and "-packages/" not in file


def _is_never(file: str) -> bool:
    """Return whether code can't be a team's: it is ours, Python's, or a library's around the functions."""
    of_python = file.startswith(_PYTHON) and "-packages/" not in file
    return file.startswith(_NEVER) or of_python or any(name in file for name in _LIBRARIES)


def _innermost(places: list[tuple[str, int | str]]) -> str | None:
    """Return the innermost user line of the lines that an error has passed, given outermost first.

    A team's functions may be installed in the folder of the libraries, so such a line counts if no other one does."""
    inward = [place for place in reversed(places) if not _is_never(place[0])]
    chosen = next((place for place in inward if is_users(place[0])), inward[0] if inward else None)
    return f"{chosen[0]}:{chosen[1]}" if chosen else None


def origin_in_python(error: BaseException) -> str | None:
    """Return the innermost user line that an exception has passed, or the line that can't be parsed as Python."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    return _innermost([(one.filename, one.lineno or 0) for one in traceback.extract_tb(error.__traceback__)])


def names_at(error: BaseException) -> list[str]:
    """Return the names that the failing line could use, without Python's own."""
    at = error.__traceback__
    while at and at.tb_next:
        at = at.tb_next
    return [*at.tb_frame.f_locals, *at.tb_frame.f_globals] if at else []


def missing_module(error: ModuleNotFoundError) -> str:
    """Return the hint for a module that can't be imported: an installed one of a similar name, or what to install."""
    meant = did_you_mean(_similar_module(str(error.name)))
    package, _, last = str(error.name).rpartition(".")
    if package and (inside := getattr(sys.modules.get(package.split(".")[0]), "__path__", None)):
        folder = Path(next(iter(inside)), *package.split(".")[1:])
        if is_users(str(folder / "__init__.py")):
            return f"{meant}correct the import: there is no {folder / last}.py"
    return f"{meant}correct the import; or install what brings {error.name} wherever onlyonce and Airflow run"


def _similar_module(name: str) -> str | None:
    """Return the module of a similar name: of the same package, else of those that are installed, else of Python's."""
    package, _, last = name.rpartition(".")
    if package:
        inside = getattr(sys.modules.get(package), "__path__", ())
        found = near(last, {one.name for one in pkgutil.iter_modules(inside)}, 0.7)
        return f"{package}.{found}" if found else None
    installed = {one.name for one in pkgutil.iter_modules()} - sys.stdlib_module_names
    return near(name, installed, 0.8) or near(name, sys.stdlib_module_names, 0.8)


def raised_by_user(error: BaseException) -> bool:
    """Return whether the user's own code has raised an error, and not ours."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and not frames[-1].filename.startswith(_NEVER)


def origin_in_file(error: BaseException, file: Path) -> str:
    """Return the innermost line of one file that an exception has passed; else the file.

    An error that names the line of an option has that line.
    """
    if at := getattr(error, "at", None):
        return str(at)
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    return next((f"{file}:{one.lineno}" for one in reversed(frames) if one.filename == str(file)), str(file))


STATEMENT_LINES = 20
"""How far from its first to its last line a statement or a function is searched for a word."""


def line_of_statement(place: str, word: str) -> str:
    """Return the line of a statement that has a word, if the line that Python names, one of it, does not have it."""
    file, number = _file_and_line(place)
    last = min(_last_line(linecache.getlines(file), number), number + STATEMENT_LINES - 1)
    return _line_with(place, word, [*range(number, last + 1), *range(number - 1, number - STATEMENT_LINES, -1)])


def text_at(place: str) -> str:
    """Return the line of a file at a place, 'file:line'."""
    return linecache.getline(*_file_and_line(place))


def renamed_above(place: str, column: str) -> tuple[int, str] | None:
    """Return the last line above a place that renames a column by `withColumnRenamed`, and the new name."""
    file, number = _file_and_line(place)
    renames = re.compile(rf"""withColumnRenamed\(\s*["']{re.escape(column)}["']\s*,\s*["'](\w+)["']""")
    above = list(enumerate(linecache.getlines(file)[:number], 1))[-STATEMENT_LINES:]
    return next(((line, found[1]) for line, text in reversed(above) if (found := renames.search(text))), None)


def _last_line(lines: list[str], number: int) -> int:
    """Return the last line of the innermost statement that has a line; that line itself if it is not Python."""
    with suppress(SyntaxError):
        statements = (node for node in ast.walk(ast.parse("".join(lines))) if isinstance(node, ast.stmt))
        spans = [(node.lineno, node.end_lineno or node.lineno) for node in statements]
        having = [span for span in spans if span[0] <= number <= span[1]]
        return min(having, key=lambda one: one[1] - one[0], default=(number, number))[1]
    return number


def line_below(place: str, word: str) -> str:
    """Return the first line of a function that has a word; the place where it begins if none has."""
    number = _file_and_line(place)[1]
    return _line_with(place, word, range(number, number + STATEMENT_LINES))


def _line_with(place: str, word: str, numbers: Iterable[int]) -> str:
    """Return the first of some lines of a place's file that has a word; the place if none has."""
    file, _ = _file_and_line(place)
    whole = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
    return next((f"{file}:{one}" for one in numbers if whole.search(linecache.getline(file, one))), place)


def _file_and_line(place: str) -> tuple[str, int]:
    file, _, number = place.rpartition(":")
    return file, int(number)


def origin_in_text(text: str) -> str | None:
    """Return the user line of an error that Spark reports as text.

    It is the line of an expression, or the innermost line of a Python worker's traceback."""
    return _innermost(_CALLED.findall(text)) or _innermost(_FRAME.findall(text))


def origin_of_caller(frame: FrameType | None) -> str | None:
    """Return the innermost user line among the callers of a frame."""
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def lines_of_options(at: str, name: str) -> dict[str, int]:
    """Return the line of each option in the call of `name` that begins at 'file:line'; empty if it is not found."""
    return {option: one.lineno for option, one in _options(at, name).items()}


def line_in_option(at: str, name: str, option: str, value: str, position: int) -> int | None:
    """Return the line that has the character at `position` of an option's string, in the call as `lines_of_options`.

    The string may be written as several, one behind the other, which Python joins. Return the option's line if the
    value is not written there as a string (a name, an f-string, an expression).
    """
    found = _options(at, name).get(option)
    if found is None:
        return None
    node, file = found.value, at.rpartition(":")[0]
    if not (isinstance(node, ast.Constant) and node.value == value):
        return found.lineno
    begin = 0
    for first, part, written in _strings(linecache.getlines(file), node):
        if begin <= position < begin + len(part):
            # A string in three quotes has the lines of its value, unless an escape has made or removed one.
            within = part[: position - begin].count("\n")
            return first + (within if written == part.count("\n") else 0)
        begin += len(part)
    return found.lineno


def end_of_first(at: str, name: str, option: str) -> str | None:
    """Return 'file:line' of the end of the first value in an option's tuple; None if no tuple is written there."""
    found = _options(at, name).get(option)
    values = found.value.elts if found and isinstance(found.value, ast.Tuple) else []
    return f"{at.rpartition(':')[0]}:{values[0].end_lineno}" if values else None


def _strings(lines: list[str], node: ast.Constant) -> Iterator[tuple[int, str, int]]:
    """Yield the line, the value and the line breaks of each string that a constant is joined of."""
    last = node.end_lineno or node.lineno
    rest = "".join(lines[node.lineno - 1 : last])
    with suppress(tokenize.TokenError, SyntaxError, ValueError):  # what stands behind the strings is cut off
        for token in tokenize.generate_tokens(io.StringIO(rest).readline):
            at = (node.lineno + token.start[0] - 1, token.start[1])
            within = (node.lineno, node.col_offset) <= at and at < (last, node.end_col_offset or 0)
            if token.type == tokenize.STRING and within:
                yield at[0], ast.literal_eval(token.string), token.string.count("\n")


def _options(at: str, name: str) -> dict[str, ast.keyword]:
    file, _, line = at.rpartition(":")
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:  # the text has changed since it was read
        return {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and f"{node.lineno}" == line and _called(node.func) == name:
            return {one.arg: one for one in node.keywords if one.arg}
    return {}


def _called(function: ast.expr) -> str | None:
    return getattr(function, "attr", None) or getattr(function, "id", None)


def origin_of_function(function: Callable[..., Any]) -> str | None:
    """Return where a user's function begins."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else None


def origin_of_result(function: Callable[..., Any]) -> str | None:
    """Return the line on which a user's function makes its result: the last call of its only `return`.

    Return where the function begins if it has several, or if its text is not found.
    """
    begins = origin_of_function(function)
    if begins is None:
        return None
    file, _, first = begins.rpartition(":")
    with suppress(SyntaxError):  # the text has changed since it was read
        for node in ast.walk(ast.parse("".join(linecache.getlines(file)))):
            if not isinstance(node, ast.FunctionDef):
                continue
            if int(first) in (node.lineno, *(one.lineno for one in node.decorator_list)):
                returned = [one.value for one in _own_nodes(node) if isinstance(one, ast.Return) and one.value]
                if len(returned) == 1:
                    [value] = returned
                    return f"{file}:{value.func.end_lineno if isinstance(value, ast.Call) else value.lineno}"
    return begins


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes inside a function, without those of the functions and classes in it."""
    for one in ast.iter_child_nodes(node):
        if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield one
            yield from _own_nodes(one)
