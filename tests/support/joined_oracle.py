"""The rows of a join of two streams, by a plain join over the same records."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.support.cut_records import Record, at, floor
from tests.support.joined_shop import WITHIN

COLUMNS = ("window_start", "shop", "order_id", "payment_id", "cents")


def distinct(files: list[list[Record]]) -> list[Record]:
    """Each record once."""
    return list({one["id"]: one for file in files for one in file}.values())


def joined(them: list[Record], kind: str) -> Counter[Any]:
    """(window, shop, order, payment, cents) by a plain join."""
    orders, payments = ([one for one in them if one["kind"] == side] for side in ("order", "payment"))
    pairs: list[tuple[Record | None, Record | None]] = [
        (order, payment)
        for order in orders
        for payment in payments
        if order["shop"] == payment["shop"] is not None and abs(at(order) - at(payment)) <= WITHIN
    ]
    met = {one["id"] for pair in pairs for one in pair if one}
    pairs += [(order, None) for order in orders if order["id"] not in met and kind in ("left", "full")]
    pairs += [(None, payment) for payment in payments if payment["id"] not in met and kind in ("right", "full")]
    return Counter(map(_row, pairs))


def _row(pair: tuple[Record | None, Record | None]) -> tuple[Any, ...]:
    order, payment = pair
    first: Record = order or payment or {}
    return (
        floor(at(first)),
        first["shop"],
        order and order["id"],
        payment and payment["id"],
        payment and payment["cents"],
    )
