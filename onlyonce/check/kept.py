"""Keeps what has passed a check, so that an unchanged declaration with unchanged functions is checked only once.

Each pipeline has one file, <home>/checks/<pipeline>.json. Its key covers all that a check looks at: the declaration,
the text of the user's modules that the functions come from or are beside, and the versions of Spark and of this
package. Only what has passed is kept.

Who calls it: `onlyonce.check.look`. Not promised: a new check when a file or variable changes that a function reads;
then the run itself fails. No Spark.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from onlyonce import settings
from onlyonce.declare import identity, loading
from onlyonce.declare.pipeline import Pipeline
from onlyonce.failpoints import passing
from onlyonce.model import stored_names
from onlyonce.settings import home_folders

Schemas = dict[str, dict[str, Any]]
"""The columns that each output's function gives, as Spark writes a schema in JSON."""


def key(pipeline: Pipeline) -> str:
    """A hash of all that decides what a check finds.

    Imports the functions. Raises Refused for one that is not there.
    """
    declared = [identity.mode(pipeline), *(loading.fingerprint(pipeline, query) for query in pipeline.queries())]
    parts = [*declared, *(metadata.version(name) for name in ("onlyonce-pipelines", "pyspark")), sys.version]
    found = hashlib.sha256("\n".join(parts).encode())
    for file in _modules(pipeline):
        found.update(file.read_bytes())
    return found.hexdigest()


def schemas(pipeline: Pipeline, wanted: str) -> Schemas | None:
    """What was found under that key; None: nothing was."""
    with suppress(FileNotFoundError, ValueError):
        there = json.loads(_file(pipeline).read_text())
        if there.get("key") == wanted:
            return dict(there["schemas"])
    return None


def keep(pipeline: Pipeline, under: str, found: Schemas) -> None:
    """Keep what was found. Where that can't be written the next run checks anew."""
    file = _file(pipeline)
    with suppress(OSError):
        home_folders.inside(settings.home(), stored_names.CHECKS_FOLDER)
        for left in file.parent.glob(
            f".{file.name}.*"
        ):  # by a run that was killed; one that is at work keeps nothing then
            left.unlink(missing_ok=True)
        partial = file.with_name(f".{file.name}.{os.getpid()}")
        partial.write_text(json.dumps({"key": under, "schemas": found}))
        passing("check-before-keep")
        partial.replace(file)
        passing("check-after-keep")


def _file(pipeline: Pipeline) -> Path:
    return settings.home() / stored_names.CHECKS_FOLDER / f"{pipeline.name}.json"


def _modules(pipeline: Pipeline) -> list[Path]:
    """The files of the functions' modules, and of all modules that were imported from beside them."""
    own = {Path(file) for output in loading.with_function(pipeline.outputs) for file in loading.source_files(output)}
    folders = {file.parent for file in own if file.parent.name not in ("site-packages", "dist-packages")}
    beside = {
        Path(file)
        for module in list(sys.modules.values())
        if (file := getattr(module, "__file__", None)) and any(Path(file).is_relative_to(folder) for folder in folders)
    }
    return sorted(file for file in own | beside if file.suffix == ".py" and file.is_file())
