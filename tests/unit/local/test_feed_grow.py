"""A feed of growing files: the same lines whatever the pieces are, most of them cut in a line, and nothing twice."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from onlyonce.core.errors import Refused
from onlyonce.local import feed


def fed(inbox: Path, **options: object) -> Counter[bytes]:
    """The lines of all files."""
    feed.feed_growing("user_counts", inbox, records=500, duplicates=0.2, **options)  # type: ignore[arg-type]
    return Counter(line for path in inbox.iterdir() for line in path.read_bytes().splitlines())


def test_files_hold_the_data_set_with_its_redeliveries(tmp_path: Path) -> None:
    """The lines of the feed of whole files, in whole lines; the same call again appends nothing, one that was cut short
    the rest."""
    feed.feed_files("user_counts", tmp_path / "whole", records=500, duplicates=0.2)
    whole = Counter(line for path in (tmp_path / "whole").iterdir() for line in path.read_bytes().splitlines())

    assert fed(tmp_path / "grown", files=3) == whole
    before = {path: path.read_bytes() for path in (tmp_path / "grown").iterdir()}
    assert len(before) == 3
    assert all(content.endswith(b"\n") for content in before.values())
    assert feed.feed_growing("user_counts", tmp_path / "grown", records=500, duplicates=0.2, files=3).appended == 0
    first = next(iter(before))
    first.write_bytes(before[first][:100])
    fed(tmp_path / "grown", files=3)
    assert {path: path.read_bytes() for path in before} == before
    first.write_bytes(b"something else\n")
    with pytest.raises(Refused, match="holds something else"):
        fed(tmp_path / "grown", files=3)


def test_pieces_end_in_lines_and_together_are_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut anywhere, of both files in turn, from where they stand."""
    monkeypatch.setattr(feed, "LONGEST", 30)
    content = [b"0123456789\n" * 40, b"abcdef\n" * 40]
    made = list(feed.pieces(content, [11, 0], np.random.default_rng(1)))

    for number, start in ((0, 11), (1, 0)):
        mine = [piece for at, piece in made if at == number]
        assert b"".join(mine) == content[number][start:]
        assert sum(not piece.endswith(b"\n") for piece in mine) > len(mine) / 2
    assert len({number for number, _ in made[:6]}) == 2


def test_a_rate_spreads_the_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece waits until its first line is due."""
    clock = [0.0]
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", sleep)

    list(feed.paced(iter([(0, b"x" * 50)] * 11), rate=10, line_bytes=5))

    assert clock[0] == pytest.approx(10.0)
    assert waits[1:] == pytest.approx([1.0] * 10)
