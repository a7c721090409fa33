"""Report errors of a user's function and of an object store as `OnlyonceError`, in three lines. Pure.

An error of a function names its line, the missing column, and the column with the most similar name. An error of a
store is recognised for every client: obstore, delta-rs, Arrow or Hadoop.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable, Sequence
from types import ModuleType

from onlyonce.core import errors
from onlyonce.core.errors import FunctionFails, OnlyonceError, Refused, Retryable
from onlyonce.core.near_names import did_you_mean, near

_UNRESOLVED = re.compile(
    r"\[(?:UNRESOLVED_COLUMN|FIELD_NOT_FOUND|UNRESOLVED_USING_COLUMN_FOR_JOIN)[\w.]*\]"
    r"[^`]*`((?:[^`]|``)+(?:`\.`[^`]+)*)`"
)
_PROPOSED = re.compile(r"Did you mean one of the following\? \[(.*?)\]")
MOST_PROPOSED = 5
"""How many of the columns Spark names at most."""
_ATTRIBUTE = re.compile(r"(?:has no attribute|Attribute|attribute) [`'\"](\w+)[`'\"]")
_MESSAGE = re.compile(r"\[[A-Z][A-Z0-9_.]+\] (.+?)\.? (?:Use `try|If necessary|Correct the value|SQLSTATE)", re.DOTALL)
"""Spark's message in an error: what is between the error's class in brackets and its advice or SQLSTATE."""
_UNREPEATABLE = re.compile(
    r"\[(?:AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION|INVALID_NON_DETERMINISTIC_EXPRESSIONS)\]"
    r"[^\"]*\"(.+?)\"[^\"]*SQLSTATE"
)
"""Spark's refusal of an expression that differs at each run, with the expression."""
_UNGROUPED = re.compile(r'\[MISSING_AGGREGATION\] The non-aggregating expression "([^"]+)"')
_SEED = re.compile(r"\(-?\d{12,}\)")
"""The seed that Spark chose for `rand()`."""
_OF_DATA = re.compile(r"SQLSTATE: 22\w{3}")
"""SQLSTATE class 22 of the SQL standard: a value that an expression can't take."""
_TOO_FEW = re.compile(
    r"(?P<name>\w+)\(\) takes (?P<takes>\d+) positional arguments? but \d+ w(as|ere) given|unexpected keyword argument"
)
"""Python's error for a function that takes fewer arguments than it gets."""
_ASKS_FOR_ROWS = "Queries with streaming sources must be executed with writeStream.start"
"""Spark's error for an action, such as `collect()`, on the records of a stream."""
_ACTION = re.compile(r"\.(collect|count|show|toPandas|toArrow|toLocalIterator|take|first|head|tail|foreach|isEmpty)\(")
WAITS = "nothing of it was written; its records stay in the table `events` until the function works"
"""The meaning of such an error for the data of a run; in a check, nothing was read."""
FIX = "fix the function; a retry gives the same error"


def error_of_code(whose: str, error: BaseException, columns: Iterable[str], at: str | None = None) -> Refused:
    """Return the refusal of a function that fails while it builds its plan.

    whose    names the function in the error
    columns  the columns that the function gets
    at       the file and line where the function begins, for an error that names none
    """
    place, text = errors.origin_in_python(error) or at, str(error)
    where = f"{place}: " if place else ""
    data = WAITS
    if unrepeatable := _UNREPEATABLE.search(text):
        return Refused(
            f"{where}{whose} uses {_SEED.sub('()', unrepeatable[1])}, whose value differs at each run",
            data="nothing was written; a batch that is run again after a crash would write different rows",
            hint="use a value of the record, such as a hash of its id. Or make a column of the random value first "
            "(withColumn): the output's rows are then stored before they are written (stable_input)",
        )
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        return Refused(f"{where}{whose} fails: {text}", data=data, hint=f"{_similar(error)}{FIX}")
    if _ASKS_FOR_ROWS in text:
        return Refused(
            f"{where}{whose} {_action(place)}",
            data=data,
            hint="a function returns a DataFrame that describes its rows, and does not read them: leave out collect(), "
            "count(), show(), toPandas() and writes. A number of rows is an aggregate: groupBy(…).agg(F.count(…))",
        )
    if ungrouped := _UNGROUPED.search(text):
        column = ungrouped[1].strip("`")
        where = f"{errors.line_of_statement(place, column)}: " if place else ""
        return Refused(
            f"{where}{whose} has {column!r} among its aggregates, which is neither a key of the groupBy nor aggregated",
            data=data,
            hint=f"add it to the keys: groupBy(…, {column!r}); or aggregate it, such as F.max({column!r})",
        )
    columns = list(columns)
    missing, known = missing_column(text, columns)
    if missing is None:
        told = (text.strip().splitlines() or [""])[0][:500]
        return Refused(
            f"{where}{whose} fails: {type(error).__name__}: {told}", data=data, hint=f"{_similar(error)}{FIX}"
        )
    where = f"{errors.line_of_statement(place, missing)}: " if place else ""
    what = f"{where}{whose} asks for the column {missing!r}, which "
    more = ", …" if len(known) == MOST_PROPOSED < len(columns) else ""
    if missing in columns and missing not in known:
        if place and (renamed := errors.renamed_above(place, missing)):
            line, name = renamed
            return Refused(f"{what}line {line} renames to {name!r}", data=data, hint=f"write {name!r} in its place")
        return Refused(
            f"{what}an earlier step of the function has left out; there are: {', '.join(known)}{more}",
            data=data,
            hint=f"name {missing} in that step, too (select, groupBy)",
        )
    hint = f"{did_you_mean(near(missing, known))}choose one of: {', '.join(known)}{more}"
    return Refused(f"{what}does not exist", data=data, hint=hint)


def _action(place: str | None) -> str:
    """Return what a function does at a line that reads its rows: the call, if it is there."""
    found = _ACTION.search(errors.text_at(place)) if place else None
    return f"calls {found[1]}(), which reads its rows" if found else "asks for its rows"


USUAL_IMPORTS = {
    "F": "from pyspark.sql import functions as F",
    "T": "from pyspark.sql import types as T",
    "Window": "from pyspark.sql import Window",
    "DataFrame": "from pyspark.sql import DataFrame",
    "col": "from pyspark.sql.functions import col",
    "lit": "from pyspark.sql.functions import lit",
    "pd": "import pandas as pd",
    "np": "import numpy as np",
    "timedelta": "from datetime import timedelta",
    "datetime": "from datetime import datetime",
}
"""The import of each name that functions of Spark usually have."""


def _similar(error: BaseException) -> str:
    """Return the beginning of a hint that proposes a name for one that Python does not know; else nothing."""
    if isinstance(error, AttributeError) and error.obj is not None:
        return did_you_mean(near(str(error.name), dir(error.obj)))
    if isinstance(error, NameError) and error.name in USUAL_IMPORTS:
        return f"add the import: {USUAL_IMPORTS[error.name]}. Or "
    if isinstance(error, NameError) and error.name:
        own = near(error.name, errors.names_at(error))
        return did_you_mean(own or near(error.name, dir(builtins)))
    if isinstance(error, TypeError) and (found := _TOO_FEW.search(str(error))):
        if found["takes"] == "0":
            return f"give it a parameter for the records: def {found['name']}(records). "
        return "give it a parameter for the records, and one for each lookup by its name: def name(records). Then "
    return ""


def missing_column(text: str, columns: list[str]) -> tuple[str | None, list[str]]:
    """Return the column that an error names, and the existing columns; (None, …) if it names no column."""
    if found := _UNRESOLVED.search(text):
        proposed = _PROPOSED.search(text)
        known = (
            [name.strip().strip("`").replace("`.`", ".") for name in proposed[1].split(", ")] if proposed else columns
        )
        return found[1].replace("`.`", "."), known
    found = _ATTRIBUTE.search(text)
    if found and near(found[1], columns):
        return found[1], columns
    return None, columns


def error_of_rows(text: str) -> FunctionFails | None:
    """Return the error of an expression on a row's values (a cast, a division), if Spark's text names its line."""
    place = errors.origin_in_text(text) if "== DataFrame ==" in text and _OF_DATA.search(text) else None
    if place is None:
        return None
    found = _MESSAGE.search(text)
    told = " ".join((found[1] if found else text.strip().splitlines()[0]).split())
    return fails(place, told)


UNNAMED = "a function of yours"


def fails(place: str | None, told: str) -> FunctionFails:
    """Return the error of a function that fails on its rows."""
    return FunctionFails(
        f"{f'{place}: ' if place else ''}{UNNAMED} fails on its rows: {told[:300]}",
        data="nothing of this batch was written; its records stay where they were read until the function works",
        hint=FIX,
    )


def fails_in(pipeline: str, output: str, functions: Sequence[str], error: FunctionFails) -> FunctionFails:
    """Return the error with the output's functions: one of them has failed on rows of the table `events`.

    An error that names its function already stays as it is.
    """
    if UNNAMED not in error.what:
        return error
    names = functions[0] if len(functions) == 1 else f"one of {', '.join(functions)}"
    return FunctionFails(
        error.what.replace(UNNAMED, f"output {output} of {pipeline}: {names}", 1),
        data="this batch is not committed; its records stay in the table `events` until the function works",
        hint="fix the function, or keep such records out by reject=; a retry before that gives the same error. Then: "
        f"onlyonce plan {pipeline} --yes (it starts the output again if that holds state of the old function), and the "
        "same command again",
    )


# Errors of an object store.


NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
NO_OBJECT = ("NoSuchKey", "BlobNotFound")
SHUT_OUT = (
    *NO_BUCKET,
    "XAdminUserNotFound",
    "InvalidAccessKeyId",
    "AccessDenied",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
)
"""Error codes of a missing bucket, an unknown key or a denied access, whatever their HTTP status."""
AWAY = (
    "SlowDown",
    "ServiceUnavailable",
    "InternalError",
    "Unable to execute HTTP request",
    "Acquire operation took longer than",
)
"""Messages of a store that is busy or unreachable after all retries of its client."""
_CLIENT_OF_HADOOP = "software.amazon.awssdk"
_CLIENTS = (
    _CLIENT_OF_HADOOP,
    "<Code>",
    "Generic S3 error",
    "Generic GCS error",
    "Generic MicrosoftAzure error",
    "AWS Error",
)
_CODE = re.compile(rf"\b({'|'.join(SHUT_OUT)})(?:Exception)?\b")
_AWAY = re.compile(rf"\b(?:{'|'.join(AWAY)})(?:Exception)?\b")
_DENIED = re.compile(r"\bStatus Code: (?:400|401|403)\b")
_BUCKET = re.compile(r"\bs3a?://([^/\s'`\"]+)")
_OBJECT = re.compile(r"\bs3a?://([^/\s'`\"]+/[^\s'`\"]+?):?(?=[\s'`\"])")


def store_refused(where: str, code: str | None) -> Refused:
    """Return the error of a store that denies access, or has no such bucket."""
    if code in NO_BUCKET:
        return Refused(
            f"the bucket of {where} does not exist",
            data="nothing was written that is not whole",
            hint="make the bucket, or correct its name, or what leads there (of S3 AWS_REGION and AWS_ENDPOINT_URL)",
        )
    return Refused(
        f"{where} does not let us in" + (f": {code}" if code else ""),
        data="nothing was written that is not whole",
        hint="look at the credentials, by the standard variables or the role of this machine, and at what they "
        "may do with the bucket: list, get, put and delete",
    )


def store_away(where: str, said: str) -> Retryable:
    """Return the error of a store that does not answer, or is busy."""
    return Retryable(
        f"{where} does not answer as a store does: {said[:200]}",
        data="nothing was written that is not whole",
        hint="run the same command again; if it stays so, look at what leads there (of S3 AWS_ENDPOINT_URL and "
        "AWS_REGION)",
    )


def store_failure_of_text(text: str) -> OnlyonceError | None:
    """Return the store's error that a message reports; None if the message is about something else."""
    if not any(mark in text for mark in _CLIENTS):
        return None
    bucket = _BUCKET.search(text)
    where = f"s3://{bucket[1]}" if bucket else "the object store"
    if code := _CODE.search(text):
        return store_refused(where, code[1])
    return store_away(where, text.strip().splitlines()[0]) if _AWAY.search(text) else None


def denied_without_code(text: str) -> str | None:
    """Return the URL for which a store has denied a HEAD of Hadoop's client: its answer has no body, and so no code."""
    found = _OBJECT.search(text)
    return f"s3://{found[1]}" if found and _CLIENT_OF_HADOOP in text and _DENIED.search(text) else None
