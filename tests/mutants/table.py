"""The table of mutants: `python -m tests.mutants.table` writes README.md; a test holds it to the data."""

from __future__ import annotations

from pathlib import Path

from tests.mutants.mutants import MUTANTS

HEAD = """# Mutants

Deliberately broken builds. `test_mutants.py` changes the text of one file as it is imported (`hook.py`; nothing on
disk), runs the tests that are named here in a process of their own, and each of them must fail; without a mutant they
pass. `make test-faults` runs them all; by hand:

    .venv/bin/pytest tests/mutants -k naive-ids

This table is made from `mutants.py` by `python -m tests.mutants.table`.

| mutant | what is broken | where | caught by |
|---|---|---|---|
"""


def text() -> str:
    """The file."""
    rows = [
        f"| {m.name} | {m.broken} | `{m.file}` | {'<br>'.join(f'`{_short(test)}`' for test in m.tests)} |\n"
        for m in MUTANTS.values()
    ]
    return HEAD + "".join(rows)


def _short(test: str) -> str:
    path, _, name = test.partition("::")
    return f"{path.removeprefix('tests/')}: {name}" if name else path.removeprefix("tests/")


if __name__ == "__main__":
    Path(__file__).with_name("README.md").write_text(text())
