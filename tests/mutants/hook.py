"""Break one file of the product as it is imported: its text is changed, nothing on disk is. libcst is loaded only then.

Installed by `site/sitecustomize.py` in each Python process that inherits ONLYONCE_TEST_MUTANT: pytest itself, drivers
that it starts, Spark's Python workers. A file of named statements is changed where `statements.queries` reads it, and a
file of another kind where it is read as text: views and tables by the product, a manifest by a test.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tests.mutants import generated
from tests.mutants.mutant import Mutant
from tests.mutants.mutants import MUTANTS, changed

ROOT = Path(__file__).resolve().parents[2]
READS_SQL = '(FOLDER / "statements" / f"{name}.sql").read_text()'


class _Loader(SourceFileLoader):
    mutant: Mutant

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        text = Path(path).read_text()
        if self.mutant.is_statements:
            assert text.count(READS_SQL) == 1, "statements.queries reads its files in another way now"
            text = text.replace(READS_SQL, f"__import__('tests.mutants.hook').mutants.hook.sql(name, {READS_SQL})")
        else:
            text = changed(self.mutant, text)
        return compile(text, path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._module = (
            "onlyonce.database.statements"
            if mutant.is_statements
            else mutant.file.removesuffix(".py").replace("/", ".")
        )

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module that is to be broken, with a loader that does it."""
        if fullname != self._module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        loader = _Loader(fullname, spec.origin)
        loader.mutant = self._mutant
        spec.loader = loader
        return spec


def mutant_of(name: str) -> Mutant:
    """Return a mutant by its name, one that was written or one that is generated."""
    return generated.find(name) if name.startswith(generated.PREFIX) else MUTANTS[name]


def install(name: str) -> None:
    """Break the product in this process."""
    mutant = mutant_of(name)
    if mutant.is_python or mutant.is_statements:
        sys.meta_path.insert(0, _Finder(mutant))
    else:
        _break_text(mutant)


def _break_text(mutant: Mutant) -> None:
    """Change a file where this process reads it as text."""
    read, broken = Path.read_text, ROOT / mutant.file

    def read_text(self: Path, *arguments: Any, **named: Any) -> str:
        text = read(self, *arguments, **named)
        return changed(mutant, text) if self == broken else text

    Path.read_text = read_text  # type: ignore[method-assign]


def sql(name: str, text: str) -> str:
    """The text of an SQL file under mutation."""
    mutant = mutant_of(os.environ["ONLYONCE_TEST_MUTANT"])
    return changed(mutant, text) if mutant.file == f"sql/statements/{name}.sql" else text
