"""Data is read and written through `onlyonce.tables.stores` and Delta's libraries: what opens files itself is listed
here, and the list can only shrink."""

from __future__ import annotations

import ast
from pathlib import Path

from onlyonce.settings import ROOT

FOLDERS = (
    "catalog",
    "check.py",
    "context.py",
    "lookups",
    "operate",
    "outputs",
    "receive",
    "records",
    "replay.py",
    "run",
    "sinks",
    "sources",
    "tables",
)
"""Where records and results pass through."""
TOUCHES = {
    "open", "read_text", "write_text", "read_bytes", "write_bytes", "mkdir", "unlink", "rename", "hardlink_to", "symlink_to", "rmdir", "touch",
    "iterdir", "glob", "rglob", "stat", "lstat", "is_dir", "is_file", "link", "scandir", "listdir", "walk", "utime", "rmtree", "copytree", "move",
    "data_dir", "tables_dir", "on_disk",
}  # fmt: skip
"""Calls that reach a file system, or that ask for one."""

KNOWN: dict[str, set[str]] = {
    "the local side of the interface": {"tables/stores", "tables/arrow_files"},
    "of no use after the process, or the job": {"catalog/worker_cache", "check", "receive/exchange"},
    "an inbox is a folder so far": {
        "operate/gc",
        "operate/erase_inputs",
        "sources/discovery",
        "sources/avro_files",
        "sources/backlog",
        "sources/folders",
        "sources/growing",
        "sources/listing",
        "sources/file_bytes",
        "sources/pubsub",
        "operate/doctor",
        "outputs/reprocess",
    },
    "a table of Spark's making": {"tables/commit"},
    "names of folders, and empty folders, which an erasure looks for": {
        "operate/erase_search",
        "sinks/delta/sink_delta",
    },
    "a folder goes at once by its name": {"tables/removal"},
    "a journal in the home": {"operate/doctor"},
    "a log of a process that may append to it": {"operate/erase_search"},
    "sharded files have a store of their own so far": {"sinks/files/file_stores"},
    "an Iceberg table is read by the store of its catalog": {"sinks/iceberg/sink_iceberg"},
    "a file where a local table's folder must be": {"check"},
}


def test_only_known_modules_touch_files_by_themselves() -> None:
    """One that does no more goes from the list."""
    found = {name for folder in FOLDERS for name in _touching(ROOT / "onlyonce" / folder)}
    known = set().union(*KNOWN.values())
    assert found - known == set(), "use onlyonce.tables.stores"
    assert known - found == set(), "take these from the list"


def _touching(folder: Path) -> set[str]:
    return {
        str(file.relative_to(ROOT / "onlyonce").with_suffix(""))
        for file in (folder.rglob("*.py") if folder.is_dir() else [folder])
        if _touches(ast.parse(file.read_text()))
    }


def _touches(tree: ast.AST) -> bool:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any((call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "")) in TOUCHES for call in calls)


def test_tables_are_opened_in_one_place() -> None:
    """So that each has the options of its store."""
    opens = [
        str(file.relative_to(ROOT))
        for file in (ROOT / "onlyonce").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "DeltaTable"
    ]
    assert opens == ["onlyonce/tables/opening.py"]
