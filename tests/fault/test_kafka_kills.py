"""SIGKILL of the driver while it reads a topic, and of the broker under it: results as if nothing had been."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from onlyonce.core.errors import Retryable
from tests.fault import ledger
from tests.fault.test_kills import await_stopped
from tests.support import shop_oracle
from tests.support.broker import Broker
from tests.support.check_shop import check, pairs
from tests.support.ended_runs import ended_at
from tests.support.platform import JOB_TIMEOUT, Platform
from tests.support.topics import Shop, ids

pytestmark = [pytest.mark.spark, pytest.mark.fault]

SHOP = "tests/support/topic_shop.py"
CHAINS = {
    "registered": ["receive-registered", "receive-before-begin", "receive-after-begin"],
    "units": ["receive-unit-after-claim", "receive-unit-before-commit", "receive-unit-after-commit"],
    "ends": ["receive-after-delta", "receive-before-end", "receive-after-end"],
}
AWAY = 75


def put_all(shop: Shop, partitions: int) -> None:
    """Sales with re-deliveries, an aborted transaction among them."""
    [sales] = shop_oracle.sales(240, 1, duplicates=0.2)
    half = len(sales) // 2
    shop.send_sales(sales[:half], partitions)
    producer = shop.broker.producer(transactional_id=shop.topic)
    producer.init_transactions(30)
    producer.begin_transaction()
    shop.add(producer, 0, sales[0] | {"id": "aborted"})
    producer.abort_transaction(30)
    shop.send_sales(sales[half:], partitions)


@pytest.mark.slow
@pytest.mark.parametrize("chain", CHAINS)
def test_kills_do_not_show(
    new_platform: Callable[..., Platform], spark: object, broker: Broker, monkeypatch: pytest.MonkeyPatch, chain: str
) -> None:
    """A kill at each step of receive, more messages after each, then the same command: the result of no kill."""
    platform = new_platform(SHOP)
    shop = Shop(broker, broker.topic("shop", partitions=2))
    shop.name(platform, monkeypatch, SHOP_OFFSETS="120")
    put_all(shop, 2)

    for number, point in enumerate(CHAINS[chain]):
        code, output = platform.run_killed(point, "shop", "--close")
        assert platform.struck(point) >= 1, f"{point} was never passed:\n{output[-3000:]}"
        assert code == -signal.SIGKILL, f"{point}: exit {code}\n{output[-3000:]}"
        [more] = shop_oracle.sales(10, 1, first=1000 + 10 * number)
        shop.send(number % 2, *more)
    platform.run("shop", "--close")

    files = shop.batches(platform)
    assert sum(map(len, files)) == len(shop.put), "each message is in one batch"
    for point in CHAINS[chain]:
        ledger.compared(
            "spark: kill", point, f"kafka {chain}", pairs(platform, files) if point == CHAINS[chain][-1] else []
        )
    check(platform, files)


@pytest.mark.whole
def test_a_killed_driver_reads_each_offset_once(
    new_platform: Callable[..., Platform], spark: object, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the rows in `events` and the end of the batch, by position: the replay reads the same and adds
    nothing."""
    platform = new_platform(SHOP)
    shop = Shop(broker, broker.topic("shop", partitions=2))
    shop.name(platform, monkeypatch, SHOP_BY="place", SHOP_OFFSETS="1000")
    put_all(shop, 2)

    assert ended_at(platform, monkeypatch, "receive-after-delta")
    [more] = shop_oracle.sales(10, 1, first=1000)
    shop.send(1, *more)
    platform.run("shop")

    assert ids(platform) == shop.ids()
    assert [len(batch) for batch in shop.batches(platform)] == [len(shop.put) - len(more), len(more)]


@pytest.mark.slow
def test_a_broker_killed_in_mid_run_does_not_show(
    new_platform: Callable[..., Platform], spark: object, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker dies when a batch has begun and comes back on its data: the run, or the next one, ends with the result
    of no kill; while it is away a run says so and changes nothing."""
    platform = new_platform(SHOP)
    shop = Shop(broker, broker.topic("shop", partitions=2))
    shop.name(platform, monkeypatch, SHOP_OFFSETS="120", SHOP_PATIENCE="10000")
    put_all(shop, 2)
    folder = platform.home / "failpoints"
    folder.mkdir()

    driver = platform.start(
        "shop", "--close", ONLYONCE_FAILPOINT_DIR=str(folder), ONLYONCE_FAILPOINTS="receive-after-begin:2:stop"
    )
    await_stopped(driver.pid)
    broker.kill()
    driver.send_signal(signal.SIGCONT)
    try:
        with pytest.raises(Retryable, match="does not answer"):
            platform.run("shop")
    finally:
        broker.start()
    output, _ = driver.communicate(timeout=JOB_TIMEOUT)
    # The epoch of the run that found no broker has fenced it, or it has failed to read.
    assert driver.returncode in (AWAY, 69), output[-3000:]
    platform.run("shop", "--close")

    files = shop.batches(platform)
    assert sum(map(len, files)) == len(shop.put)
    check(platform, files)
