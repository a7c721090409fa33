"""The two pipelines that ship, fed by each other source, against the plain batch computation of tests/oracle.py."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.support import source_variants
from tests.support.platform import Platform
from tests.support.reference import compare

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KILLS = [
    "receive-registered",
    "receive-after-begin",
    "receive-after-delta",
    "receive-before-end",
    "receive-after-end",
]


def check(
    platform: Platform, kind: str, name: str, *, duplicates: float, records: int, kills: tuple[str, ...] = ()
) -> None:
    """Feed, run, killed here and there, and compare with the batch over the rows in time; the log is conserved."""
    files = source_variants.feed(kind, name, duplicates=duplicates, records=records, files=9)
    for point in kills:
        code, output = platform.run_killed(point, name, "--close")
        assert platform.struck(point) >= 1, f"{point} was never passed:\n{output[-3000:]}"
        assert code == -signal.SIGKILL, f"{point}: exit {code}\n{output[-3000:]}"
    platform.run(name, "--close")
    batches = source_variants.cut(kind, name, files)
    assert len(batches) > 2
    assert sum(path.read_bytes().count(b"\n") for batch in batches for path in batch) == sum(
        path.read_bytes().count(b"\n") for path in files
    ), "all that was fed is in a batch"
    compare(platform, name, batches)


@pytest.mark.parametrize("name", ["flights", "user_counts"])
@pytest.mark.parametrize("kind", source_variants.KINDS)
@pytest.mark.parametrize("how", ["undisturbed", "duplicates", "kills"])
def test_both_pipelines_over(
    how: str, kind: str, name: str, new_platform: Callable[..., Platform], spark: object
) -> None:
    """Undisturbed, with re-deliveries, and with kills too: the batch over the rows in time."""
    platform = new_platform(f"tests/support/variant_{kind}.py")
    kills = tuple(KILLS) if how == "kills" else ()
    check(platform, kind, name, duplicates=0.0 if how == "undisturbed" else 0.1, records=3000, kills=kills)
