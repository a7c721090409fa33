"""The soak: half an hour of input, a random fault every few seconds, and at the end every oracle.

ONLYONCE_SOAK_MINUTES says how long; the seed is printed (ONLYONCE_FAULT_SEED gives the same input and the same
choices; when a fault strikes what depends on the machine).
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from deltalake import DeltaTable

from onlyonce import settings
from onlyonce.database.connect import forget_connections
from onlyonce.local import postgres
from onlyonce.operate import audit
from tests import oracle
from tests.fault import ledger
from tests.spark.run.test_reference import KEYS, plain
from tests.support.platform import Platform, Server, free_port, multiset
from tests.support.proxy import Proxy
from tests.support.soak import ENDING, GENTLE, Soak
from tests.support.soak_driver import Driver
from tests.support.soak_input import PIPELINE, Producer

A_WHOLE_SOAK = 20
MINUTES = float(os.environ.get("ONLYONCE_SOAK_MINUTES", "30"))

pytestmark = [
    pytest.mark.spark,
    pytest.mark.fault,
    pytest.mark.slow,
    pytest.mark.timeout(int(MINUTES * 60) + 3600),
]

Pairs = list[tuple[Counter[Any], Counter[Any]]]


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, Platform]]:
    """A server of this test's own, to be killed, and a platform in the same folder."""
    folder = Path(tempfile.mkdtemp(prefix="onlyonce-soak-")).resolve()
    folder.chmod(0o711)
    monkeypatch.setenv("ONLYONCE_HOME", str(folder))
    monkeypatch.setenv("ONLYONCE_PG_PORT", str(free_port()))
    postgres.start()
    server = Server(folder)
    platform = Platform.make(server, folder, "jobs/pipelines.py")
    platform.enter(monkeypatch)
    yield server, platform
    forget_connections()
    postgres.stop()
    if "ONLYONCE_KEEP" not in os.environ:
        shutil.rmtree(folder, ignore_errors=True)


def test_nothing_shows_of_random_faults_under_load(
    own: tuple[Server, Platform], capsys: pytest.CaptureFixture[str]
) -> None:
    """Kept, both outputs, the log and the audit are those of a run without a fault, and no driver asks for a person."""
    server, platform = own
    seed = ledger.chosen_seed()
    producer = Producer(platform, seed, int(MINUTES * 60))
    with capsys.disabled():
        print(f"\nseed {seed}, {MINUTES:g} minutes, first event time {producer.first.isoformat()}, {platform.home}")
    with Proxy(platform.environment["ONLYONCE_DATABASE_URL"]) as proxy:
        soak = Soak(platform, server, proxy, random.Random(seed))
        try:
            producer.start()
            soak.run(MINUTES * 60)
            producer.join()
            soak.settle()
            soak.drivers.append(last := Driver(platform, "--close"))
            assert last.wait() == 0, last.output
        finally:
            producer.stop()
            with capsys.disabled():
                print(soak.told())
            soak.kill_all()

    assert soak.faults.total() > MINUTES, "there were faults"
    assert MINUTES < A_WHOLE_SOAK or set(GENTLE | ENDING) <= set(+soak.faults), "there was each kind of fault"
    check_log(platform, producer.lines)
    found = results(platform, producer)
    harm = ledger.compared("soak", "the results", f"{MINUTES:g} minutes", found, seed=seed)
    assert harm == (0, 0)
    for nth, fault in enumerate(soak.faulted(), 1):
        ledger.record("soak", fault, nth, seed=seed, lost=0, doubled=0)


def check_log(platform: Platform, lines: int) -> None:
    """Each line that was delivered has one fate, the audit finds nothing, and nothing closed before the end."""
    conserved = platform.sql("SELECT sum(records_in) AS lines, bool_and(conserved) AS ok FROM onlyonce.conservation")
    assert conserved["ok"][0]
    assert conserved["lines"][0] == lines
    assert audit.examine_log(grace=0).warnings == []
    assert platform.sql("SELECT kind, state FROM onlyonce.watermark_markers").to_numpy().tolist() == [
        ["ended", "committed"]
    ]


def results(platform: Platform, producer: Producer) -> Pairs:
    """(wanted, found) of what was kept, of the late rows, and of each output."""
    judged = oracle.fates_by_cut(registered(), "2min", "1min", of=oracle.USER_COUNTS)
    in_time = judged[~judged["late"]]
    late = platform.sql(f"SELECT coalesce(sum(late), 0)::int AS n FROM onlyonce.late WHERE instance = '{PIPELINE}'")
    print(f"{len(judged)} records, {judged['late'].sum()} of them late, {judged['batch'].nunique()} batches")
    assert judged["late"].any(), "some were late"
    events = DeltaTable(str(settings.data_dir(PIPELINE) / "events")).to_pandas(columns=["oo_kind", "event_id"])
    per_user = oracle.counts_per_user(in_time), platform.table(f"{PIPELINE}/per_user"), [*KEYS, "user", "count"]
    of_all = (
        oracle.count_of_all(in_time),
        platform.sql("SELECT * FROM results.count_of_all"),
        [*KEYS, "count", "users"],
    )
    return [
        (producer.delivered, Counter(events[events["oo_kind"] == "kept"]["event_id"])),
        (Counter(late=int(judged["late"].sum())), Counter(late=int(late["n"][0]))),
        *((multiset(plain(w), *names), multiset(plain(f), *names)) for w, f, names in (per_user, of_all)),
    ]


def registered() -> list[list[Path]]:
    """The files of each batch, in order, as the manifest has cut them: where a cut falls is the drivers' luck."""
    table: pd.DataFrame = DeltaTable(str(settings.data_dir(PIPELINE) / "files")).to_pandas()
    assert table["path"].is_unique
    return [sorted(map(Path, group)) for _, group in table.groupby("batch_no")["path"]]
