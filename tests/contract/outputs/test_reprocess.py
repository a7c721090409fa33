"""A reprocessing puts each set of rows into the inbox once, whatever came between: kills, a second reprocessing, a repeat.

On the real PostgreSQL, with a tiny `events` that is made without Spark; what Spark does for a reprocessing (parse, leave out
what is kept) is stood in for by a few lines of Python, and tested in `tests/spark/outputs/test_changes.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from onlyonce import settings
from onlyonce.commitlog import reprocessings
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.incarnations import Driver
from onlyonce.core.batch import Outcome
from onlyonce.core.errors import Refused, Retryable
from onlyonce.core.runs import Report
from onlyonce.database.statements import make_home
from onlyonce.outputs import reprocess
from tests.contract.conftest import Log, plan_of

SHOP = str(Path(__file__).resolve().parents[2] / "support" / "shop.py")
BAD, WORSE = "the line is no JSON object", "the record id column id is missing"
KEPT = "already kept"
Row = tuple[str, str]


class Killed(BaseException):
    """What stands for SIGKILL: nothing catches it."""


@dataclass
class Shop:
    """A pipeline whose batches have left rows in `events`, and its inbox."""

    log: Log
    driver: Driver

    def batch(
        self,
        number: int,
        rows: Iterable[Row],
        kind: str = "invalid",
        *,
        commit: bool = True,
        facts: dict[str, str] | None = None,
    ) -> None:
        """A receive batch that left (raw, reason) rows; its end may still be missing."""
        plan = plan_of(self.driver, number, facts=facts or {})
        begun = Batches(self.log.database).begin(self.driver, "shop", plan, None)
        listed = list(rows)
        columns = {
            "oo_kind": [kind for _ in listed], "oo_incarnation": [self.driver.incarnation for _ in listed],
            "oo_batch": [number for _ in listed], "oo_raw": [raw for raw, _ in listed], "oo_reason": [why for _, why in listed],
        }  # fmt: skip
        schema = pa.schema([(name, pa.int64() if name == "oo_batch" else pa.string()) for name in columns])
        write_deltalake(settings.data_dir("shop") / "events", pa.table(columns, schema), mode="append")
        if commit:
            fates = {"invalid": 0, "expired": 0} | {kind: len(listed)}
            outcome = Outcome(read=len(listed), kept=0, duplicate=0, invalid=fates["invalid"], expired=fates["expired"])
            Batches(self.log.database).end(self.driver, begun, outcome)

    def reprocess(self, *more: str) -> Report:
        """`onlyonce reprocess shop --invalid --yes`."""
        return reprocess.main(["shop", *(["--invalid"] if "--expired" not in more else []), "--yes", *more])

    def inbox(self) -> Counter[str]:
        """All lines that are in the inbox, of all files."""
        files = [path for path in settings.inbox("shop").glob("*") if not path.name.startswith(".")]
        return Counter(line for path in files for line in path.read_text().splitlines())

    def states(self) -> list[Any]:
        """The reprocessings by the log."""
        return self.log.rows(
            "SELECT state, lines, left_out FROM onlyonce_private.reprocessings ORDER BY reprocessing_no"
        )


def _lines(
    _: Any, pipeline: Any, asked: Any, sets: Any, version: int, out: Path | None, kind: str | None = None
) -> Any:
    """What Spark does, for lines without ids: those that begin with KEPT are kept, WORSE stays invalid."""
    wanted = {(one.incarnation, one.batch_id, one.reason) for one in sets if not one.file}
    table = DeltaTable(str(settings.data_dir("shop") / "events"), version=version).to_pyarrow_table().to_pylist()
    rows = [row for row in table if row["oo_kind"] == (kind or asked.kind)]
    values = [r["oo_raw"] for r in rows if (r["oo_incarnation"], r["oo_batch"], r["oo_reason"]) in wanted]
    values += [line for one in sets if one.file for line in Path(one.file).read_text().splitlines()]
    going = sorted(value for value in values if not value.startswith(KEPT))
    if out is not None and going:
        out.write_text("".join(f"{line}\n" for line in going))
    invalid = [line for line in going if line.startswith("{bad")]
    return SimpleNamespace(
        lines=len(going), left_out=len(values) - len(going), still_invalid=len(invalid), example=BAD, first=None, last=None
    )  # fmt: skip


@pytest.fixture
def shop(log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shop:
    """A pipeline with two committed batches of invalid rows."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    make_home()
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    monkeypatch.setenv("ONLYONCE_PIPELINES", SHOP)
    monkeypatch.setattr(reprocess, "_lines", _lines)
    made = Shop(log, log.start())
    made.batch(0, [("a", BAD), ("b", WORSE), ("twice", BAD), ("twice", BAD)])
    made.batch(1, [("c", BAD), (f"{KEPT} d", BAD)])
    return made


def strike(monkeypatch: pytest.MonkeyPatch, point: str, action: Callable[[], object]) -> None:
    """Do something at a fail-point, the first time it is passed."""
    left = [action]

    def passing(name: str) -> None:
        if name == point and left:
            left.pop()()

    monkeypatch.setattr(reprocess, "passing", passing)
    monkeypatch.setattr(reprocessings, "passing", passing)


def kill() -> None:
    raise Killed


ALL = Counter({"a": 1, "b": 1, "twice": 2, "c": 1})


def test_a_reprocessing_puts_each_row_in_once_and_a_repeat_puts_nothing(shop: Shop) -> None:
    """All rows of all sets, those that are kept left out; the second reprocessing finds nothing to do."""
    shop.reprocess()
    again = shop.reprocess()

    assert shop.inbox() == ALL
    assert shop.states() == [("reprocessed", 5, 1)]
    assert "nothing to reprocess" in again.title


def test_a_reprocessing_that_has_ended_keeps_no_reason(shop: Shop) -> None:
    """A reason may quote a record, which an erasure takes out of `events` and not out of the log of reprocessings."""
    shop.reprocess("--reason", "no JSON")

    kept = shop.log.rows("SELECT DISTINCT reason FROM onlyonce_private.reprocessed_sets")
    assert kept == [(sha256(BAD.encode()).hexdigest(),)]
    assert shop.reprocess("--reason", "no JSON").facts == shop.reprocess("--reason", "nothing has it").facts


def test_reprocessing_without_yes_writes_nothing(shop: Shop) -> None:
    """It says what would be put in; log and inbox stay as they are."""
    said = reprocess.main(["shop", "--invalid"])
    assert said.facts == {"lines": 5, "kept already, left out": 1}
    assert shop.inbox() == Counter()
    assert shop.states() == []


def test_batch_and_reason_choose_and_what_is_left_is_reprocessed_later(shop: Shop) -> None:
    """Each set goes by itself; together the reprocessings put in what one reprocessing of all would."""
    shop.reprocess("--batch", "0", "--reason", "NO JSON")
    assert shop.inbox() == Counter({"a": 1, "twice": 2})
    shop.reprocess("--batch", "0")
    assert shop.inbox() == Counter({"a": 1, "twice": 2, "b": 1})
    shop.reprocess()
    assert shop.inbox() == ALL


@pytest.mark.parametrize("point", ["reprocess-after-begin", "reprocess-before-put", "reprocess-after-put"])
@pytest.mark.parametrize("again", [[], ["--batch", "1"], ["--expired"]], ids=["same", "other rows", "other kind"])
def test_a_reprocessing_that_was_killed_is_finished_by_the_next_one(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, point: str, again: list[str]
) -> None:
    """Whatever the next one asks for, and wherever the first was killed: its rows are in the inbox once."""
    strike(monkeypatch, point, kill)
    with pytest.raises(Killed):
        shop.reprocess()
    assert [state for state, *_ in shop.states()] == ["begun"]

    shop.reprocess(*again)

    assert shop.inbox() == ALL
    assert shop.states() == [("reprocessed", 5, 1)]
    assert [path.name for path in settings.inbox("shop").iterdir()] == ["reprocessed-invalid-000001.jsonl"]


def test_of_two_that_put_the_same_reprocessing_one_does(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second command finishes a reprocessing while its own is about to: the file is put once, and ended once."""
    strike(monkeypatch, "reprocess-before-put", shop.reprocess)
    shop.reprocess()

    assert shop.inbox() == ALL
    assert shop.states() == [("reprocessed", 5, 1)]


def test_what_another_reprocessing_has_taken_meanwhile_is_not_taken_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the begin another one reprocessed a part: refused as a whole, and the repeat takes the rest."""
    looked: list[int] = []

    def look_then_lose(*arguments: Any) -> Any:
        if not looked:
            looked.append(1)
            shop.reprocess("--batch", "1")
        return _lines(*arguments)

    monkeypatch.setattr(reprocess, "_lines", look_then_lose)
    with pytest.raises(Retryable, match="started first"):
        shop.reprocess()

    shop.reprocess()
    assert shop.inbox() == ALL


def test_a_file_that_was_read_and_cleared_away_is_not_put_again(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt was killed after the file was there; it was read and archived before the next attempt."""
    strike(monkeypatch, "reprocess-after-put", kill)
    with pytest.raises(Killed):
        shop.reprocess()
    path = settings.inbox("shop") / "reprocessed-invalid-000001.jsonl"
    write_deltalake(settings.data_dir("shop") / "files", pa.table({"path": [str(path)]}))
    path.unlink()

    shop.reprocess()

    assert shop.inbox() == Counter()
    assert [state for state, *_ in shop.states()] == ["reprocessed"]


def test_rows_of_a_batch_that_is_not_committed_wait(shop: Shop) -> None:
    """They may yet be withdrawn; a reprocessing takes them once the batch is committed."""
    shop.batch(2, [("pending", BAD)], commit=False)
    shop.reprocess()
    assert shop.inbox() == ALL


def test_a_file_that_could_not_be_read_is_reprocessed_with_its_content(shop: Shop, tmp_path: Path) -> None:
    """It is told from a line by the log; its lines go in, not its name.

    One that is gone is said, and waits. A name may look like a pattern.
    """
    there, other, gone = tmp_path / "there [1]*.jsonl", tmp_path / "{t}here:?", tmp_path / "gone.jsonl"
    why = "the file changed after it was listed"
    shop.batch(
        2, [(str(path), why) for path in (there, other, gone)], facts={str(path): why for path in (there, other, gone)}
    )
    there.write_text("one\ntwo\n")
    other.write_text("four\n")

    report = shop.reprocess("--batch", "2")
    assert shop.inbox() == Counter(["one", "two", "four"])
    assert any("gone.jsonl does not exist any more" in warning for warning in report.warnings)

    gone.write_text("three\n")
    shop.reprocess("--batch", "2")
    assert shop.inbox() == Counter(["one", "two", "three", "four"])


def test_what_would_all_be_invalid_again_is_refused(shop: Shop) -> None:
    """Without a correction a reprocessing would only make the same rows once more; nothing is begun."""
    shop.batch(2, [("{bad 1", BAD), ("{bad 2", BAD)])
    with pytest.raises(Refused, match="invalid again"):
        shop.reprocess("--batch", "2")
    assert shop.states() == []


def test_expired_are_sets_of_their_own(shop: Shop) -> None:
    """An expired record and an invalid row of one batch are reprocessed by themselves."""
    shop.batch(2, [("expired", "it was first seen before the dedup horizon")], kind="expired")
    shop.reprocess("--expired")
    assert shop.inbox() == Counter(["expired"])
    shop.reprocess()
    assert shop.inbox() == ALL + Counter(["expired"])


def test_nothing_that_has_not_run_is_reprocessed(log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A pipeline without `events` is refused with the command that comes first."""
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    make_home()
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", log.url)
    monkeypatch.setenv("ONLYONCE_PIPELINES", SHOP)
    with pytest.raises(Refused) as refused:
        reprocess.main(["shop", "--invalid", "--yes"])
    assert "onlyonce run shop" in refused.value.hint
