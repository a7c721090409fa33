"""A backfill that sends its rows again: once it has ended, under new keys, and nothing of an attempt that was
killed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from onlyonce.api.pipeline import BigQuery, Files, Output, Pipeline, Webhook
from onlyonce.commitlog import outbox
from onlyonce.commitlog.backfills import Backfills, Request
from onlyonce.commitlog.incarnations import Driver
from onlyonce.commitlog.outbox import OutboxRows
from onlyonce.core.backfill import Span
from onlyonce.core.errors import Superseded
from onlyonce.core.windows import Fixed
from onlyonce.database.statements import make_home
from onlyonce.outputs import backfill
from onlyonce.sinks.outbox import deliver
from tests.contract.conftest import Log
from tests.contract.outboxes import Outbox, Row, ids, sales
from tests.support.endpoints import Endpoint

DAY = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
NOTHING = {"windows": 0, "rows": 0, "in_time": 0, "late": 0}


@pytest.fixture
def box(log: Log) -> Outbox:
    """The outbox of a webhook."""
    return Outbox(log)


@dataclass
class Attempt:
    """One attempt at a backfill of some hours, by the functions of the product; who leaves it there has killed it."""

    box: Outbox
    hours: tuple[int, int] = (0, 3)
    asked: Request = field(init=False)
    driver: Driver = field(init=False)
    number: int = field(init=False)

    def __post_init__(self) -> None:
        span = Span.of(DAY + self.hours[0] * HOUR, DAY + self.hours[1] * HOUR)
        self.asked = Request("shop", self.box.output, span, "person", "d1")
        database = self.box.log.database
        self.driver = Backfills(database).open_incarnation(self.asked, "run")
        self.number = Backfills(database).begin(self.driver, self.asked, 7)

    def put(self, rows: Sequence[Row]) -> str:
        """Its unit."""
        return self.box.commit(self.driver, self.number, rows)

    def end(self) -> None:
        """The transaction that ends it."""
        Backfills(self.driver.session(self.box.log.database)).end(
            self.driver, self.asked, self.number, self.asked.span, {}, NOTHING
        )


def hook(endpoint: Endpoint) -> Webhook:
    """A webhook that does not wait long."""
    return Webhook(url=f"{endpoint.url}/mail", keys=("shop",), pause=timedelta(milliseconds=5))


def named(prefix: str, number: int) -> list[Row]:
    """Sales whose ids say who has made them."""
    return [row | {"id": f"{prefix}-{row['id']}"} for row in sales(number)]


def test_rows_of_a_backfill_are_sent_once_it_has_ended_and_under_new_keys(box: Outbox) -> None:
    """Before that no deliverer sees them; an end whose answer was lost and is done again sends nothing twice."""
    rows = sales(12)
    box.put(rows)
    with Endpoint() as endpoint:
        box.deliver(hook(endpoint))
        again = Attempt(box)
        unit = again.put(rows)
        assert box.deliver(hook(endpoint))
        assert endpoint.ids() == ids(rows)
        assert box.states() == Counter({("delivered",): 12, ("held",): 12})

        again.end()
        assert box.states() == Counter({("delivered",): 12, ("waiting",): 12})
        box.deliver(hook(endpoint))
        again.end()
        box.deliver(hook(endpoint))

    assert endpoint.ids() == ids(rows) + ids(rows)
    assert len({request.key for request in endpoint.requests}) == len(endpoint.requests) == 24
    assert {request.key for request in endpoint.requests if request.key.startswith(f"{unit}/")} == {
        key for (key,) in box.log.rows("SELECT idempotency_key FROM onlyonce.outbox WHERE unit = %s", unit)
    }
    assert box.states() == Counter({("delivered",): 24})


def test_rows_of_killed_attempts_are_never_sent(box: Outbox) -> None:
    """However many there were: the endpoint has the rows of the attempt that ended, and the outbox nothing of the
    others, also where the code has changed between them."""
    with Endpoint(honours=False) as endpoint:
        for number in range(2):
            Attempt(box).put(named(f"killed{number}", 5))
            box.deliver(hook(endpoint))
        last = Attempt(box)
        last.put(named("ended", 5))
        last.end()
        box.deliver(hook(endpoint))
        # The same backfill once more is another one: it throws away nothing of the one that has ended.
        once_more = Attempt(box)
        once_more.put(named("again", 5))
        once_more.end()
        box.deliver(hook(endpoint))

    assert endpoint.ids() == ids(named("ended", 5)) + ids(named("again", 5))
    assert box.states() == Counter({("delivered",): 10})


@pytest.mark.parametrize(
    ("hours", "left"),
    [((0, 3), []), ((1, 2), []), ((0, 5), [(3, 4)]), ((-1, 4), [(-1, 0), (3, 4)]), ((5, 6), [(5, 6)])],
)
def test_a_retry_leaves_out_what_its_run_has_sent(
    box: Outbox, hours: tuple[int, int], left: list[tuple[int, int]]
) -> None:
    """Of the windows that it is asked for, those that backfills of its run have sent since its work began."""
    since = datetime.now(UTC)
    for done in ((0, 3), (4, 5)):
        assert known_left(box, done, since) == [done]
        attempt = Attempt(box, done)
        attempt.put(sales(5))
        assert known_left(box, done, since) == [done]
        attempt.end()

    assert known_left(box, hours, since) == left
    assert known_left(box, hours, datetime.now(UTC)) == [hours]
    assert known_left(box, hours, since, run_id="another run") == [hours]
    assert known_left(box, hours, since, output="another") == [hours]


def known_left(
    box: Outbox, hours: tuple[int, int], since: datetime, run_id: str = "run", output: str | None = None
) -> list[tuple[int, int]]:
    """The hours that a run has not sent since then."""
    start, stop = (DAY + hour * HOUR for hour in hours)
    left = Backfills(box.log.database).left_of_run(run_id, "shop", output or box.output, Span.of(start, stop), since)
    return [((part.times[0] - DAY) // HOUR, (part.times[1] - DAY) // HOUR) for part in left]


def test_an_attempt_that_was_overtaken_can_neither_add_rows_nor_let_them_go(box: Outbox) -> None:
    """Its epoch fences its tasks and its end, so nothing of it comes after the look of the next one."""
    dead = Attempt(box)
    dead.put(named("dead", 4))
    alive = Attempt(box)
    with pytest.raises(Superseded):
        box.commit(dead.driver, dead.number + 7, named("zombie", 4))
    alive.put(named("alive", 4))
    with pytest.raises(Superseded):
        dead.end()

    assert box.states() == Counter({("held",): 4})
    alive.end()
    assert box.states() == Counter({("waiting",): 4})
    assert box.ids("true") == set(ids(named("alive", 4)))


@pytest.mark.parametrize("seed", range(2))
def test_any_order_of_kills_ends_and_deliveries_sends_what_ended_once(box: Outbox, seed: int) -> None:
    """Over two intervals side by side, beside the stream, whose rows wait at once.

    What is begun is held, and it only.
    """
    chance, expected, held = random.Random(seed), Counter[str](), dict[tuple[int, int], Counter[str]]()
    under_way: dict[tuple[int, int], Attempt] = {}
    with Endpoint() as endpoint:
        for step in range(16):
            rows = named(f"{step}", chance.randint(1, 4))
            hours = chance.choice([(0, 3), (3, 13)])
            match chance.choice(["stream", "begin", "begin", "end", "deliver"]):
                case "stream":
                    box.put(rows)
                    expected += ids(rows)
                case "begin":
                    under_way[hours] = Attempt(box, hours)
                    under_way[hours].put(rows)
                    held[hours] = ids(rows)
                case "end" if hours in under_way:
                    under_way.pop(hours).end()
                    expected += held.pop(hours)
                case _:
                    box.deliver(hook(endpoint))
            assert Counter(box.ids("state = 'held'")) == sum(held.values(), Counter())
        box.deliver(hook(endpoint))

    assert endpoint.ids() == expected
    assert len(endpoint.requests) == expected.total()


def test_a_held_row_keeps_no_row_of_its_key_waiting(box: Outbox) -> None:
    """The stream goes on while a backfill is at work; the rows that are let go come before later ones that still
    wait."""
    one = Attempt(box)
    one.put([{"id": "again", "shop": "a", "n": 0}])
    box.put([{"id": "now", "shop": "a", "n": 1}])
    with Endpoint() as endpoint:
        box.deliver(hook(endpoint))
        box.put([{"id": "later", "shop": "a", "n": 2}])
        one.end()
        box.deliver(hook(endpoint))

    assert [body["id"] for body in endpoint.effects] == ["now", "again", "later"]


def test_what_is_let_go_waits_from_then_on(box: Outbox) -> None:
    """The lag of the delivery does not count the hours that the backfill took, nor what is held."""
    one = Attempt(box)
    one.put(sales(2))
    lag = "SELECT records_waiting, system_lag < interval '1 day' FROM onlyonce.lag WHERE stage = 'notify/deliver'"
    box.log.rows("UPDATE onlyonce_private.outbox SET committed_at = committed_at - interval '9 days'")
    assert box.log.rows(lag) == []

    one.end()

    assert box.log.rows(lag) == [(2, True)]


def test_the_report_names_what_is_held_and_what_it_waits_for(
    box: Outbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is not delivered, and no dead letter: --retry-dead leaves it as it is."""
    Attempt(box).put(sales(3))
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", box.log.url)
    monkeypatch.setenv("ONLYONCE_HOME", str(tmp_path))
    make_home()
    monkeypatch.setenv("ONLYONCE_PIPELINES", "tests/support/sending.py")

    report = deliver.main(["shop", "--retry-dead"])

    [left] = report.tables["not delivered"]
    assert (left["output"], left["state"], left["rows"]) == ("notify", "held", 3)
    [warning] = report.warnings
    assert warning.startswith("shop/notify: 3 row(s) are held")
    assert "onlyonce.backfills" in warning
    assert box.states() == Counter({("held",): 3})


def test_a_row_that_was_begun_can_not_be_held(box: Outbox) -> None:
    """Nothing that may have been sent is ever thrown away with an attempt."""
    box.put(sales(1))
    deliverer, _ = OutboxRows(box.log.database).take_over("shop", box.output, outbox.Policy(3, timedelta(0)))
    [(row, _)] = OutboxRows(box.log.database).next_rows(deliverer, 0, 10, ordered=True)
    OutboxRows(box.log.database).begin(deliverer, [row])

    with pytest.raises(psycopg2.errors.CheckViolation, match="outbox_held_was_never_begun"):
        box.log.rows("UPDATE onlyonce_private.outbox SET state = 'held'")


@pytest.mark.parametrize("sink", [Webhook(url="https://a"), BigQuery(table="p.d.t")])
def test_a_dry_run_says_that_rows_are_sent_again(log: Log, sink: Any) -> None:
    """By the word of the declaration."""
    log.start("shop", "notify")
    output = Output(name="notify", transform="a:b", sink=sink, window=Fixed(HOUR), on_backfill="resend")
    shop = Pipeline(
        name="shop",
        source=Files(),
        schema="id string, at timestamp",
        record_id=("id",),
        event_time="at",
        outputs=(output,),
    )

    report = backfill.dry_run(log.database, shop, [output], Span.of(DAY, DAY + HOUR))

    assert [row["a backfill would"] for row in report.tables["sinks"]] == ["resend"]
