"""A night on call: a year of flights, one fault after the other, each seen on the page, explained by the doctor and
mended by its advice; at the end every result is the plain computation's."""

from __future__ import annotations

import re
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import pandas as pd
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from onlyonce import settings
from onlyonce.local.feed import feed_files
from onlyonce.operate import doctor
from onlyonce.sinks.files import finalize
from tests import oracle
from tests.contract.operate.test_doctor import old
from tests.fault.test_every_spark_point import results
from tests.page.conftest import PREFIX, Token
from tests.spark.run.test_reference import KEYS, plain
from tests.support.platform import Platform, multiset

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(2 * 3600)]

DAYS = pd.Timestamp("2013-03-01", tz="UTC"), pd.Timestamp("2013-03-03", tz="UTC")
BACKFILL = ("flights", "--output", "per_hour", "--from", DAYS[0].isoformat(), "--to", DAYS[1].isoformat())


@dataclass(frozen=True)
class OnCall:
    """Who looks: at the page by a browser's client, and by the doctor."""

    platform: Platform
    client: TestClient

    def hourly(self) -> list[str]:
        """What the hourly look finds; the page must tell the same, with what it means and what to do."""
        self.platform.end_sessions()
        found = doctor.visit(["--grace=0"]).tables["findings"]
        html = unescape(self.page())
        assert re.findall(r'data-finding="([^"]+)"', html) == [one["finding"] for one in found]
        for one in found:
            assert all(one[part] in html for part in ("where", "what", "data", "repair")), one
        return [one["finding"] for one in found]

    def page(self) -> str:
        """The first page."""
        answer = self.client.get("/")
        assert answer.status_code == 200, answer.text
        return answer.text

    def mended(self, *yes: str) -> None:
        """Do as the doctor says; then nothing is stuck, here and on the page."""
        report = doctor.visit(["--grace=0", "--fix", *yes, "--master", "local[2]"])
        assert {repair["outcome"] for repair in report.tables["repairs"]} == {"done"}, report.tables
        assert self.hourly() == []
        assert "Nothing is stuck" in self.page()


@pytest.fixture
def on_call(new_platform: Callable[..., Platform], token: Token, monkeypatch: pytest.MonkeyPatch) -> OnCall:
    """The shipped pipelines, and a user who may look."""
    from onlyonce.airflow.page.plugin import OnlyoncePlugin

    platform = new_platform("jobs/pipelines.py")
    monkeypatch.setattr(doctor, "SECOND_LOOK_SECONDS", 0.0)
    whole = FastAPI()
    for part in OnlyoncePlugin.fastapi_apps:
        whole.mount(part["url_prefix"], part["app"])
    return OnCall(platform, TestClient(whole, base_url="http://airflow" + PREFIX, cookies={"_token": token("VIEWER")}))


def test_each_fault_of_a_year_is_seen_explained_and_mended(on_call: OnCall, spark: object) -> None:
    """A driver killed in its fourth batch; a checkpoint lost; filters damaged; ids lost; a leftover; a backfill killed;
    then the first files are delivered again."""
    platform = on_call.platform
    feed_files("flights", settings.inbox("flights"), duplicates=0.05)
    files = sorted(settings.inbox("flights").glob("*.jsonl"))

    code, output = platform.run_killed("receive-after-delta", "flights", nth=4)
    assert code == -signal.SIGKILL, output[-3000:]
    assert on_call.hourly() == ["begun batch", "units of a dead epoch"]
    on_call.mended()

    checkpoint = settings.data_dir("flights") / "checkpoints" / "per_carrier" / "1"
    shutil.rmtree(checkpoint)
    assert on_call.hourly() == ["checkpoint"]
    on_call.mended("--yes")

    platform.sql(
        "UPDATE onlyonce_private.catalog_chunks SET filter = set_byte(filter, 30, 255 - get_byte(filter, 30)) "
        "WHERE id_count > 0"
    )
    assert on_call.hourly() == ["damaged filters"]
    on_call.mended()

    platform.sql("DELETE FROM onlyonce_private.catalog_chunks WHERE batch_id < 3")
    assert set(on_call.hourly()) == {"uneven catalog"}
    on_call.mended()

    old(settings.data_dir("flights") / "checkpoints" / "receive" / "1" / "offsets" / ".9.5f0c.tmp")
    assert on_call.hourly() == ["stale temporaries"]
    on_call.mended("--yes")

    code, output = platform.run_killed("postgres-unit-before-commit", *BACKFILL, job="backfill")
    assert code == -signal.SIGKILL, output[-3000:]
    assert "begun backfill" in on_call.hourly()
    on_call.mended()

    for file in files[:4]:
        shutil.copy(file, settings.inbox("flights") / f"again-{file.name}")
    platform.run("flights", "--close")
    finalize.main([])
    assert on_call.hourly() == []
    assert "✓ all records add up" in on_call.page()
    compare(platform, files)


def compare(platform: Platform, files: list[Path]) -> None:
    """Each output is the oracle's, and the hours that were backfilled have their late flights too."""
    *others, (in_time, per_hour) = results(platform, "flights", files)
    complete = plain(oracle.flights_per_hour(oracle.distinct(files, oracle.FLIGHTS)))
    asked = multiset(
        complete[complete["window_start"].between(*DAYS, inclusive="left")], *KEYS, "flights", "delay_minutes"
    )
    elsewhere = Counter({row: n for row, n in in_time.items() if not DAYS[0] <= row[0] < DAYS[1]})

    assert all(wanted == found for wanted, found in others)
    assert asked.total() > 30
    assert per_hour == elsewhere + asked
