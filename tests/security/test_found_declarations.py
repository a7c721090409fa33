"""Declarations that another user has put where a person or a shell finds them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onlyonce.cli import shell
from onlyonce.declare import loading
from onlyonce.model.errors import Refused
from tests.security.statements import states

RAN = "ran"
CODE = f"from pathlib import Path\nPath({RAN!r}).touch()\nPIPELINES = []\n"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder where no setting names a file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONLYONCE_PIPELINES", raising=False)


@states("A `pipelines.py` that was only found in the current folder runs only if it and its folder belong to you or to root.")
@needs_root
@pytest.mark.parametrize("given", ["file", "folder"])
def test_a_found_file_of_another_user_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    """It is refused with the way to name it; a file that was named runs, whichever user owns it."""
    file = tmp_path / "theirs" / "pipelines.py"
    file.parent.mkdir()
    file.write_text(CODE)
    os.chown(file if given == "file" else file.parent, 65534, 65534)

    with pytest.raises(Refused, match="belongs to another user"):
        loading.load()
    assert not Path(RAN).exists()

    monkeypatch.setenv("ONLYONCE_PIPELINES", str(file))
    assert loading.load() == {}
    assert Path(RAN).exists()


@states("TAB completion parses declarations and never runs them.")
def test_completion_runs_no_declaration(tmp_path: Path) -> None:
    """It reads the names from the text of the file, also of one's own."""
    declared = 'from onlyonce import Pipeline\nPIPELINES = [Pipeline(name="orders", schema="id long")]\n'
    (tmp_path / "pipelines.py").write_text(CODE + declared)

    assert shell._named("ord") == ["orders"]
    assert not Path(RAN).exists()
