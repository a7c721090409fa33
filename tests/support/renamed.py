"""A begun batch that goes on in a process where every class of the declarations and of the model has another name."""

from __future__ import annotations

import sys

from onlyonce.api import load as declarations
from onlyonce.commitlog import incarnations
from onlyonce.commitlog.batches import Batches
from onlyonce.commitlog.incarnations import Declarations, Driver, Incarnations
from onlyonce.core.batch import Plan
from onlyonce.database.connect import Database
from tests.support import shop

ROOMS = ("onlyonce.api", "onlyonce.core")


def classes() -> list[type]:
    """Return every class that an imported module of the declarations or of the model defines."""
    modules = [module for name, module in sys.modules.items() if name.startswith(ROOMS)]
    return [
        one
        for module in modules
        for one in list(vars(module).values())
        if isinstance(one, type) and one.__module__ == module.__name__
    ]


def go_on(url: str, driver: Driver, plan: Plan) -> tuple[int, bool, str, str]:
    """Rename the classes, start a driver of per_shop and begin its batch again.

    Return how many classes were renamed, whether the batch is a replay, its hash in the log, and the declaration's hash
    now.
    """
    renamed = classes()
    for number, one in enumerate(renamed):
        one.__name__ = one.__qualname__ = f"Renamed{number}"
    now, parts = declarations.fingerprint(shop.SHOP, "per_shop"), declarations.parts(shop.SHOP, "per_shop")
    database, again = Database(url), plan.__class__(**vars(plan) | {"declaration_hash": now})
    live = Incarnations(database).live("shop", "per_shop")
    assert live is not None
    Declarations(database).go_on(live, incarnations.Declared("shop", "per_shop", now, parts))
    batch = Batches(database).begin(driver, "shop", again, None)
    return len(renamed), batch.replayed, str(batch.plan.declaration_hash), now
