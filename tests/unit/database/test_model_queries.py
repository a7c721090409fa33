"""SQL by name: what the code asks for is there, what is there is asked for, with the parameters that it has."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from onlyonce.database.statements import queries

FOLDER = Path(__file__).parents[3] / "sql" / "statements"
CODE = [FOLDER.parents[1] / name for name in ("onlyonce", "jobs")]
SCRIPTS = {"own_server"}
"""Run as they are, by whoever sets a database up: they are no queries."""
FILES = sorted({path.stem for path in FOLDER.glob("*.sql")} - SCRIPTS)
ASKING = {"ask": 1, "do": 1, "do_many": 1, "do_rows": 1, "copy": 1, "ask_binary": 1}
PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")


@cache
def trees() -> list[tuple[Path, ast.Module]]:
    """All Python that asks."""
    return [(path, ast.parse(path.read_text())) for folder in CODE for path in sorted(folder.rglob("*.py"))]


@cache
def calls() -> list[tuple[str, str, str, ast.Call]]:
    """(place, file, query, call) of each call that names a query of a file."""
    found = []
    for path, tree in trees():
        for node in ast.walk(tree):
            name = getattr(getattr(node, "func", None), "id", None)
            if isinstance(node, ast.Call) and name in ASKING and len(node.args) >= 3:
                file, query = node.args[1:3]
                if isinstance(file, ast.Constant) and isinstance(query, ast.Constant):
                    found.append((f"{path.name}:{node.lineno}", str(file.value), str(query.value), node))
    return found


def test_each_query_that_the_code_names_is_there() -> None:
    """A misspelt name fails here and not at the first use in production."""
    missing = [(place, f"{file}.{query}") for place, file, query, _ in calls() if query not in queries(file)]

    assert calls()
    assert missing == []


def test_each_query_is_used() -> None:
    """Its name stands in the code; a query that nobody asks is deleted."""
    named = {file: {query for _, f, query, _ in calls() if f == file} for file in FILES}
    nodes = [node for _, tree in trees() for node in ast.walk(tree)]
    # Some are asked by the name alone: as a text, or as the name of a field (the audit's evidence). The crash test asks
    # all.
    named["crashtest"] = set(queries("crashtest"))
    for file in ("views", "page", "outbox", "outbox_units", "crashtest_outputs", "trace"):
        named[file] |= {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    named["views"] |= {n.target.id for n in nodes if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}

    assert [f"{file}.{query}" for file in FILES for query in queries(file) if query not in named[file]] == []


def test_each_call_gives_the_parameters_that_its_query_has() -> None:
    """No more and no fewer, where they are written out."""
    wrong: defaultdict[str, set[str]] = defaultdict(set)
    for place, file, query, call in calls():
        given = {keyword.arg for keyword in call.keywords}
        wanted = set(PARAMETER.findall(queries(file)[query]))
        if None not in given and call.func.id not in ("do_many", "do_rows"):  # type: ignore[attr-defined]
            wrong[place] |= wanted ^ {str(name) for name in given}

    assert {place: names for place, names in wrong.items() if names} == {}


@pytest.mark.parametrize("file", FILES)
def test_each_query_is_one_statement_and_its_file_has_no_name_twice(file: str) -> None:
    """A second query of one name would hide the first without a word."""
    names = re.findall(r"^-- (\w+) --$", (FOLDER / f"{file}.sql").read_text(), re.MULTILINE)

    assert len(names) == len(set(names)) == len(queries(file)) > 0
    for name, text in queries(file).items():
        code = re.sub(r"--.*", "", text)
        assert re.match(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH|LOCK|COPY|VACUUM)\b", code), name
        assert code.rstrip().rstrip(";").count(";") == 0, name


def test_a_file_that_is_not_there_is_an_error() -> None:
    """Not an empty set of queries."""
    with pytest.raises(FileNotFoundError):
        queries("nothing")
