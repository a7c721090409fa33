"""Declarations that another user has put where a person or a shell finds them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onlyonce import configuration
from onlyonce.api import load
from onlyonce.cli import shell
from onlyonce.core.errors import Refused
from onlyonce.engine import options
from tests.security.statements import states

RAN = "ran"
CODE = f"from pathlib import Path\nPath({RAN!r}).touch()\nPIPELINES = []\n"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder where no setting names a file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ONLYONCE_PIPELINES", raising=False)


@states(
    "A `pipelines.py` that was only found in the current folder runs only if it and its folder belong to you or "
    "to root."
)
@needs_root
@pytest.mark.parametrize("given", ["file", "folder"])
def test_a_found_file_of_another_user_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    """It is refused with the way to name it; a file that was named runs, whichever user owns it."""
    file = tmp_path / "theirs" / "pipelines.py"
    file.parent.mkdir()
    file.write_text(CODE)
    os.chown(file if given == "file" else file.parent, 65534, 65534)

    with pytest.raises(Refused, match="belongs to another user"):
        load.load()
    assert not Path(RAN).exists()

    monkeypatch.setenv("ONLYONCE_PIPELINES", str(file))
    assert load.load() == {}
    assert Path(RAN).exists()


@states("One whose file or folder every user may write, or that a link of another user leads to, does not run.")
@pytest.mark.parametrize("given", ["file", "folder", pytest.param("link of another user", marks=needs_root)])
def test_a_found_file_that_others_can_choose_is_not_run(tmp_path: Path, given: str) -> None:
    """A folder such as /tmp, where each user may change own files only, and a link of the caller are fine."""
    own, found = tmp_path / "own", tmp_path / "found"
    own.mkdir()
    (own / "pipelines.py").write_text(CODE)
    if given == "link of another user":
        (tmp_path / "deep").mkdir()
        found.symlink_to(own.rename(tmp_path / "deep" / "own"))
        os.chown(found, 65534, 65534, follow_symlinks=False)
    else:
        (own / "pipelines.py" if given == "file" else own).chmod(0o777)

    with pytest.raises(
        Refused, match="belongs to another user" if given.startswith("link") else "written by every user"
    ):
        load.load()
    assert not Path(RAN).exists()

    if given == "folder":
        own.chmod(0o1777)
        assert load.load() == {}


@states(
    "The same holds for an `onlyonce.toml` that was found: it names files that are run, and addresses that get "
    "passwords."
)
@needs_root
def test_found_settings_of_another_user_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that ONLYONCE_CONFIG names is read, whichever user owns it."""
    file = tmp_path / configuration.FILE
    file.write_text('alert_hook = "https://theirs.example"\n')
    monkeypatch.delenv("ONLYONCE_CONFIG", raising=False)
    assert configuration.file() == file
    os.chown(file, 65534, 65534)

    with pytest.raises(Refused, match="belongs to another user"):
        configuration.file()
    monkeypatch.setenv("ONLYONCE_CONFIG", str(file))
    assert configuration.file() == file


@states("In a folder where others may write, such as /tmp, Spark's Python workers import nothing from it.")
def test_workers_import_nothing_from_a_folder_of_others(tmp_path: Path) -> None:
    """Spark starts them by `python -m`, which imports from the current folder first."""
    (tmp_path / "onlyonce").mkdir()
    (tmp_path / "onlyonce" / "__init__.py").write_text(CODE)

    for mode, variables in ((0o755, {}), (0o1777, {"PYTHONSAFEPATH": "1"})):
        tmp_path.chmod(mode)
        given = {
            name.removeprefix("spark.executorEnv."): value
            for name, value in options._of_local({}).items()
            if name.startswith("spark.executorEnv.")
        }
        subprocess.run(
            [sys.executable, "-m", "onlyonce.engine.worker_daemon", "nothing"],
            env={**os.environ, **given},
            check=False,
            capture_output=True,
        )
        assert given == variables
        assert Path(RAN).exists() == (mode == 0o755)
        Path(RAN).unlink(missing_ok=True)


@states("TAB completion parses declarations and never runs them.")
def test_completion_runs_no_declaration(tmp_path: Path) -> None:
    """It reads the names from the text of the file, also of one's own."""
    declared = 'from onlyonce import Pipeline\nPIPELINES = [Pipeline(name="orders", schema="id long")]\n'
    (tmp_path / "pipelines.py").write_text(CODE + declared)

    assert shell._named("ord") == ["orders"]
    assert not Path(RAN).exists()
