"""Turns an error that the platform does not know into one of its own: three lines for the user, and the traceback in a
file.

Who calls it: every place where a process ends (`cli.shell`, `job_main`, `session.ending`). No errors: if the home can't
be written to, the file is in the system's folder for temporary files. Not promised: that these files are removed; they
are small, and have the time in their name.
"""

from __future__ import annotations

import os
import tempfile
import traceback
from datetime import UTC, datetime
from pathlib import Path

from onlyonce import extras, settings
from onlyonce.model import origin
from onlyonce.model.errors import OnlyonceError, Refused, Unexpected
from onlyonce.settings import home_folders

USAGE = 2
"""How argparse and click end a command that they can't read."""


def told(error: BaseException) -> OnlyonceError:
    """The error itself where it is ours; else three lines, with the traceback in a file."""
    if isinstance(error, OnlyonceError):
        return error
    if isinstance(error, ModuleNotFoundError) and (missing := extras.missing(error)):
        return missing
    first = (str(error).strip().splitlines() or [""])[0][:300]
    place = origin.in_python(error)
    return Unexpected(
        f"{f'{place}: ' if place else ''}an error that onlyonce does not know: {type(error).__name__}: {first}",
        data="all that was committed is whole, and it is safe to run the same command again",
        hint=f"run it again; if the error stays, the traceback is in {keep(error)}: report it, or look into it if "
        "the line is your own",
    )


def exit_code(code: object) -> object:
    """The exit code of a command that could not be read: the request is wrong."""
    return Refused.exit_code if code == USAGE else code


def keep(error: BaseException) -> Path:
    """Write an error's traceback, with those of its causes, to a file below the home's logs; gives the file."""
    text = "".join(traceback.format_exception(error))
    name = f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}-{os.getpid()}.txt"
    try:
        folder = home_folders.inside(settings.home(), "logs", "errors")
    except (OSError, Refused):
        folder = Path(tempfile.mkdtemp(prefix="onlyonce-errors-"))
    file = folder / name
    file.write_text(text)
    return file
