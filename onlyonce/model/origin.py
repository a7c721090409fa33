"""Finds the line of the user's own code that an error comes from: `file:line`, or None if no line of the traceback is
the user's.

Pure.

Who calls it: whatever tells a user of an error in a declaration or a function. Not promised: the exact line of an
expression that is written over several lines; Python and Spark may name its first or its last one.
"""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

# As Python has imported it: a frame's file is no path that links were followed in.
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
"""What stands between our code and a function, or calls ours. Other libraries may be a team's own, installed beside
them."""
_CALLED = re.compile(r"was called from\n(\S+\.py):(\d+)")
"""How Spark tells on which line an expression of a plan was written (`onlyonce.session.lines`)."""
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def is_users(file: str) -> bool:
    """Whether code is a user's: neither ours, nor Python's, nor a library's."""
    return not _is_never(file) and not file.startswith(_LIBRARY_FOLDERS)


def _is_never(file: str) -> bool:
    """Code that is nobody's of a team: ours, Python's, and that of the libraries which call and are called by a
    function."""
    of_python = file.startswith(_PYTHON) and "-packages/" not in file
    return file.startswith(_NEVER) or of_python or any(name in file for name in _LIBRARIES)


def _innermost(places: list[tuple[str, int | str]]) -> str | None:
    """Of the lines that an error has passed, outermost first: a team's functions may be installed beside the
    libraries."""
    inward = [place for place in reversed(places) if not _is_never(place[0])]
    chosen = next((place for place in inward if is_users(place[0])), inward[0] if inward else None)
    return f"{chosen[0]}:{chosen[1]}" if chosen else None


def in_python(error: BaseException) -> str | None:
    """The innermost line of the user's that an exception has passed; of a file that can't be read as Python, the line
    in it."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    return _innermost([(one.filename, one.lineno or 0) for one in traceback.extract_tb(error.__traceback__)])


def raised_by_user(error: BaseException) -> bool:
    """Whether it was the user's own code that has raised an error, and not ours."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and not frames[-1].filename.startswith(_NEVER)


def in_file(error: BaseException, file: Path) -> str:
    """The innermost line of one file, where there is one; else the file."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    return next((f"{file}:{one.lineno}" for one in reversed(frames) if one.filename == str(file)), str(file))


def in_text(text: str) -> str | None:
    """The same of what Spark tells as text: the line of an expression, or the innermost of a Python worker's
    traceback."""
    return _innermost(_CALLED.findall(text)) or _innermost(_FRAME.findall(text))


def of_caller(frame: FrameType | None) -> str | None:
    """The line of the user's that has called us."""
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def of_function(function: Callable[..., Any]) -> str | None:
    """Where a function of the user's begins."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else None
