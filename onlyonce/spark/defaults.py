"""Reads the team's own `spark-defaults.conf`, from where spark-submit reads it. Our options are added to it.

Who calls it: the Airflow operators and `onlyonce.session.session`. Errors: OSError for a file that can't be read.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from onlyonce.environment import variable

_LOGGING = ("log4j2.properties", "log4j2.xml", "log4j2.yaml", "log4j2.json")
_PAIR = re.compile(r"\s*([^\s=:]+)\s*[=:\s]\s*(.*?)\s*$")


def spark_defaults(properties_file: str | None = None) -> dict[str, str]:
    """The settings of a named file of properties, else those of spark-submit's own; none where there is no such
    file."""
    if properties_file:
        return parsed(Path(properties_file).read_text())
    found = next((path for folder in _folders() if (path := folder / "spark-defaults.conf").is_file()), None)
    return parsed(found.read_text()) if found else {}


def has_logging() -> bool:
    """Whether the team has said what Spark logs, by a file beside its settings."""
    return any((folder / name).is_file() for folder in _folders() for name in _LOGGING)


def parsed(text: str) -> dict[str, str]:
    """Java's properties, as far as Spark's are written: a key, then white space, `=` or `:`, then the value. Pure."""
    lines = (line for line in text.splitlines() if line.strip() and line.lstrip()[0] not in "#!")
    return {pair[1]: pair[2] for line in lines if (pair := _PAIR.match(line)) and pair[1].startswith("spark.")}


def _folders() -> Iterator[Path]:
    """Where spark-submit looks, in its order; one that is named is the only one."""
    if named := variable("SPARK_CONF_DIR"):
        yield Path(named)
        return
    if home := variable("SPARK_HOME"):
        yield Path(home) / "conf"
        return
    if binary := shutil.which("spark-submit"):
        yield Path(binary).resolve().parent.parent / "conf"
    if (spec := importlib.util.find_spec("pyspark")) and spec.origin:
        yield Path(spec.origin).parent / "conf"
