"""A checkpoint is made once with the registered id, also by drivers that start at the same instant."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

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
