"""The folders of drivers on one machine: each is held by its process, and goes when that one is gone, at the next
start."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onlyonce import settings
from onlyonce.engine import temporary
from onlyonce.operate import doctor

DRIVER = """
import sys
from onlyonce.engine import temporary
options = temporary.added("local[2]", {}, {})
temporary.hold(options)
print(options["spark.local.dir"], flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, and nothing said of Spark's folders."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    for name in ("SPARK_LOCAL_DIRS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def driver() -> Iterator[subprocess.Popen[str]]:
    """A process that holds a folder, which it has told."""
    with subprocess.Popen([sys.executable, "-c", DRIVER], stdin=-1, stdout=-1, text=True) as started:
        yield started
        started.kill()


def test_the_folder_of_a_driver_stays_for_as_long_as_it_lives_and_goes_once_it_is_killed(
    driver: subprocess.Popen[str],
) -> None:
    """However young or old the folder is."""
    assert driver.stdout
    folder = Path(driver.stdout.readline().strip())
    (folder / "blockmgr-1").mkdir()
    (folder / "blockmgr-1" / "block").write_bytes(b"rows")

    assert temporary.sweep() == []
    assert (folder / "blockmgr-1" / "block").exists()
    driver.kill()
    driver.wait()
    assert temporary.sweep() == [folder]
    assert not folder.exists()


@pytest.mark.parametrize("make", [lambda: temporary.added("local[2]", {}, {}), temporary.of_driver])
def test_a_home_that_a_check_uses_first_is_private(
    home: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], object]
) -> None:
    """No `onlyonce up` has made it yet."""
    monkeypatch.setenv("ONLYONCE_HOME", str(home / "new"))
    monkeypatch.setattr(temporary, "_held", {})
    before = os.umask(0o022)
    try:
        make()
    finally:
        os.umask(before)

    assert doctor.permissions() == []
    assert stat.S_IMODE((home / "new" / "tmp").stat().st_mode) == settings.PRIVATE


def test_what_spark_and_the_jvm_keep_lies_in_the_drivers_own_folder_below_the_home(home: Path) -> None:
    """Both in one folder, which is there before the JVM is."""
    found = temporary.added("local[2]", {temporary.JAVA: "-Xss4m"}, {})

    folder = Path(found[temporary.BLOCKS])
    assert folder.is_dir()
    assert folder.parent == home / "tmp"
    assert found[temporary.JAVA] == f"-Xss4m -Djava.io.tmpdir={folder}"
    assert temporary.added("local[2]", {}, {})[temporary.BLOCKS] != str(folder)


@pytest.mark.parametrize("theirs", [
    {"spark.local.dir": "/fast", temporary.JAVA: "-Djava.io.tmpdir=/fast"},
])  # fmt: skip
def test_what_a_team_has_said_of_these_folders_stays(theirs: dict[str, str], home: Path) -> None:
    """Nothing of ours is made then; nor on a cluster, which has folders of its own."""
    assert temporary.added("local[2]", {}, theirs) == {}
    assert temporary.added("spark://host:7077", {}, {}) == {}
    assert not (home / "tmp").exists()
    temporary.hold(theirs)
    assert not (home / "tmp").exists()


def test_a_folder_that_was_deleted_before_its_driver_held_it_is_made_again(home: Path) -> None:
    """Another driver may start between spark-submit and the driver itself."""
    options = temporary.added("local[2]", {}, {})
    folder = Path(options[temporary.BLOCKS])
    assert temporary.sweep() == [folder]

    temporary.hold(options)
    assert folder.is_dir()
    assert temporary.sweep() == []
