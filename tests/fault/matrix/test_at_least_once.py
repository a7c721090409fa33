"""Kills in at-least-once mode, without a JVM: nothing is lost, and each row that is there twice is counted by the log.

The oracle is its own: every delivery of a valid record is kept, also a twin's and a re-delivery's. Delta sinks have
each row once, since its transaction is of both modes; an append to PostgreSQL has some twice where a batch was
replayed.
"""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from onlyonce.run import reset
from tests.fault import ledger
from tests.fault.matrix import declared
from tests.fault.matrix.declared import KINDS, Row
from tests.fault.matrix.world import Pairs, Run, World, as_text

pytestmark = pytest.mark.timeout(3600)

LOOSE = [kind for kind in KINDS if kind != "added"]
POINTS = {
    "receive": ["receive-after-begin", "table-before-commit", "receive-after-delta", "receive-after-control", "receive-after-end", "marker-after-delta"],
    "appended": ["postgres-plain-before-commit", "postgres-plain-after-commit", "postgres-after-units", "output-after-end"],
    "upserted": ["postgres-plain-after-commit", "output-before-end"],
    "filed": ["delta-before-write", "delta-after-write", "output-before-end"],
    "staged": ["staging-after-write", "postgres-after-units"],
}  # fmt: skip


def loose(world: World, *kinds: str, workers: bool = False) -> Run:
    """A pipeline of its own in at-least-once mode, with outputs of these kinds."""
    run = world.receiving(*kinds, workers=workers)
    run.play = replace(run.play, mode="at_least_once")
    return run


def valid(number: int) -> list[Row]:
    """Each delivery of a record in an input file."""
    return [line for line in declared.files()[number] if not isinstance(line, str)]


def events(run: Run) -> list[Row]:
    """The rows of the table `events`."""
    table = DeltaTable(str(Path(run.play.home) / "data" / run.play.name / "events"))
    found: list[Row] = table.to_pyarrow_table().to_pylist()
    return found


def as_told(rows: list[Row], *names: str) -> Counter[Any]:
    """Rows as a multiset of these columns."""
    return Counter(tuple(row[name] for name in names) for row in rows)


def pairs(run: Run) -> Pairs:
    """(wanted, found) of all that the run has to do with."""
    every = [row for number in range(declared.FILES) for row in valid(number)]
    there, instance = events(run), run.play.name
    kept = [row for row in there if row["oo_kind"] == "kept"]
    control = as_told([row for row in there if row["oo_kind"] == "control"], "oo_batch")
    batches = run.world.rows(
        "SELECT query, b.state, read, kept + invalid FROM onlyonce_private.batches b JOIN " "onlyonce_private.incarnations USING (incarnation) "
        "WHERE instance = %s AND (b.state <> 'committed' OR read <> kept + invalid)", instance,
    )  # fmt: skip
    found: Pairs = {
        "kept": (as_told(every, "id", "shop", "cents"), as_told(kept, "id", "shop", "cents")),
        "invalid": (Counter({"no JSON": declared.FILES}), Counter(r["oo_reason"] for r in there if r["oo_kind"] == "invalid")),
        "control": (Counter([(-1,), *[(n,) for n in range(declared.FILES)]]), control),
        "open or not conserved": (Counter(), Counter(batches)),
        "ids": (Counter(), Counter(run.world.rows("SELECT 1 FROM onlyonce_private.catalog_chunks WHERE instance = %s", instance))),
    }  # fmt: skip
    for kind in run.play.kinds:
        found |= of_output(run, kind, every)
    return found


def of_output(run: Run, kind: str, every: list[Row]) -> Pairs:
    """(wanted, found) of one output; what an append has twice must be what the log says was written again."""
    names = ["id"] if kind == "staged" else KINDS[kind][1].names
    if kind == "filed":
        table = DeltaTable(str(Path(run.play.home) / "tables" / run.play.name / "filed"))
        return {kind: (as_told(every, *names), as_told(table.to_pyarrow_table().to_pylist(), *names))}
    rows = run.world.rows(f"SELECT {', '.join(names)} FROM {declared.table(run.play.name, kind, '')}")
    if kind == "upserted":
        last = [Counter[str](), Counter[str]()]
        for number, sums in enumerate(last):
            for row in valid(number):
                sums[row["shop"]] += row["cents"]
        return {kind: (Counter((dict(last[0]) | dict(last[1])).items()), Counter(rows))}
    wanted, there = as_told(every, *names), Counter(rows)
    told = run.world.rows(
        "SELECT sum(written_again) FROM onlyonce_private.batches WHERE incarnation = %s", f"{run.play.name}/{kind}/1"
    )
    return {
        kind: (wanted, wanted & there),
        f"{kind}, which": (Counter(set(wanted)), Counter(set(there))),
        f"{kind}, again": (Counter({"rows": (there - wanted).total()}), Counter({"rows": int(told[0][0])})),
    }


def held(run: Run, point: str) -> None:
    """Hold what is there against the oracle."""
    found = pairs(run)
    sums = ledger.compared("at least once", point, run.play.kinds or "receive", found.values())
    assert sums == (0, 0), f"{point}: lost, doubled = {sums}: {as_text(found)}\n{run.told()}"


def killed(run: Run, point: str, nth: int = 1) -> None:
    """Run until the point strikes."""
    code = run.run(f"{point}:{nth}:kill-process")
    assert code == -signal.SIGKILL, f"{point}:{nth}: exit {code}\n{run.told()}"


def test_without_a_fault_each_delivery_is_there_once(world: World) -> None:
    """And nothing was written again."""
    run = loose(world, *LOOSE)
    run.finish()
    held(run, "none")
    again = run.world.rows(
        "SELECT sum(written_again) FROM onlyonce_private.batches WHERE incarnation LIKE %s", f"{run.play.name}/%"
    )
    assert again == [(0,)]


def test_kills_lose_nothing_and_what_is_there_twice_is_counted(world: World) -> None:
    """A kill before and after each effect, then the same command again."""

    def play(case: tuple[str, str]) -> None:
        kind, point = case
        run = loose(world, *([] if kind == "receive" else [kind]))
        killed(run, point)
        run.finish()
        held(run, point)

    assert world.each([(kind, point) for kind, points in POINTS.items() for point in points], play) >= 15


def test_a_replayed_append_is_there_twice_and_says_so(world: World) -> None:
    """The promise of the mode is no more than this: the log tells how many rows of which batch."""
    run = loose(world, "appended")
    killed(run, "output-before-end")
    run.finish()
    held(run, "output-before-end")
    told = run.world.rows(
        "SELECT batch_id, written_again FROM onlyonce_private.batches WHERE incarnation = %s ORDER BY 1",
        f"{run.play.name}/appended/1",
    )
    assert told == [(0, len(valid(0))), (1, 0), (2, 0)]


def test_a_worker_that_dies_after_its_commit_is_counted(world: World) -> None:
    """Only the task is tried again; the run comes to its end by itself, and the log knows what was written twice."""
    run = loose(world, "appended", workers=True)
    assert run.run("postgres-plain-after-commit:1:kill-process") == 0, run.told()
    assert run.struck("postgres-plain-after-commit") > 1
    held(run, "worker: postgres-plain-after-commit")


def test_a_woken_zombie_writes_nothing_more(world: World) -> None:
    """The epoch fences plain writes as it does units: a driver that was overtaken writes no row."""
    for kind, point in (
        ("appended", "postgres-before-units"),
        ("filed", "delta-before-write"),
        ("", "receive-after-delta"),
    ):
        run = loose(world, *([kind] if kind else []))
        zombie = run.start_stopped(point)
        run.finish()
        before = pairs(run)
        zombie.send_signal(signal.SIGCONT)
        assert run.end_of(zombie) == 69, run.told()
        assert pairs(run) == before
        held(run, f"zombie: {point}")


@pytest.mark.parametrize(
    "point", ["", "rebuild-before-commit", "rebuild-after-commit", "receive-after-begin", "receive-after-delta"]
)
def test_what_was_kept_at_least_once_is_known_to_exactly_once(world: World, point: str) -> None:
    """After the switch a re-delivery of what the other mode has kept is a duplicate, whatever was killed at the
    switch."""
    run = loose(world)
    second = Path(run.play.home) / "inbox" / run.play.name / "sales-1.jsonl"
    text = second.read_text()
    second.unlink()
    run.finish()
    second.write_text(text)
    run.play = replace(run.play, mode="exactly_once")
    if point:
        killed(run, point)
    run.finish()

    kept = [row for row in events(run) if row["oo_kind"] == "kept"]
    new: dict[str, Row] = {}
    known = {row["id"] for row in valid(0)}
    for row in sorted(valid(1), key=lambda row: row["at"]):
        if row["id"] not in known:
            new.setdefault(row["id"], row)
    assert any(row["id"] in known for row in valid(1))
    wanted = as_told([*valid(0), *new.values()], "id", "cents")
    assert as_told(kept, "id", "cents") == wanted, run.told()
    told = run.world.rows(
        "SELECT batch_id, mode, kept, ids_added_at IS NOT NULL FROM onlyonce_private.batches WHERE incarnation = %s "
        "ORDER BY 1",
        f"{run.play.name}/receive/1",
    )
    assert told == [(0, "at_least_once", len(valid(0)), True), (1, "exactly_once", len(new), False)]
    chunks = run.world.rows("SELECT ids FROM onlyonce_private.catalog_chunks WHERE instance = %s", run.play.name)
    ids = Counter(bytes(ids)[at : at + 16] for (ids,) in chunks for at in range(0, len(ids), 16))
    halves = {
        (row["oo_high"].to_bytes(8, "big", signed=True) + row["oo_low"].to_bytes(8, "big", signed=True)) for row in kept
    }
    assert ids == Counter(halves)


@pytest.mark.parametrize("point", ["receive-after-begin", "receive-after-delta", "receive-after-control"])
def test_a_batch_ends_in_the_mode_in_which_it_began(world: World, point: str) -> None:
    """A switch over a batch that was killed: that one has no units, the ones after it are exactly once and know its
    ids."""
    run = loose(world)
    killed(run, point)
    run.play = replace(run.play, mode="exactly_once")
    run.finish()

    modes = run.world.rows(
        "SELECT batch_id, mode, state FROM onlyonce_private.batches WHERE incarnation = %s ORDER BY 1",
        f"{run.play.name}/receive/1",
    )
    assert modes == [(0, "at_least_once", "committed"), (1, "exactly_once", "committed")]
    kept = Counter(row["id"] for row in events(run) if row["oo_kind"] == "kept")
    assert kept == Counter(row["id"] for row in valid(0)) | Counter({row["id"] for row in valid(1)})


@pytest.mark.parametrize("point", ["receive-after-begin", "receive-after-delta", "receive-after-control"])
def test_a_new_incarnation_of_receive_takes_in_what_the_lost_one_began(
    world: World, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """A begun batch whose rows are in `events` is ended by its commit, without a JVM; one whose rows are not,
    withdrawn."""
    run = loose(world)
    killed(run, point)
    shutil.rmtree(Path(run.play.home) / "data" / run.play.name / "checkpoints" / "receive")
    monkeypatch.setenv("ONLYONCE_HOME", run.play.home)
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", run.play.url)
    reset.new(f"{run.play.name}/receive", yes=True)
    run.finish()

    found = pairs(run)
    for name in ("kept", "invalid", "open or not conserved"):
        wanted, there = found[name]
        assert wanted == there, f"{name}: {as_text(found)}"
    control = as_told([row for row in events(run) if row["oo_kind"] == "control"], "oo_incarnation", "oo_batch")
    assert set(control.values()) == {1}
    progress = run.world.rows(
        "SELECT max(max_event_time_after) FROM onlyonce.batches WHERE instance = %s", run.play.name
    )
    assert progress == [(max(datetime.fromisoformat(row["at"]) for n in range(declared.FILES) for row in valid(n)),)]


@pytest.mark.parametrize("point", ["receive-unit-after-commit", "receive-after-delta"])
def test_a_switch_to_at_least_once_needs_nothing(world: World, point: str) -> None:
    """Also over a batch that was killed: it ends with all its units, the ones after it are taken in plainly."""
    run = world.receiving()
    killed(run, point, 2 if "unit" in point else 1)
    run.play = replace(run.play, mode="at_least_once")
    run.finish()

    kept = Counter(row["id"] for row in events(run) if row["oo_kind"] == "kept")
    assert kept == Counter({row["id"] for row in valid(0)}) + Counter(row["id"] for row in valid(1))
    units = run.world.rows(
        "SELECT DISTINCT batch_id FROM onlyonce_private.units WHERE incarnation = %s", f"{run.play.name}/receive/1"
    )
    assert units == [(0,)]
