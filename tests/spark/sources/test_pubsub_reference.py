"""The two pipelines that ship, fed by Google's fake of Pub/Sub, against the plain batch computation of
tests/oracle.py."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.api.sources import PubSub
from onlyonce.local import feed_messages
from onlyonce.sources import pubsub
from tests.support.platform import Platform
from tests.support.pubsub import PROJECT, running
from tests.support.pullers import Pullers
from tests.support.reference import compare

pytestmark = [pytest.mark.spark, pytest.mark.slow]

LANDINGS = ["pull-after-write", "pull-before-acknowledge", "pull-after-acknowledge"]
RUNS = ["receive-registered", "receive-after-begin", "receive-after-delta", "receive-before-end", "output-after-begin"]


def batches(name: str) -> list[list[Path]]:
    """The pulled files of each batch of receive, as the manifest cut them."""
    entries = DeltaTable(str(settings.data_dir(name) / "files")).to_pyarrow_table().to_pylist()
    found: dict[int, list[Path]] = {}
    for entry in sorted(entries, key=lambda one: (one["batch_no"], one["path"])):
        found.setdefault(entry["batch_no"], []).append(Path(entry["path"]))
    return [found[number] for number in sorted(found)]


@pytest.mark.parametrize("name", ["flights", "user_counts"])
@pytest.mark.parametrize("how", ["undisturbed", "duplicates", "kills"])
def test_both_pipelines_over_messages(
    how: str, name: str, new_platform: Callable[..., Platform], spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Undisturbed, sent twice under new message ids, and with pull runs and runs killed too: the batch over the rows in
    time."""
    platform = new_platform("tests/support/variant_pubsub.py")
    source = declarations.load()[name].source
    assert isinstance(source, PubSub)
    with running(monkeypatch) as fake, Pullers() as pullers:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", fake.address)
        fake.subscribe(name, topic=f"{PROJECT}/topics/{name}")
        more = 0.0 if how == "undisturbed" else 0.1
        feed_messages.feed_pubsub(name, source, duplicates=more, seed=1, files=None, records=3000)
        for number, point in enumerate(LANDINGS if how == "kills" else []):
            passes = platform.home / f"failpoints-{number}"
            passes.mkdir()
            kill = {"ONLYONCE_FAILPOINTS": f"{point}:1:kill", "ONLYONCE_FAILPOINT_DIR": str(passes)}
            assert pullers.wait(pullers.start(name, **kill))[0] == -signal.SIGKILL
            fake.tell("advance 61s")
        pubsub.main([name])
    for point in RUNS if how == "kills" else []:
        code, output = platform.run_killed(point, name, "--close")
        assert platform.struck(point) >= 1, f"{point} was never passed:\n{output[-3000:]}"
        assert code == -signal.SIGKILL, f"{point}: exit {code}\n{output[-3000:]}"
    platform.run(name, "--close")
    found = batches(name)
    assert len(found) > 2
    compare(platform, name, found)
