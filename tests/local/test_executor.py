"""What an executor needs: the first block of the dependencies, and the Spark that it is part of."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Where the functions live that drivers send to executors.
SENT = (
    "onlyonce.catalog.look_up", "onlyonce.engine.worker", "onlyonce.receive.at_least_once",
    "onlyonce.receive.batch_files", "onlyonce.receive.events", "onlyonce.receive.exchange", "onlyonce.receive.unit",
    "onlyonce.sinks.files.sink_files", "onlyonce.sinks.outbox.sink_outbox",
    "onlyonce.sinks.postgres.postgres_unit", "onlyonce.sinks.postgres.sink_postgres", "onlyonce.sources.avro_files",
    "onlyonce.sources.custom", "onlyonce.sources.growing", "onlyonce.sources.line_reader",
    "onlyonce.sources.record_id", "onlyonce.sources.typed_files", "onlyonce.sources.values.fast_json",
)  # fmt: skip

ONLY_THESE = """
import importlib, importlib.abc, sys

class Others(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in not_there:
            raise ModuleNotFoundError(f"an executor has no {name}", name=name)

sys.meta_path.insert(0, Others())
for name in sent:
    importlib.import_module(name)
from onlyonce import settings
print(settings.database_patience())
"""


def test_an_executor_imports_what_it_runs_with_the_small_packages() -> None:
    """No pydantic, no typer, no Airflow; and the one setting that it asks for has its default."""
    code = f"not_there = {sorted(_not_there())!r}\nsent = {SENT!r}\n{ONLY_THESE}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, "60.0\n"), done.stderr


def _needed() -> set[str]:
    """The distributions of the first block, with what they need themselves."""
    text = (ROOT / "pyproject.toml").read_text()
    first = text[text.index("dependencies = [") :].partition("\n\n")[0]
    waiting, found = set(re.findall(r'^    "([\w-]+)', first, re.M)), set()
    while waiting:
        name = waiting.pop()
        found.add(name)
        for asked in metadata.requires(name) or []:
            if "extra ==" not in asked and (on := re.match(r"[\w-]+", asked)) and on[0] not in found:
                waiting |= {on[0]} if _is_there(on[0]) else set()
    return found


def _is_there(name: str) -> bool:
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


def _not_there() -> set[str]:
    """The modules of this environment that an executor's has not."""
    needed = {_plain(name) for name in _needed()} | {"onlyonce-pipelines", "pyspark", "pyspark-client", "py4j"}
    return {top for top, by in metadata.packages_distributions().items() if not {_plain(one) for one in by} & needed}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
