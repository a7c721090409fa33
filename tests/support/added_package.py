"""A team's package, outside this repository: it adds a sink and a source, and names them among its entry points."""

from __future__ import annotations

from pathlib import Path

import pytest

MODULE = """
from onlyonce.core.ownership import TargetKind
from tests.support import ledger_sink, readers


class Ledger(ledger_sink.Ledger):
    pass


class Lines(readers.Lines):
    pass


SHELF = TargetKind("acme_shop", "shelf")


def is_there(place):
    return place.where == "full"
"""
ENTRY_POINTS = """
[onlyonce.sinks]
ledger = acme_shop:Ledger

[onlyonce.sources]
lines = acme_shop:Lines

[onlyonce.targets]
shelf = acme_shop:SHELF
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the package where Python finds it, as pip would."""
    metadata = folder / "acme_shop-1.0.dist-info"
    metadata.mkdir(parents=True)
    (folder / "acme_shop.py").write_text(MODULE)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-shop\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(folder))
