"""What somebody on call asks of a platform that Spark has written: what became of a record, and what is stuck."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from onlyonce.cli import app
from onlyonce.operate import doctor
from tests.support import shop_oracle
from tests.support.check_shop import check
from tests.support.ended_runs import ended_at
from tests.support.platform import Platform

pytestmark = pytest.mark.spark
START = shop_oracle.START
INVALID = '{"id":"broken","shop":"s","at":'


def sale(name: str, minutes: float) -> dict[str, Any]:
    """A record at so many minutes."""
    at = (START + timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")
    return {"id": name, "shop": "s", "at": at, "cents": 5, "weight": 1.0}


def traced(record: str, code: int = 0) -> dict[str, Any]:
    """What `onlyonce trace shop RECORD --json` says."""
    result = CliRunner().invoke(app, ["trace", "shop", record, "--json"])
    assert result.exit_code == code, result.output
    return dict(json.loads(result.stdout))


def test_each_fate_can_be_traced_and_the_platform_is_healthy(platform: Platform, spark: object) -> None:
    """A kept, a late, an invalid and a twice delivered record, by the ids that Spark has given; then the doctor finds
    nothing, beside the drivers and after they have ended."""
    platform.put("shop", "0.jsonl", [sale("kept", 0), sale("twice", 1), sale("ahead", 10)])
    platform.put("shop", "1.jsonl", [sale("late", 2), sale("twice", 1), sale("in time", 9.5), INVALID])
    platform.run("shop", "--close")

    kept = traced("kept")
    [fate] = kept["tables"]["fates"]
    commits = platform.sql(f"SELECT committed_at, run_id FROM onlyonce.commits WHERE unique_id = '{fate['unit']}'")
    assert (fate["fate"], fate["batch"], fate["state"]) == ("kept", "shop/receive/1/0", "committed")
    assert fate["run_id"] == commits["run_id"][0]
    assert kept["facts"]["catalog"].startswith("shop/receive/1/0")
    assert {(w["output"], w["fate"], w["state"], w["generation"]) for w in kept["tables"]["windows"]} == {
        (output, "in time", "final", 0) for output in ("per_shop", "total", "balance")
    }
    late = traced("late")["tables"]["windows"]
    assert {(w["output"], w["fate"], w["state"]) for w in late} == {
        (output, "late", "waits for a backfill") for output in ("per_shop", "total", "balance")
    }
    assert {w["fate"] for w in traced("in time")["tables"]["windows"]} == {"in time"}
    [invalid] = traced("broken")["tables"]["fates"]
    assert (invalid["fate"], invalid["raw"]) == ("invalid", INVALID)
    twice = traced("twice")
    assert [f["batch"] for f in twice["tables"]["fates"]] == ["shop/receive/1/0"]
    assert "counted as a duplicate" in twice["warnings"][0]
    assert "never seen" in traced("nobody", code=1)["title"]

    assert doctor.main(["--grace=0"]).tables["findings"] == []
    platform.end_sessions()
    assert doctor.main(["--grace=0"]).tables["findings"] == []


@pytest.mark.whole
def test_a_killed_run_is_found_and_its_repair_is_the_run(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, spark: object
) -> None:
    """The doctor carries it out; then nothing is found, and the results are those of no kill."""
    files = shop_oracle.sales(200, 2)
    for number, records in enumerate(files):
        platform.put("shop", f"{number}.jsonl", records)
    assert ended_at(platform, monkeypatch, "receive-after-delta", 2, "--close")
    platform.end_sessions()

    found = doctor.main(["--grace=0"]).tables["findings"]
    doctor.main(["--grace=0", "--fix", "--master", "local[2]"])
    platform.end_sessions()

    assert [one["finding"] for one in found] == ["begun batch", "units of a dead epoch"]
    assert {one["repair"] for one in found} == {"onlyonce run shop"}
    assert doctor.main(["--grace=0"]).tables["findings"] == []
    platform.run("shop", "--close")
    check(platform, files)
