"""Stored names: each equals its literal, and no module writes one by hand."""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from onlyonce.airflow.log import Asked
from onlyonce.core import stored_names
from onlyonce.core.frontier import Frontier, SourceProgress
from onlyonce.core.locations import Attempt
from onlyonce.core.shards import Written
from onlyonce.sinks.iceberg import iceberg_commits
from onlyonce.tables.commit import Commit
from tests.homes.frozen import STORED_NAMES
from tests.support.platform import ROOT

LITERALS = ROOT / "sql" / "migrations" / STORED_NAMES
DIGEST = "bed6ebbff78a7362"
"""Of the file of literals, which a rename by script changes too."""
MODULE = Path(stored_names.__file__)
STORED_FIELDS = {
    "frontier": Frontier, "source": SourceProgress, "commit": Commit, "iceberg": iceberg_commits.Commit, "attempt": Attempt,
    "file": Written, "asked windows": Asked,
}  # fmt: skip
"""Dataclasses whose fields are stored under their own names."""
WITHIN_A_QUERY = {
    "oo_arrives", "oo_arriving", "oo_bound", "oo_by_", "oo_beside_", "oo_block", "oo_change", "oo_changes", "oo_code",
    "oo_end", "oo_file", "oo_float_", "oo_gone", "oo_hash", "oo_key", "oo_line", "oo_logical", "oo_more", "oo_new",
    "oo_newest", "oo_pane", "oo_payload", "oo_position", "oo_refused", "oo_rejected", "oo_rest", "oo_result", "oo_row", "oo_rows",
    "oo_shard", "oo_sign", "oo_start", "oo_step", "oo_tally", "oo_target", "oo_text", "oo_there", "oo_through",
    "oo_until", "oo_value",
}  # fmt: skip
"""Columns and temporary tables that no later run reads."""
DISTINCT = re.compile(
    r"\boo_[a-z_]+|reservoirVersion|_onlyonce_owner|withdrawn by: |onlyonce\.owner|written by onlyonce|"
    r"^(?:onlyonce_private|batch_no|source_batch_no|seen_at|after_batch_no|counted_upto|closed_by|rows_from|first_window|"
    r"stateless|inboxes\.json|\.dropped-|\.pending|\.partial|pubsub-|reprocessed-|@lookups)$",
    re.MULTILINE,
)
"""Names that mean one thing, so that a literal of them is a stored name."""
RESULTS = ("api", "sinks", "outputs", "testing")
RESULT = re.compile(r"^(?:window_(?:start|end|date)|valid_from|valid_to|is_current)$", re.MULTILINE)
"""Columns of result tables, in the packages that write these. Elsewhere they are columns of the log."""


def _of_code() -> dict[str, str]:
    members = {name: value for name, value in vars(stored_names).items() if not name.startswith("_")}
    constants = {name: value for name, value in members.items() if isinstance(value, str)}
    functions = {name: _called(value) for name, value in members.items() if inspect.isfunction(value)}
    stored = {
        f"fields of {what}": " ".join(field.name for field in fields(made)) for what, made in STORED_FIELDS.items()
    }
    return constants | functions | stored


def _called(function: object) -> str:
    """Return the name that a function makes of its parameters' names; a number is 7."""
    assert inspect.isfunction(function)
    given = inspect.signature(function).parameters.values()
    return str(function(*(7 if one.annotation == "int" else f"<{one.name}>" for one in given)))


def _literals(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value


def test_names_equal_their_literals() -> None:
    """Stored data of this format has exactly these names."""
    stored = dict(line.split(": ", 1) for line in LITERALS.read_text().splitlines())

    assert _of_code() == stored


def test_literals_are_those_of_the_format() -> None:
    """A script that renames in all files renames in the list too: then its hash differs."""
    found = hashlib.sha256(LITERALS.read_bytes()).hexdigest()[:16]

    assert found == DIGEST, "a stored name changed: data of before can't be read. If that is meant, note the new hash"


def test_modules_take_stored_names_from_the_list() -> None:
    """A literal of its own would stay behind when the list changes."""
    modules = {path: "\n".join(_literals(path)) for path in (ROOT / "onlyonce").rglob("*.py") if path != MODULE}
    found = {str(path.relative_to(ROOT)): {*DISTINCT.findall(text)} - WITHIN_A_QUERY for path, text in modules.items()}
    for path, text in modules.items():
        if path.relative_to(MODULE.parents[1]).parts[0] in RESULTS:
            found[str(path.relative_to(ROOT))] |= {*RESULT.findall(text)}

    assert {path: names for path, names in found.items() if names} == {}


def test_each_name_is_used() -> None:
    """A name that no module uses is not stored."""
    code = "\n".join(path.read_text() for path in (ROOT / "onlyonce").rglob("*.py") if path != MODULE)
    code = code + MODULE.read_text().replace('"""', "").replace("\ndef ", "\n")
    names = [name for name in _of_code() if not name.startswith("fields of ")]

    assert [
        name for name in names if not re.search(rf"stored_names\.{name}\b|import .*\b{name}\b|[({{]{name}\b", code)
    ] == []
