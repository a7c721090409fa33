"""The manifest of a Delta table as a source: whatever versions there are and however looks are cut, each row is
registered once."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from onlyonce.api.pipeline import Pipeline
from onlyonce.core.errors import Refused
from onlyonce.engine import session
from onlyonce.sources import delta_log, discovery, manifest, source_files
from onlyonce.sources.discovery import Inbox
from onlyonce.sources.listing import InputFile
from onlyonce.tables import commit, opening
from onlyonce.testing.conformance import NOBODY
from tests.support import tables
from tests.support.tables import rows

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def inbox_of(pipeline: Pipeline, at: Path, most: int = 2) -> Inbox:
    """With an empty manifest."""
    opening.make(at, session.schema_of(source_files._schema(pipeline)).json(), [], commit.KEEP_ALL)
    return Inbox("shop", at.parent, at, most, pipeline)


def _no_session() -> Any:
    pytest.fail("a path needs no Spark")


def register(inbox: Inbox, spark: Any = None) -> int:
    """One look; only a table by its name needs Spark for it."""
    return source_files.register(spark, inbox, NOBODY, NOW)


def entries(inbox: Inbox) -> list[InputFile]:
    """All that is registered."""
    names = [field for field in InputFile.__dataclass_fields__ if field != "moved_to"]
    return [
        InputFile(**row) for row in pa.table(opening.table(inbox.table).to_pyarrow_table(columns=names)).to_pylist()
    ]


@pytest.mark.parametrize("seed", range(6))
def test_each_row_is_registered_once_however_versions_come_and_looks_are_cut(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appends, compactions, empty versions, in pages of three: the distinct rows, each at a place of its own, the same
    in a bounded run."""
    monkeypatch.setattr(delta_log, "PAGE", 3)
    story = tables.Story(tmp_path / "t", seed)
    pipeline = tables.of(tmp_path / "t")
    inbox = inbox_of(pipeline, tmp_path / "files")
    for _ in range(10):
        for _ in range(story.random.randint(0, 4)):
            story.go_on()
        if story.random.random() < 0.6:
            register(inbox)
    register(inbox)

    assert register(inbox) == 0, "nothing is left"
    found = rows(pipeline, entries(inbox))
    places = Counter((row["oo_file"], row["oo_position"]) for row in found)

    assert Counter(row["id"] for row in found) == Counter(story.names)
    assert len(places) == len(found)
    bounded = inbox_of(pipeline, tmp_path / "bounded", 100)
    assert Counter(
        file.identity
        for group in source_files.waiting(source_files.placed(bounded, _no_session))
        for file in group
        if file.lines
    ) == Counter(file.identity for file in entries(inbox) if file.lines)
    register(bounded)
    assert Counter((row["oo_file"], row["oo_position"]) for row in rows(pipeline, entries(bounded))) == places


def test_batches_are_numbered_on_and_have_so_many_files(tmp_path: Path) -> None:
    """By the last append to the manifest alone."""
    pipeline = tables.of(tmp_path / "t")
    inbox = inbox_of(pipeline, tmp_path / "files")
    for name in ("a", "b", "c"):
        tables.append(tmp_path / "t", [name])
    register(inbox)
    tables.append(tmp_path / "t", ["d"])
    register(inbox)

    numbers = Counter(manifest.after(inbox.table, None, ["batch_no"])["batch_no"].to_pylist())
    assert numbers == {0: 2, 1: 1, 2: 1}
    assert discovery.registered(inbox.table, pipeline).batches == 3


def test_what_came_before_a_version_that_is_refused_is_registered_and_the_next_look_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it is on another page than the refused one."""
    monkeypatch.setattr(delta_log, "PAGE", 2)
    pipeline = tables.of(tmp_path / "t")
    inbox = inbox_of(pipeline, tmp_path / "files")
    for name in ("a", "b"):
        tables.append(tmp_path / "t", [name])
    DeltaTable(str(tmp_path / "t")).delete()
    tables.append(tmp_path / "t", ["c"])

    assert register(inbox) == 2
    for _ in range(2):
        with pytest.raises(Refused, match="version 2 deletes rows"):
            register(inbox)
    assert Counter(row["id"] for row in rows(pipeline, entries(inbox))) == {"a": 1, "b": 1}
