"""Generate mutants of the modules that decide what is committed, run them, and keep what no test has noticed.

`python -m tests.mutants.generated FILE … --minutes 30` runs those that `generated.json` has no verdict for. A generated
mutant is an operator on a named function, as one that was written: a negated condition, a changed comparison, a
statement left out. All tests of the module run until one fails. A mutant that is alive needs a test, or its argument in
`generated.json`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.mutants.mutant import Mutant
from tests.mutants.operators import Delete, Negate, NotFound, Operator, Replace

if TYPE_CHECKING:
    import libcst as cst

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_name("generated.json")
PREFIX = "generated:"
COMMITLOG, RECEIVE, SINKS = "tests/contract/commitlog", "tests/contract/receive", "tests/contract/sinks"
MODULES = {
    "onlyonce/commitlog/units.py": (COMMITLOG, f"{RECEIVE}/test_receive_unit.py", f"{SINKS}/test_postgres_unit.py"),
    "onlyonce/commitlog/batches.py": (COMMITLOG, f"{RECEIVE}/test_receive_unit.py"),
    "onlyonce/commitlog/incarnations.py": (COMMITLOG,),
    "onlyonce/receive/unit.py": (f"{RECEIVE}/test_receive_unit.py", f"{RECEIVE}/test_layouts.py"),
    "onlyonce/sinks/postgres/postgres_unit.py": (f"{SINKS}/test_postgres_unit.py", COMMITLOG),
    "onlyonce/sinks/files/sink_files.py": (f"{SINKS}/test_files.py",),
    "onlyonce/sinks/iceberg/sink_iceberg.py": (f"{SINKS}/test_iceberg_sink.py",),
    "onlyonce/sinks/outbox/deliver.py": (f"{SINKS}/test_deliver.py",),
}
"""The modules, and the tests of each: those without a JVM."""
SWAPS = {
    "==": "!=",
    "!=": "==",
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "in": "not in",
    "not in": "in",
    "is": "is not",
    "is not": "is",
}
NO_EFFECT = ("passing(", "log.", "self.log.", "query.log.", "assert ", '"""')
"""Statements that no result depends on: fail-points, log lines, docstrings, what mypy needs."""


@cache
def of(file: str) -> list[Mutant]:
    """Return the mutants of a module, in the order of its text. A piece of code that a function has twice has none."""
    names = {f"{PREFIX}{file}:{name}": operator for name, operator in names_of((ROOT / file).read_text()).items()}
    return [Mutant(name, "generated", file, operator, tests=MODULES[file]) for name, operator in names.items()]


def names_of(text: str) -> dict[str, Operator]:
    """Return the operators that break a text, each by its function and what it makes of the code."""
    import libcst as cst

    made: dict[str, Operator] = {}
    for scope, operator in _operators(cst.parse_module(text)):
        try:
            broken = operator.apply(text)
            compile(broken, scope, "exec")
        except (NotFound, SyntaxError):
            continue
        if broken != text:
            made.setdefault(f"{scope}: {_words(operator)}", operator)
    return made


def find(name: str) -> Mutant:
    """Return a generated mutant by its name."""
    file = name.removeprefix(PREFIX).split(":", 1)[0]
    return next(mutant for mutant in of(file) if mutant.name == name)


def _operators(module: cst.Module) -> Iterator[tuple[str, Operator]]:
    import libcst as cst

    for scope, function in _functions(module, ""):
        for node in _inside(function.body):
            if isinstance(node, cst.If | cst.While | cst.IfExp):
                yield scope, Negate(scope, module.code_for_node(node.test))
            elif isinstance(node, cst.Comparison) and len(node.comparisons) == 1:
                before = module.code_for_node(node)
                sign = module.code_for_node(node.comparisons[0].operator).strip()
                left = module.code_for_node(node.left)
                right = module.code_for_node(node.comparisons[0].comparator)
                if sign in SWAPS:
                    yield scope, Replace(scope, before, f"{left} {SWAPS[sign]} {right}")
            elif isinstance(node, cst.SimpleStatementLine):
                code = module.code_for_node(node.with_changes(leading_lines=[])).strip()
                if not code.startswith(NO_EFFECT):
                    yield scope, Delete(scope, code)


def _functions(node: Any, outer: str) -> Iterator[tuple[str, Any]]:
    import libcst as cst

    for child in node.children:
        if isinstance(child, cst.FunctionDef | cst.ClassDef):
            name = f"{outer}.{child.name.value}".lstrip(".")
            if isinstance(child, cst.FunctionDef):
                yield name, child
            yield from _functions(child.body, name)
        elif not isinstance(child, cst.BaseExpression):
            yield from _functions(child, outer)


def _inside(node: Any) -> Iterator[Any]:
    """Yield the nodes of a function, without those of functions in it."""
    import libcst as cst

    for child in node.children:
        if not isinstance(child, cst.FunctionDef | cst.ClassDef):
            yield child
            yield from _inside(child)


def _words(operator: Operator) -> str:
    if isinstance(operator, Delete):
        return f"without {' '.join(operator.statements.split())}"
    if isinstance(operator, Negate):
        return f"if not {' '.join(operator.condition.split())}"
    assert isinstance(operator, Replace)
    return " ".join(operator.after.split())


def verdicts() -> dict[str, dict[str, str]]:
    """Return the verdicts by mutant; `why` is there for one that is alive and needs no test."""
    known: dict[str, dict[str, str]] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return known


def main() -> int:
    """Run the mutants that have no verdict, until the minutes are over.

    Return 1 if one is alive without an argument.
    """
    from onlyonce.testing import scratch
    from tests.mutants import results
    from tests.mutants.nursery import Nursery
    from tests.support.shared_server import SharedServer

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", default=[*MODULES], help="modules of `MODULES`; without any: all")
    parser.add_argument("--minutes", type=float, default=30.0)
    asked = parser.parse_args()
    until = time.monotonic() + 60 * asked.minutes
    with scratch.server("onlyonce-mutants-") as made, tempfile.TemporaryDirectory() as folder, Nursery() as nursery:
        server = SharedServer(made.folder)
        server.hurry()

        def fails(mutant: str, tests: tuple[str, ...]) -> bool:
            options = ["-q", "-x", "-p", "no:cacheprovider", "--timeout=120", "-m", "not spark and not slow", *tests]
            return nursery.pytest(mutant, options, Path(folder) / "told", ONLYONCE_TEST_SERVER=str(server.folder)) != 0

        for file in asked.files:
            if fails("", MODULES[file]):
                print((Path(folder) / "told").read_text()[-2000:], file=sys.stderr)
                return 64
            for mutant in [one for one in of(file) if one.name not in verdicts()]:
                if time.monotonic() > until:
                    break
                verdict = "caught" if fails(mutant.name, mutant.tests) else "alive"
                print(f"{verdict}: {mutant.name}", flush=True)
                kept = verdicts() | {
                    mutant.name: {"verdict": verdict, "commit": results.git("rev-parse", "--short", "HEAD")}
                }
                FILE.write_text(json.dumps(dict(sorted(kept.items())), indent=1, ensure_ascii=False) + "\n")
    alive = [name for name, one in verdicts().items() if one["verdict"] == "alive" and not one.get("why")]
    print(f"generated: {len(verdicts())} of {sum(len(of(file)) for file in MODULES)} have run; alive: {len(alive)}")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
