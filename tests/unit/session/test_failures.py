"""What Spark hands over becomes an error of ours that says who acts now."""

from __future__ import annotations

import tempfile

import pytest

from onlyonce import settings
from onlyonce.core.errors import InvariantBroken, OnlyonceError, Refused, Retryable
from onlyonce.engine import failures
from onlyonce.engine.failures import translate
from onlyonce.settings import ROOT

PLACE = "checkpointLocation=/home/x/data/shop/checkpoints/per_shop/1, tmpdir"
WRAPPED = "[STREAM_FAILED] Query [id = 1] terminated with exception: "
TEXTS = {
    "a second driver": ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log", Retryable, "same command again"),
    "a second driver, told by a failed query": (
        "Multiple streaming queries are concurrently using file:/home/x/data/shop/checkpoints/receive/1/offsets. " "SQLSTATE: XXKST",
        Retryable, "same command again"),
    "an input file that vanished": ("[PATH_NOT_FOUND] Path does not exist: file:/in/a.jsonl", Retryable, "invalid record"),
    "a full disk": ("java.io.IOException: No space left on device", Retryable, "free space"),
    "a heap that was too small": ("java.lang.OutOfMemoryError: Java heap space", Retryable, "ONLYONCE_DRIVER_MEMORY"),
    "a heap that was too small for a plan": (
        "terminated with exception: Java heap space SQLSTATE: XXKST", Retryable, "ONLYONCE_DRIVER_MEMORY"),
    "a worker that was killed": (
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider", Retryable, "memory"),
    "an application that its cluster ended": (
        "org.apache.spark.SparkException: Job 12 cancelled because SparkContext was shut down", Retryable,
        "maxNumFailures"),
    "an application that its cluster ended before the next job": (
        "java.lang.IllegalStateException: SparkContext has been shutdown", Retryable, "maxNumFailures"),
    "a context that Spark ended, whose session is gone": (
        'java.lang.NullPointerException: Cannot invoke "org.apache.spark.sql.classic.SparkSession.sparkContext()" because '
        'the return value of "org.apache.spark.sql.execution.SparkPlan.session()" is null', Retryable, "maxNumFailures"),
    "a state folder that is gone": (
        "[STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY] Cannot restart\n" + PLACE, Refused,
        "onlyonce reset shop/per_shop"),
    "a state that can't be read": (
        "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error\n" + PLACE, Refused, "onlyonce reset shop/per_shop"),
    "an offset that was cut short": (
        "java.lang.IllegalStateException: Incomplete log file\n" + PLACE, Refused, "onlyonce reset shop/per_shop"),
    "a table that was deleted and made again": (
        "[DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE] The streaming query was reading from an unexpected Delta table",
        InvariantBroken, "onlyonce doctor"),
    "a file of a checkpoint that vanished": (
        "[Errno 2] No such file or directory: '/home/x/data/shop/checkpoints/per_shop/1/offsets/2'", Retryable,
        "onlyonce reset shop/per_shop"),
    "a JVM that ends as it starts": (
        "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.", Retryable, "JDK_JAVA_OPTIONS"),
    "a jar of S3 that is missing": (
        "[CANNOT_LOAD_CHECKPOINT_FILE_MANAGER.UNCATEGORIZED] Error loading streaming checkpoint file manager for " "path=s3a://b/lake/data/shop", Refused,
        "make .venv/.made/s3"),
    "our own error of a worker": (
        "onlyonce.core.errors.InvariantBroken: two rows\n  data: none written\n  next: look there\n  at x", InvariantBroken,
        "look there"),
}  # fmt: skip


@pytest.mark.parametrize("told", TEXTS.values(), ids=TEXTS.keys())
def test_what_spark_says_becomes_one_of_our_errors(told: tuple[str, type[OnlyonceError], str]) -> None:
    """Of the right class, with what to do next, however deep it lies in Spark's text."""
    text, kind, hint = told

    found = translate(RuntimeError(WRAPPED + text))

    assert type(found) is kind
    assert hint in found.hint
    assert found.data


@pytest.mark.parametrize("text", [
    "[PATH_NOT_FOUND] Path does not exist: file:/my/rates.parquet. SQLSTATE: 42K03",
    "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:/my/rates.parquet. File does not exist.",
])  # fmt: skip
def test_a_missing_path_is_named_and_may_be_a_functions_own(text: str) -> None:
    """It is an input file, or a file that a function of the user reads."""
    found = translate(RuntimeError(text))

    assert isinstance(found, Retryable)
    assert found.what == "a file or folder was missing while it was read: file:/my/rates.parquet"
    assert "if a function of yours reads it" in found.hint


@pytest.mark.parametrize(("text", "where"), [
    ("java.io.IOException: No space left on device", ""), ("OSError: [Errno 28] No space left on device: '/data/shop/a=1/b.parquet'", " where /data/shop/a=1/b.parquet is"),
    ("java.io.FileNotFoundException: file:/data/x.crc (No space left on device)", " where /data/x.crc is"),
])  # fmt: skip
def test_a_full_disk_is_told_with_what_is_free(text: str, where: str) -> None:
    """By the file that could not be written, if Spark names it, and by each folder that a run writes to."""
    found = translate(RuntimeError(text))
    assert isinstance(found, Retryable)
    assert found.what == f"a disk is full{where}"
    assert f" MB in {tempfile.gettempdir()}" in found.hint
    assert not (home := settings.home()).is_dir() or f" MB in {home}" in found.hint


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (3, "memory was too small"),
        (52, "memory was too small"),
        (-9, "by signal 9"),
        (1, "exit code 1"),
        (None, "ended"),
    ],
)
def test_a_jvm_that_is_gone_is_told_with_the_setting_for_its_memory(code: int | None, said: str) -> None:
    """Also where nobody knows how it ended."""
    found = failures.told(code)

    assert said in found.what
    assert found.data
    assert "ONLYONCE_DRIVER_MEMORY" in found.hint


def test_what_is_not_known_stays_as_it_is() -> None:
    """An error of the user's function is not dressed up as ours, and its traceback stays."""
    error = RuntimeError("ZeroDivisionError: division by zero")

    assert translate(error) is error


def test_a_users_error_on_a_row_is_refused_since_a_retry_cannot_mend_it() -> None:
    """By the last line of the traceback; what may pass, such as a connection that broke, stays what it is."""
    head = (
        'org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n  File "x.py", line 3, in f\n'
    )
    found = translate(Exception(head + "KeyError: 'cents'\n"))

    assert isinstance(found, Refused)
    assert "KeyError: 'cents'" in found.what
    passing = Exception(head + "ConnectionResetError: [Errno 104]\n")
    assert translate(passing) is passing
    ours = f'{head}  File "{ROOT}/onlyonce/receive/batch_files.py", line 3, in f\nKeyError: 1\n'
    assert not isinstance(translate(Exception(ours)), Refused)
