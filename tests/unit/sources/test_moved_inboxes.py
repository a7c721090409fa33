"""Whose files are those of an inbox that is elsewhere: asked of a person, and never taken for new input."""

from __future__ import annotations

from pathlib import Path

import pytest

from onlyonce.core.errors import Refused
from onlyonce.sources import record_id


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a manifest's folder."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    (tmp_path / "data" / "shop").mkdir(parents=True)
    return tmp_path


def named(folder: str, *roots: str) -> str:
    """How the manifest names it, by what was told."""
    return record_id.named_inbox("shop", folder, roots, record_id.moved_inboxes_of("shop"))


def test_an_inbox_that_is_where_it_was_needs_no_word() -> None:
    """Also the first one, and one of two that a manifest from before has."""
    assert named("/a") == "/a"
    assert named("/a", "/a") == "/a"
    assert named("/a", "/a", "/b") == "/a"


def test_a_folder_that_no_file_was_read_from_is_asked_about() -> None:
    """With both answers."""
    with pytest.raises(Refused, match="the inbox of shop was /a, and is /b now") as asked:
        named("/b", "/a")
    assert "--moved" in asked.value.hint
    assert "--another" in asked.value.hint


def test_moved_files_keep_their_names_however_often_they_move() -> None:
    """And are found where they are now; also when they are back."""
    record_id.tell_moved("shop", "/a", "/b")
    assert named("/b", "/a") == "/a"
    assert record_id.place_in_inbox("/a/x y", record_id.moved_inboxes_of("shop")) == "/b/x y"
    assert record_id.place_in_inbox("/other/x", record_id.moved_inboxes_of("shop")) == "/other/x"
    with pytest.raises(Refused, match="was /b, and is /a now"):
        named("/a", "/a")
    record_id.tell_moved("shop", "/a", "/a")
    assert named("/a", "/a") == "/a"


def test_another_folder_is_named_as_it_is() -> None:
    """Beside the one that was moved, whose files stay known."""
    record_id.tell_moved("shop", "/a", "/b")
    record_id.tell_moved("shop", "/c", "/c")
    assert named("/c", "/a") == "/c"
    assert named("/b", "/a", "/c") == "/a"


def test_an_inbox_that_was_registered_by_a_relative_path_is_asked_about() -> None:
    """It has a whole path now, and its files are known by the old one."""
    with pytest.raises(Refused, match="was in, and is /home/in now"):
        named("/home/in", "in")
    record_id.tell_moved("shop", "in", "/home/in")
    assert named("/home/in", "in") == "in"
    assert record_id.place_in_inbox("in/a", record_id.moved_inboxes_of("shop")) == "/home/in/a"
