"""A checkpoint is made once with the registered id, also by drivers that start at the same instant."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from onlyonce.core.errors import Refused
from onlyonce.tables import checkpoint


def test_two_drivers_that_make_one_checkpoint_at_once_make_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second comes between the first one's writing of the file and its naming; both go on."""
    folder, known, link = tmp_path / "receive" / "1", uuid4(), os.link
    drivers = ["first", "second"]

    def linked(source: Any, target: Any) -> None:
        drivers.pop()
        if drivers:
            checkpoint.prepare(folder, "shop/receive/1", known, None)
        link(source, target)

    monkeypatch.setattr(os, "link", linked)
    checkpoint.prepare(folder, "shop/receive/1", known, None)

    assert drivers == []
    assert checkpoint.identity(folder) == str(known)
    assert [path.name for path in folder.iterdir()] == ["metadata"]


@pytest.mark.parametrize("at_home", [True, False])
def test_data_that_is_elsewhere_is_no_lost_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, at_home: bool
) -> None:
    """The way out is the setting, and never a new incarnation. Next to other data the checkpoint itself is lost."""
    known, home = uuid4(), tmp_path / "home"
    monkeypatch.setenv("ONLYONCE_HOME", str(home))
    monkeypatch.setenv("ONLYONCE_DATA", str(tmp_path / "new"))
    checkpoint.prepare(home / "data/shop/checkpoints/receive/1", "shop/receive/1", known, None)
    folder = tmp_path / "new/data/shop/checkpoints/receive/1"

    with pytest.raises(Refused, match=f"no data of shop in {tmp_path}/new, but the log has batches") as refused:
        checkpoint.prepare(folder, "shop/receive/1", known if at_home else uuid4(), 3)
    expected = f"it is in {home}/data/shop: unset ONLYONCE_DATA" if at_home else "set ONLYONCE_DATA to the place"
    assert refused.value.hint.startswith(expected)
    assert "reset" not in refused.value.hint  # the doctor would do it

    (tmp_path / "new/data/shop/events").mkdir(parents=True)
    with pytest.raises(Refused, match="is gone from") as refused:
        checkpoint.prepare(folder, "shop/receive/1", known, 3)
    assert "onlyonce reset shop/receive" in refused.value.hint
