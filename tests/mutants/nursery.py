"""A process that has everything imported but the product, and forks for each mutant: a run costs no start of Python.

`python -m tests.mutants.nursery`: one JSON request a line on stdin, {"mutant": …, "arguments": […], "told": path}; the
answer is pytest's exit code. A child breaks the product before it is imported, then runs pytest.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

import psutil

from tests.mutants import hook

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(__file__).with_name("site")
HEAVY = (
    "pytest", "_pytest.junitxml", "numpy", "pandas", "pyarrow.csv", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "pyspark.sql",
    "pyspark.sql.functions", "pyspark.sql.pandas.types", "deltalake", "psycopg2.extras", "sqlalchemy.dialects.postgresql.psycopg2",
    "sqlalchemy.dialects.postgresql.ranges", "hypothesis.strategies", "_hypothesis_pytestplugin", "psutil", "structlog",
    "libcst", "tenacity", "rich.table", "rich.console", "typer", "xxhash",
)  # fmt: skip
"""What tests and product import and share; nothing of the product itself."""


class Nursery:
    """The parent's side."""

    def __init__(self) -> None:
        environment = os.environ | {"PYTHONPATH": f"{SITE}{os.pathsep}{ROOT}", "ONLYONCE_TEST_MUTANT": ""}
        environment.pop("ONLYONCE_FAULT_RESULTS", None)  # what a broken build does is no result
        command = [sys.executable, "-m", "tests.mutants.nursery"]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin
        if kind is not None:  # a test that runs would not end by itself, nor servers and drivers that it has started
            from onlyonce.local import processes  # not above: what runs the mutants has nothing of the product

            nursery = psutil.Process(self._process.pid)
            processes.stop([nursery, *nursery.children(recursive=True)], patience=0)
        self._process.stdin.close()
        self._process.wait()

    def pytest(self, mutant: str, arguments: list[str], told: Path, **environment: str) -> int:
        """Run pytest on a mutant ('' is the whole build); gives its exit code, or the signal as a negative number."""
        assert self._process.stdin
        assert self._process.stdout
        request = {"mutant": mutant, "arguments": arguments, "told": str(told), "environment": environment}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, "the nursery is gone"
        return int(answer)


def _serve() -> None:
    for name in HEAVY:
        importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _run(**json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(mutant: str, arguments: list[str], told: str, environment: dict[str, str]) -> None:
    output = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(environment)
    if mutant:
        os.environ["ONLYONCE_TEST_MUTANT"] = mutant  # for the processes that the tests start
        hook.install(mutant)
    import pytest

    # The package brings a plugin, so pytest would load all of it by a finder of its own, which comes before that of the
    # mutant.
    code = int(pytest.main(["--assert=plain", *arguments]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve()
