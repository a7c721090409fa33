"""A declaration's identity over a renamed code base: on the real PostgreSQL, without Spark."""

from __future__ import annotations

from onlyonce.commitlog import batches, units
from onlyonce.database.connect import run
from onlyonce.declare import loading as declarations
from onlyonce.model.units import UnitId
from tests.contract.conftest import Log, plan_of
from tests.contract.operate.test_plan import start
from tests.support import renamed, shop
from tests.support.other_process import done_apart


def test_a_begun_batch_goes_on_after_every_class_was_renamed(log: Log) -> None:
    """A unit of the batch is committed, so another identity would be refused; the log keeps one declaration."""
    driver = start(log, shop.SHOP, "per_shop")
    plan = plan_of(driver, declaration_hash=declarations.fingerprint(shop.SHOP, "per_shop"))
    run(log.database, lambda conn: batches.begin(conn, driver, "shop", plan, None))
    claimed = units.Claim(UnitId(driver.lineage, plan.batch_id, "per_shop", 0), driver.epoch, "driver", "witness")
    run(log.database, lambda conn: units.claim(conn, claimed))

    count, replayed, begun, now = done_apart(renamed.go_on, log.url, driver, plan)

    assert count > 50
    assert (replayed, begun, now) == (True, plan.declaration_hash, plan.declaration_hash)
    assert log.rows("SELECT hash FROM onlyonce_private.declarations WHERE query = 'per_shop'") == [
        (plan.declaration_hash,)
    ]
