"""Each public method of a concern is one transaction: two statements of it are never committed apart."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.support.platform import ROOT


def methods() -> Iterator[tuple[str, ast.FunctionDef, set[str]]]:
    """(where, method, names of its decorators) of all concerns."""
    for path in sorted((ROOT / "onlyonce").rglob("*.py")):
        if "(Transactions)" not in path.read_text():
            continue
        for one in ast.parse(path.read_text()).body:
            if isinstance(one, ast.ClassDef) and [ast.unparse(base) for base in one.bases] == ["Transactions"]:
                for method in one.body:
                    if isinstance(method, ast.FunctionDef):
                        decorators = {ast.unparse(decorator) for decorator in method.decorator_list}
                        yield f"{path.name}: {one.name}.{method.name}", method, decorators


METHODS = list(methods())


def test_public_methods_with_statements_are_one_transaction() -> None:
    """One that has none of its own hands its arguments on to one that is."""
    plain = [
        where
        for where, method, decorators in METHODS
        if not method.name.startswith("_")
        and "one_transaction" not in decorators
        and "self.connection" in ast.unparse(method)
    ]

    assert len(METHODS) > 150
    assert plain == []


@pytest.mark.parametrize(
    "method", [method for _, method, decorators in METHODS if "one_transaction" in decorators], ids=lambda one: one.name
)
def test_methods_ask_before_their_transaction_has_ended(method: ast.FunctionDef) -> None:
    """What yields would go on when it has."""
    assert not [node for node in ast.walk(method) if isinstance(node, ast.Yield | ast.YieldFrom)]
    for node in ast.walk(method):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.GeneratorExp):
            pytest.fail(f"{method.name} returns what asks later")
