"""Translates Spark's errors into ours, recognizes a lost JVM, and ends an application with its report or error.

Spark has the cause in its message, often several layers down. No import of Spark: the command line uses this module.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from onlyonce import logs, settings, unexpected
from onlyonce.core import errors, failures
from onlyonce.core.errors import OnlyonceError, Retryable
from onlyonce.core.locations import location
from onlyonce.core.runs import Report
from onlyonce.environment import variable
from onlyonce.tables import stores

# Translates an error of Spark into one of ours.


_OURS = re.compile(r"onlyonce\.core\.errors\.(\w+): (.+?)(?:\n  data: (.*?))?(?:\n  next: (.*?))?(?:\n|$)")
PLANNED = "another driver has planned batch"
OTHER_DRIVER = (
    PLANNED,
    "CONCURRENT_STREAM_LOG_UPDATE",
    # Spark's message for the same error in a failed query, which lacks the name of the condition.
    "Multiple streaming queries are concurrently using",
    "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY",
)
"""How Spark, or `context.working_copy`, says that another driver writes into the checkpoint: later, or just as the
first batch begins.
"""
OUT_OF_MEMORY = (
    "java.lang.OutOfMemoryError",
    # Spark's message for the same error in a failed query, which lacks the name of the class.
    "terminated with exception: Java heap space",
    "terminated with exception: GC overhead limit exceeded",
)
OTHER_TABLE = "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"
NO_MEMORY = "Spark's memory was too small for a batch"
MORE_MEMORY = (
    "give it more and run the same command again: ONLYONCE_DRIVER_MEMORY with a local master, where the driver does "
    "all the work (2g by default), else ONLYONCE_EXECUTOR_MEMORY too; or less to do: ONLYONCE_OUTPUT_BATCH_BYTES "
    "bounds what an output reads at once, max_files_a_batch what receive does"
)
NOTHING_HALF_DONE = "nothing is half done"
NO_SPACE = "No space left on device"
NO_PATH = ("PATH_NOT_FOUND", "FAILED_READ_FILE.FILE_NOT_EXIST")
_PATH = re.compile(r"(?:Path does not exist:|while reading file) (\S+?)\.?(?=\s|$)")
"""The path in Spark's message about a file or folder that is missing."""
_FILE = re.compile(r"(?<![\w:/])/[\w./@=+-]+")
_KNOWN: list[tuple[str, type[errors.OnlyonceError], str, str]] = [
    *(
        (
            mark,
            errors.Retryable,
            "another driver wrote into the same checkpoint",
            "run the same command again; the epoch decides which driver continues",
        )
        for mark in OTHER_DRIVER
    ),
    *(
        (
            mark,
            errors.Retryable,
            "messages were deleted from the topic while their batch was read, or a broker has lost them",
            "run the same command again: it tells which offsets are lost, or reads them all",
        )
        for mark in ("KAFKA_DATA_LOSS", "OffsetOutOfRangeException")
    ),
    (
        "org.apache.kafka.common.errors.TimeoutException",
        errors.Retryable,
        "Kafka did not answer while a batch was read",
        "run the same command again when the brokers are up",
    ),
    (
        "Python worker exited unexpectedly",
        errors.Retryable,
        "a Python worker of Spark died, as often as a task may try",
        "run the same command again. If it happens again, see who ends it: mostly the system, when memory is short",
    ),
    *((mark, errors.Retryable, NO_MEMORY, MORE_MEMORY) for mark in OUT_OF_MEMORY),
    *(
        (
            mark,
            errors.Retryable,
            "Spark ended this run's application while it worked",
            "Spark's log and the cluster manager name the cause: the executors failed as often as "
            "spark.executor.maxNumFailures allows, or a person or the cluster ended the application. Then run the "
            "same command again",
        )
        # Of the current job, of the next job, of any other call, and of a plan whose session is gone.
        for mark in (
            "SparkContext was shut down",
            "SparkContext has been shutdown",
            "a stopped SparkContext",
            'SparkPlan.session()" is null',
        )
    ),
    (
        "JAVA_GATEWAY_EXITED",
        errors.Retryable,
        "Spark's JVM ended before it answered",
        "the JVM's last lines in the log name the cause; `onlyonce` prints them above. Mostly it is an option that "
        "the JVM does not know (JDK_JAVA_OPTIONS, JAVA_TOOL_OPTIONS, spark-defaults.conf) or too little free memory "
        "(ONLYONCE_DRIVER_MEMORY). Correct it, then run the same command again",
    ),
    (
        "CANNOT_LOAD_CHECKPOINT_FILE_MANAGER",
        errors.Refused,
        "Spark has no jar with which it writes checkpoints into the store (spark-hadoop-cloud): the folder of "
        "S3's jars is older than this version",
        "`make .venv/.made/s3` in a checkout brings it; in an image make the folder next to that of ONLYONCE_JARS "
        "again. Then run the same command again",
    ),
]

_OF_CODE = re.compile(
    r"^(?:pyspark\.errors\.\S*\.)?((?:Analysis|Parse)Exception"
    r"|(?:Attribute|Import|Index|Key|Name|Type|Value|ZeroDivision|Assertion)Error"
    r"|ModuleNotFoundError): (.*)$",
    re.MULTILINE,
)
"""The last line of a Python traceback if the code of a function is wrong, or gets a value that it can't handle."""

_OF_WORKER = ("PythonException", "PYTHON_EXCEPTION", "thrown from the Python worker")

_DAMAGED = (
    "CANNOT_LOAD_STATE_STORE",
    "STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
    "ChecksumException",
    "Incomplete log file",
    "Malformed log file",
)
_CHECKPOINT = re.compile(r"/data/([^/\s]+)/checkpoints/([^/\s]+)/")


JAVA = "Java 17 or newer (Debian: apt install openjdk-17-jre-headless)"
_UNRESOLVED = re.compile(r"unresolved dependency: ([\w.-]+)#([\w.-]+);([\w.-]+)")
_NO_ACCESS = re.compile(r"Server access error at url (https?://[^/\s]+)\S* \((?:[\w.]+: )?(.+)\)\s*$", re.MULTILINE)
_NO_HOST = re.compile(r"Host ([\w.-]+) not found")


def start_failure(said: str) -> errors.Refused | None:
    """Return the error of a JVM that can't start at any attempt, by what it said; None for another cause."""
    home, on_path = variable("JAVA_HOME"), shutil.which("java")
    if not (Path(home) / "bin" / "java").is_file() if home else on_path is None:
        where = (
            f"JAVA_HOME is {home}, which has no bin/java" if home else "JAVA_HOME is not set, and no java is on PATH"
        )
        get = f"unset JAVA_HOME, since {on_path} is on PATH" if on_path else f"install {JAVA}"
        return _not_started(f"Java is not found: {where}", f"{get}, or set JAVA_HOME to a folder that has bin/java")
    if "UnsupportedClassVersionError" in said:
        return _not_started("the Java that is found is too old for Spark", f"install {JAVA}, and set JAVA_HOME to it")
    if jars := dict.fromkeys(map(":".join, _UNRESOLVED.findall(said))):
        return _not_started(f"Spark could not fetch its jars {', '.join(jars)}{_why_not_fetched(said)}", FETCH)
    return None


FETCH = (
    "let this machine reach Maven Central. Behind a proxy: export JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST "
    "-Dhttps.proxyPort=PORT', since Java does not read HTTPS_PROXY. With a mirror: write `spark.jars.ivySettings FILE` "
    "into spark-defaults.conf in a folder, and name the folder in SPARK_CONF_DIR. Without a network: copy Spark's "
    "cache ~/.ivy2.5.2 from a machine on which `onlyonce check` has started Spark"
)
"""The ways to Spark's jars."""


def _why_not_fetched(said: str) -> str:
    if found := _NO_ACCESS.search(said):
        return f": {found[1]}: {found[2]}"
    return f": the host {found[1]} is not found" if (found := _NO_HOST.search(said)) else ""


def _not_started(what: str, hint: str) -> errors.Refused:
    return errors.Refused(what, data="nothing was read or written", hint=hint)


def translate(error: BaseException) -> BaseException:
    """Return our own error if the cause is known, else the error as it is."""
    return known_failure(error) or _of_code(str(error)) or failures.error_of_rows(str(error)) or error


def known_failure(error: BaseException) -> errors.OnlyonceError | None:
    """Return our own error if it is the cause, or the error for a known failure of Spark, its files or brokers;
    else None.
    """
    if isinstance(error, errors.OnlyonceError):
        return error
    text = str(error)
    if OTHER_TABLE in text:
        return errors.InvariantBroken(
            "a Delta table that an output reads was deleted, and there is another one in its place",
            data="rows of committed batches may be missing in it, and no output reads on",
            hint="run nothing, and ask `onlyonce doctor` which table it is. Then restore PostgreSQL, the tables and "
            "the checkpoints from one moment",
        )
    if found := _OURS.search(text):
        kind = getattr(errors, found[1], None)
        if isinstance(kind, type) and issubclass(kind, errors.OnlyonceError):
            return kind(found[2], data=found[3] or "", hint=found[4] or "")
    if store := failures.store_failure_of_text(text):
        return store
    if url := failures.denied_without_code(text):
        return stores.why_denied(location(url))
    for mark, of_kind, what, hint in _KNOWN:
        if mark in text:
            return of_kind(what, data=NOTHING_HALF_DONE, hint=hint)
    return _full(text) if NO_SPACE in text else _no_path(text) or _damaged(text) or _file_missing(text)


def _no_path(text: str) -> errors.Retryable | None:
    """Return the error for a missing file or folder. Spark does not say who reads it, and a function may read any."""
    if not any(mark in text for mark in NO_PATH):
        return None
    named = _PATH.search(text)
    return errors.Retryable(
        f"a file or folder was missing while it was read{f': {named[1]}' if named else ''}",
        data=NOTHING_HALF_DONE,
        hint="if a function of yours reads it, restore it or correct the function. Then run the same command again: a "
        "missing input file becomes one invalid record, or is named if part of it is committed",
    )


def _full(text: str) -> errors.Retryable:
    """Return the error for a full disk. It names the file of the message, and the free space of this machine's
    folders.
    """
    named = _FILE.search(text.replace("file:", " "))
    where = f" where {named[0]} is" if named else ""
    folders = dict.fromkeys(
        [
            settings.home(),
            *(Path(one) for one in (variable("SPARK_LOCAL_DIRS") or "").split(",") if one),
            Path(tempfile.gettempdir()),
        ]
    )
    free = ", ".join(f"{shutil.disk_usage(one).free // 1_000_000:,} MB in {one}" for one in folders if one.is_dir())
    return errors.Retryable(
        f"a disk is full{where}",
        data=NOTHING_HALF_DONE,
        hint=f"free space, then run the same command again. On this machine are free: {free}. If all of that is "
        "enough, it is the disk of an executor",
    )


def _of_code(text: str) -> errors.FunctionFails | None:
    found = _OF_CODE.search(text) if any(mark in text for mark in _OF_WORKER) else None
    frames = re.findall(r'File "([^"]+)"', text[: found.start()]) if found else []
    if not found or (frames and frames[-1].startswith(errors.OURS)):  # an error in our own code is not the function's
        return None
    return failures.fails(errors.origin_in_text(text[: found.start()]), f"{found[1]}: {found[2]}")


def _damaged(text: str) -> errors.Refused | None:
    # Spark names the file, and not what to do; the incarnation is in its path.
    place = _CHECKPOINT.search(text)
    if not any(mark in text for mark in _DAMAGED) or not (place or _DAMAGED[0] in text):
        return None
    query = f"{place[1]}/{place[2]}" if place else "PIPELINE/QUERY"
    return errors.Refused(
        f"the checkpoint of {query} is damaged: {text.strip().splitlines()[0][:300]}",
        data="what is committed stays; the batch that found the damage has written nothing",
        hint="restore the checkpoint from a copy that is as old as the commit log, "
        f"or start a new incarnation: onlyonce reset {query}",
    )


def _file_missing(text: str) -> errors.Retryable | None:
    # Python's words for a file. A newer driver may have removed it, so the same command comes before a reset.
    place = _CHECKPOINT.search(text) if "No such file or directory" in text else None
    if place is None:
        return None
    query = f"{place[1]}/{place[2]}"
    return errors.Retryable(
        f"a file of the checkpoint of {query} is missing: {text.strip().splitlines()[0][:300]}",
        data="what is committed stays",
        hint="run the same command again. If the file stays missing, restore the checkpoint from a copy that is as old "
        f"as the commit log, or start a new incarnation: onlyonce reset {query}",
    )


# Recognizes that Spark's JVM has ended under a driver, and why. Python only sees a connection that was refused.
#
# With a local master the driver's JVM does the work of the tasks. If a task finds no memory the JVM ends, with an exit
# code of its own. Only the process that has started the JVM can get that code. Under spark-submit Python is the child,
# and sees only that the JVM does not answer. If the system has killed the JVM, the reason is unknown.


PATIENCE_SECONDS = 10.0
"""How long a JVM that no longer answers may take to end, and a living one to answer."""


def jvm_lost(error: BaseException) -> Retryable | None:
    """Return our error if this driver's JVM is gone; None if it lives, or if the error is already ours."""
    if "pyspark" not in sys.modules or isinstance(error, OnlyonceError):
        return None
    from pyspark import SparkContext  # most commands don't load it

    gateway = SparkContext._gateway
    if gateway is None or not _refuses(gateway):
        return None
    process = getattr(gateway, "proc", None)
    return told(_exit_code(process) if process else None)


def told(code: int | None) -> Retryable:
    """Return the error of a JVM that ended with this exit code (None: unknown). Pure."""
    if code in errors.WITHOUT_MEMORY:
        return Retryable(NO_MEMORY, data=NOTHING_HALF_DONE, hint=MORE_MEMORY)
    how = "" if code is None else f" by signal {-code}" if code < 0 else f" with exit code {code}"
    return Retryable(
        f"Spark's JVM ended under this driver{how}",
        data=NOTHING_HALF_DONE,
        hint="mostly it is memory: the system ends a process when it is short of it (it says so in its own log), "
        f"and Spark's JVM ends itself. {MORE_MEMORY}",
    )


def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
    with suppress(subprocess.TimeoutExpired):
        return process.wait(PATIENCE_SECONDS)
    return None


def _refuses(gateway: Any) -> bool:
    place = getattr(gateway, "java_parameters", None) or gateway.gateway_parameters
    try:
        socket.create_connection((place.address, place.port), PATIENCE_SECONDS).close()
    except OSError:
        return True
    return False


# The end of an application that spark-submit runs: its report in the log, or the three lines of an error and its exit
# code.


log = structlog.get_logger()


def ended_with(error: BaseException) -> OnlyonceError:
    """Return an error as one of ours. Spark's traceback is kept in a file too, which the three lines name."""
    return unexpected.told(jvm_lost(error) or translate(error))


def run_application(main: Callable[[list[str]], Report]) -> None:
    """Run an application with this process's arguments, and exit with its code if it fails."""
    from onlyonce.database import statements  # the command line imports this module, and no database

    try:
        statements.check_home()
        found = main(sys.argv[1:])
    except SystemExit as end:
        sys.exit(unexpected.exit_code(end.code))  # type: ignore[arg-type]
    except Exception as raised:
        error = ended_with(raised)
        log.error("failed", kind=type(error).__name__, what=error.what, data=error.data, next=error.hint)
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    logs.tell(found)
