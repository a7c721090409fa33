"""A declaration's identity over a renamed code base: on the real PostgreSQL, without Spark."""

from __future__ import annotations

from onlyonce.api import load as declarations
from onlyonce.commitlog import units
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.units import Units
from onlyonce.core.units import UnitId
from tests.contract.conftest import Log, plan_of
from tests.contract.operate.test_plan import start
from tests.support import renamed, shop
from tests.support.other_process import done_apart


def test_a_begun_batch_goes_on_after_every_class_was_renamed(log: Log) -> None:
    """A unit of the batch is committed, so another identity would be refused; the log keeps one declaration."""
    driver = start(log, shop.SHOP, "per_shop")
    plan = plan_of(driver, declaration_hash=declarations.fingerprint(shop.SHOP, "per_shop"))
    Batches(log.database).begin(driver, "shop", plan, None)
    claimed = units.Claim(UnitId(driver.incarnation, plan.batch_id, "per_shop", 0), driver.epoch, "driver", "reference")
    Units(log.database).claim(claimed)

    count, replayed, begun, now = done_apart(renamed.go_on, log.url, driver, plan)

    assert count > 50
    assert (replayed, begun, now) == (True, plan.declaration_hash, plan.declaration_hash)
    assert log.rows("SELECT hash FROM onlyonce_private.declarations WHERE query = 'per_shop'") == [
        (plan.declaration_hash,)
    ]
