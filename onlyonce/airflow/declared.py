"""Find the declarations of DAGs, tasks and drivers: a DAG file names them, or else ONLYONCE_PIPELINES."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from onlyonce import environment, settings
from onlyonce.api import load
from onlyonce.api.pipeline import Pipeline
from onlyonce.core.errors import Refused


@dataclass(frozen=True)
class Declared:
    """Names of modules (`my_project.pipelines`) and whole paths of files; none: the setting ONLYONCE_PIPELINES."""

    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, named: str | Path | Sequence[str | Path] | None) -> Declared:
        """Return the declarations that an operator or a DAG file names.

        Raise Refused for a relative path: a worker's folder is another.
        """
        listed = [named] if isinstance(named, str | Path) else list(named or ())
        for one in listed:
            if _is_file(one) and not Path(one).is_absolute():
                raise Refused(
                    f"{one} is a relative path", hint='name the module, or Path(__file__).parent / "pipelines.py"'
                )
        return cls(tuple(map(str, listed)))

    def load(self) -> list[Pipeline]:
        """Return the pipelines.

        Raise Refused if a DAG file names a wrong file. Files of the setting that can't be loaded are left out, so that
        one does not take the others with it: `dags/check_declarations.py` reports them.
        """
        if self.names:
            try:
                return list(load.load([Path(name) for name in self.names]).values())
            except Refused as error:  # Airflow would print its causes, with their tracebacks, before the three lines
                raise error.with_traceback(None) from None
        found: dict[str, Pipeline] = {}
        for path in settings.pipeline_files():
            with suppress(Refused):
                found = load.load([path]) | found
        return list(found.values())

    def one(self, pipeline: str) -> Pipeline:
        """Return the pipeline of that name. Raise Refused if there is none."""
        return load.one(pipeline, [Path(name) for name in self.names] or None)

    def variables(self) -> dict[str, str]:
        """Return the variables that name the declarations for a job of this process, or for a driver."""
        return {"ONLYONCE_PIPELINES": os.pathsep.join(self.names)} if self.names else {}

    def import_path(self) -> dict[str, str]:
        """Return PYTHONPATH for a driver on this machine: the folders from which this process imports the named
        modules."""
        roots = [root for name in self.names if not _is_file(name) and (root := _root(name))]
        given = environment.variable("PYTHONPATH")
        return {"PYTHONPATH": os.pathsep.join(dict.fromkeys([*roots, *filter(None, [given])]))} if roots else {}


def _is_file(name: str | Path) -> bool:
    return isinstance(name, Path) or name.endswith(".py") or os.sep in name


def _root(module: str) -> str | None:
    found = importlib.util.find_spec(module)
    if found is None or not found.origin:
        return None
    depth = module.count(".") + (1 if found.submodule_search_locations else 0)
    return str(Path(found.origin).parents[depth])
