"""One mutant as data. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable

from tests.mutants.operators import Operator


class Mutant:
    """A build of the product with one thing broken: `operators` change one file, and then each of `tests` must fail."""

    def __init__(
        self, name: str, broken: str, file: str, *operators: Operator, tests: Iterable[str], spark: bool = False
    ) -> None:
        """Name the mutant. `spark` says that its tests start a JVM."""
        self.name = name
        self.broken = broken
        self.file = file
        self.operators = operators
        self.tests = tuple(tests)
        self.spark = spark

    @property
    def is_statements(self) -> bool:
        """Whether the file has named statements, which the product reads by their names; views and tables have none."""
        return self.file.startswith("sql/statements/")

    @property
    def is_python(self) -> bool:
        """Whether the file is imported. One that is neither this nor of statements is read as text."""
        return self.file.endswith(".py")
