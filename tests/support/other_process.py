"""Work in a process of its own, which shares nothing with the test session: a fork of a server that has the heavy
modules imported.

To import them costs four seconds of a processor, and some tests need such a process eight times. The server opens no
connection and no file, so its children share none. It ends with the test session.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from subprocess import CalledProcessError
from typing import Any, TypeVar

T = TypeVar("T")
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload([
    "pytest", "pyarrow.dataset", "pyarrow.parquet", "psycopg2.extras", "sqlalchemy.dialects.postgresql.psycopg2", "deltalake",
    "onlyonce.operate.gc", "onlyonce.operate.drop", "onlyonce.receive.loop",
])  # fmt: skip


def done_apart(work: Callable[..., T], *given: object) -> T:
    """Return what a function of a module returns in a process of its own.

    Raise CalledProcessError if it fails, or is killed.
    """
    answers, code = _run(work, given, {})
    if code:
        raise CalledProcessError(code, work.__name__)
    answer: T = answers[0]
    return answer


def script_apart(script: str, **environment: str) -> int:
    """Run a script in a process of its own with more variables. Return its exit code, negative for a signal."""
    return _run(_script, (script,), environment)[1]


def _run(work: Callable[..., Any], given: tuple[object, ...], more: dict[str, str]) -> tuple[list[Any], int]:
    ours, theirs = _SERVER.Pipe(duplex=False)
    process = _SERVER.Process(target=_child, args=(theirs, {**os.environ, **more}, work, given))
    process.start()
    theirs.close()
    answers = []
    with suppress(EOFError):  # it has failed, or was killed
        answers.append(ours.recv())
    process.join()
    code = process.exitcode
    assert code is not None
    process.close()
    return answers, code


def _child(
    answers: Connection, environment: dict[str, str], work: Callable[..., Any], given: tuple[object, ...]
) -> None:
    from onlyonce import failpoints

    os.environ.clear()
    os.environ.update(environment)
    importlib.reload(failpoints)  # it reads the environment when it is imported
    answers.send(work(*given))


def _script(script: str) -> None:
    exec(script, {"__name__": "__main__"})
