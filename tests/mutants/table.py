"""Write README.md, the table of mutants, and print the sum of verdicts: `python -m tests.mutants.table`.

A test compares the table with the data. The site's page on proofs has the sum (docs/generate/hooks.py).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.mutants import results
from tests.mutants.mutants import MUTANTS

HEAD = """# Mutants

A mutant is a build with one thing broken, and the tests that must fail on it. The product is broken as it is imported
(`hook.py`); nothing changes on disk. To add one:

1. Add a `Mutant` to the file of its package in `cases/`: a name, what is broken, the file, operators, the tests.
2. An operator (`operators.py`) names a function and code: `Never("Writer.write", "len(rows) > bound")`. SQL: `ReplaceSql("claim", "FOR SHARE", "")`.
3. Layout does not count. The code must occur exactly once in the function, else `make check` fails: take the code around it along.
4. Run `.venv/bin/python -m tests.mutants.run NAME` after a commit. It must print `caught`. The verdict goes to `results.json`: commit it.
5. Run `.venv/bin/python -m tests.mutants.table`, which writes the table below.

`make mutants` runs every mutant that has no verdict yet or whose file changed since its verdict, the oldest verdict first,
and resumes where it stopped (`make mutants MUTANTS="--minutes 30 --no-spark"`). CI runs the changed ones for five minutes.

`python -m tests.mutants.generated` makes mutants of the commit log, of receive's unit and of the sinks' units: each condition negated, each
comparison changed, each statement left out. Their verdicts go to `generated.json`. `python -m tests.mutants.rename OLD NEW` renames an identifier
in code, pages and mutants.

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


def total() -> str:
    """Return how many mutants have which verdict, as a sentence."""
    found = results.load()
    verdicts = Counter(found[name]["verdict"] if name in found else "" for name in MUTANTS)
    return (
        f"Of {len(MUTANTS)} mutants {verdicts['caught']} are caught, {verdicts['equivalent']} are argued to be "
        "equivalent, "
        f"{verdicts['alive']} are alive, and {verdicts['']} have no recorded run."
    )


def _short(test: str) -> str:
    path, _, name = test.partition("::")
    return f"{path.removeprefix('tests/')}: {name}" if name else path.removeprefix("tests/")


if __name__ == "__main__":
    Path(__file__).with_name("README.md").write_text(text())
    print(total())
