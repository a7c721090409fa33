"""Folders below an inbox: read with `recursive`, else skipped and reported.

Below a prefix of a store: `tests/storage/test_object_inbox.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from onlyonce.api import load
from onlyonce.api.pipeline import Delta, Files, Growing, Pipeline
from onlyonce.core.diagnosis import Evidence, findings
from onlyonce.core.errors import Refused
from onlyonce.sources import backlog, discovery, folders, listing, record_id
from onlyonce.sources.discovery import Inbox, Registered
from onlyonce.sources.listing import InputFile
from tests.support.shop import SHOP

NAMES = ("top", "dt=1/part-0", "dt=1/hour=2/part-0", "dt=2/part-0")
HIDDEN = (".hidden/a", "_temporary/0/part-0", "dt=1/.part-1", "dt=1/_SUCCESS", "dt=1/_delta_log/0")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home for inboxes and manifests."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "data" / "shop").mkdir(parents=True)
    return tmp_path / "home"


def put(inbox: Path, *names: str) -> Path:
    """Put files of one line into an inbox."""
    for name in names:
        (inbox / name).parent.mkdir(parents=True, exist_ok=True)
        (inbox / name).write_text(f'{{"id": "{name}"}}\n')
    return inbox


def look(
    source: Any, inbox: Path, there: Registered | None = None, pipeline: Pipeline = SHOP
) -> tuple[list[InputFile], set[str]]:
    """What a run would register of an inbox, and the folders that it skipped."""
    skipped: set[str] = set()
    pipeline = replace(pipeline, source=source)
    found = Inbox(
        "shop", inbox, Path("none"), 10, pipeline, record_id.moved_inboxes_of("shop"), folders.of(pipeline, skipped)
    )
    files = [file for look in discovery.looks(found, there or Registered({}, {})) for group in look for file in group]
    return files, skipped


def names(files: list[InputFile], inbox: Path) -> set[str]:
    """The ways of files below their inbox."""
    return {file.path.removeprefix(f"{inbox}/") for file in files}


@pytest.mark.parametrize("kind", [Files, Growing])
def test_no_folder_below_an_inbox_is_skipped_silently(kind: Any, tmp_path: Path) -> None:
    """It is noted for the run's report and the doctor; hidden ones are temporary."""
    inbox = put(tmp_path / "in", *NAMES, *HIDDEN)
    source = kind(inbox=str(inbox))

    files, skipped = look(source, inbox)

    assert names(files, inbox) == {"top"}
    assert skipped == {f"{inbox}/dt=1", f"{inbox}/dt=2"}
    pipeline = replace(SHOP, source=source)
    assert backlog.unread(pipeline, None, {}).skipped == skipped
    [finding] = findings(Evidence(frozenset(), skipped={"shop": folders.told(skipped)}), 0)
    assert f"{inbox}/dt=1, {inbox}/dt=2" in finding.what
    assert "Files(recursive=True)" in finding.repair.command


def test_a_recursive_inbox_has_the_files_of_all_folders(tmp_path: Path) -> None:
    """Each under its whole name, once, and with its inbox."""
    inbox = put(tmp_path / "in", *NAMES, *HIDDEN)

    files, skipped = look(Files(inbox=str(inbox), recursive=True), inbox)

    assert (names(files, inbox), skipped) == (set(NAMES), set())
    assert {file.root for file in files} == {str(inbox)}
    known = Registered({one.path: (one.size, one.modified_ns) for one in files}, {}, roots=(str(inbox),))
    assert look(Files(inbox=str(inbox), recursive=True), inbox, known)[0] == []


def test_a_recursive_inbox_that_was_moved_keeps_the_names_of_its_files(tmp_path: Path) -> None:
    """Also if no file is directly in it: its name is in the manifest, and is not guessed from a path."""
    old, source = put(tmp_path / "old", *NAMES[1:]), Files(recursive=True)
    files, _ = look(source, old)
    there = Registered({one.path: (one.size, one.modified_ns) for one in files}, {}, roots=(str(old),))
    new = old.rename(tmp_path / "new")
    put(new, "dt=3/part-0")
    with pytest.raises(Refused, match=f"was {old}, and is {new} now"):
        look(source, new, there)

    record_id.tell_moved("shop", str(old), str(new))
    [fresh], _ = look(source, new, there)

    assert (fresh.path, fresh.root) == (f"{old}/dt=3/part-0", str(old))
    moved = record_id.moved_inboxes_of("shop")
    assert {record_id.place_in_inbox(one.path, moved) for one in files} == {f"{new}/{name}" for name in NAMES[1:]}


def test_the_registry_has_the_inboxes_in_the_order_of_their_last_batches() -> None:
    """However many entries a look reads; what lies before a start has none."""
    rows = [(0, "/a"), (1, "/b"), (2, "/a"), (3, ""), (4, "/c"), (5, "/b")]
    table = pa.table({"batch_no": [number for number, _ in rows], "root": [root for _, root in rows]})
    for cut in range(len(rows)):
        assert discovery._roots(discovery._roots((), table.slice(0, cut)), table.slice(cut)) == ("/a", "/c", "/b")


def test_a_folder_that_became_a_link_is_not_read(tmp_path: Path) -> None:
    """Whoever may write to an inbox would else choose what is read."""
    inbox = put(tmp_path / "in", "dt=1/part-0")
    [file], _ = look(Files(recursive=True), inbox)
    assert listing.changed(file) is None
    (inbox / "dt=1").rename(tmp_path / "elsewhere")
    (inbox / "dt=1").symlink_to(tmp_path / "elsewhere")

    assert "is a symbolic link now" in str(listing.changed(file))
    assert look(Files(recursive=True, links=True), inbox) == ([], {f"{inbox}/dt=1"})


def declared(name: str, source: Any, **changed: Any) -> Pipeline:
    """A pipeline of that name and source."""
    return replace(SHOP, name=name, source=source, **changed)


@pytest.mark.parametrize(
    ("below", "what"),
    [
        ("in/other", "the inbox of other"),
        ("in/archive", "the archive"),
        ("in/table", "the table of shop/"),
        ("elsewhere", None),
        ("in", None),
        ("in2", None),
    ],
)
def test_what_onlyonce_has_below_a_recursive_inbox_is_refused(
    below: str, what: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another inbox, the archive or a table there would be read as its input."""
    at, outputs = str(tmp_path / below), list(SHOP.outputs)
    monkeypatch.setenv("ONLYONCE_ARCHIVE", at if below == "in/archive" else str(tmp_path / "archive"))
    if below == "in/table":
        outputs = [replace(outputs[0], sink=Delta(path=at))]
    source = Growing(inbox=at) if below not in ("in/archive", "in/table") else Growing(inbox=str(tmp_path / "none"))
    pipelines = [
        declared("shop", Files(inbox=str(tmp_path / "in"), recursive=True), outputs=outputs),
        declared(
            "other", source, outputs=[replace(SHOP.outputs[0], sink=Delta(path=str(tmp_path / "elsewhere-table")))]
        ),
    ]

    if what is None:
        load.refuse_nested_inboxes(pipelines)
    else:
        with pytest.raises(Refused, match=f"with all folders below it, and {what}"):
            load.refuse_nested_inboxes(pipelines)
        load.refuse_nested_inboxes(
            [declared("shop", Files(inbox=str(tmp_path / "in")), outputs=outputs), *pipelines[1:]]
        )
