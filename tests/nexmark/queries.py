"""The functions of the queries: plain DataFrames, so that the benchmark can run them without the platform too."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

TEN_SECONDS = 10_000_000
SIDES = 10
"""How many keys the side input of query 13 has."""


def bids(events: DataFrame) -> DataFrame:
    """The bids."""
    return events.where("kind = 'bid'")


def q1(events: DataFrame) -> DataFrame:
    """Currency conversion: prices in euros."""
    return bids(events).select("id", "auction", "bidder", "at", (F.col("price") * 908 / 1000).alias("euros"))


def q2(events: DataFrame) -> DataFrame:
    """Selection: bids for some auctions."""
    return bids(events).where("auction % 123 = 0").select("id", "auction", "price")


def q3_people(events: DataFrame) -> DataFrame:
    """Local items: people of three states."""
    local = events.where("kind = 'person' AND state IN ('OR', 'ID', 'CA')")
    return local.select(F.col("person").alias("seller"), "oo_event_time", "name", "city", "state")


def q3_auctions(events: DataFrame) -> DataFrame:
    """Local items: auctions of category 10."""
    return events.where("kind = 'auction' AND category = 10").select("seller", "oo_event_time", "auction")


def q9(events: DataFrame) -> DataFrame:
    """Winning bids: of each auction the highest bid from its opening until it expires; of two the earlier one, then the
    one with the higher id.

    Grouped, not joined: an auction and its bids are one session."""
    bid = F.struct("price", (-F.unix_micros("at")).alias("earlier"), "id", "bidder")
    opened = F.max(F.when(F.col("kind") == "auction", F.unix_micros("at"))).alias("opened")
    them = F.collect_list(F.when(F.col("kind") == "bid", bid)).alias("bids")
    grouped = events.where("kind <> 'person'").groupBy("oo_window", "auction")
    whole = grouped.agg(
        F.max("category").alias("category"),
        F.max("seller").alias("seller"),
        F.max("expires").alias("expires"),
        opened,
        them,
    )
    best = F.array_max(F.expr("filter(bids, bid -> -bid.earlier BETWEEN opened AND unix_micros(expires))")).alias("bid")
    columns = ("oo_window", "auction", "category", "seller", "expires", "bid.id", "bid.bidder", "bid.price")
    return whole.select("*", best).where("bid IS NOT NULL").select(*columns)


def q4(events: DataFrame) -> DataFrame:
    """Average price of each category: what each auction adds to its sum and its number. The sink adds them up."""
    return q9(events).select("oo_window", "category", F.col("price").alias("total"), F.lit(1).alias("auctions"))


def q5_counts(events: DataFrame) -> DataFrame:
    """Hot items: bids of each auction in each sliding window."""
    return bids(events).groupBy("oo_window", "auction").agg(F.count(F.lit(1)).alias("bids"))


def q5(counts: DataFrame) -> DataFrame:
    """Hot items: in each window the auctions with the most bids."""
    most = F.max("bids").over(Window.partitionBy("oo_window"))
    return counts.withColumn("most", most).where("bids = most").select("oo_window", "auction", "bids")


def q7_prices(events: DataFrame) -> DataFrame:
    """Highest bid: bids of each price in each window."""
    them = F.collect_list(F.struct("id", "auction", "bidder"))
    return bids(events).groupBy("oo_window", "price").agg(them.alias("bids"))


def q7(prices: DataFrame) -> DataFrame:
    """Highest bid: in each window the bids of the highest price."""
    most = F.max("price").over(Window.partitionBy("oo_window"))
    highest = prices.withColumn("most", most).where("price = most")
    return highest.select("oo_window", "price", F.explode("bids").alias("bid")).select(
        "oo_window", "price", "bid.id", "bid.auction", "bid.bidder"
    )


def _ten_seconds() -> object:
    return F.floor(F.unix_micros("oo_event_time") / TEN_SECONDS).alias("ten_seconds")


def q8_people(events: DataFrame) -> DataFrame:
    """New users: people by when they registered."""
    return events.where("kind = 'person'").select("person", _ten_seconds(), "oo_event_time", "name")  # type: ignore[arg-type]


def q8_sellers(events: DataFrame) -> DataFrame:
    """New users: sellers by when they opened an auction."""
    opened = events.where("kind = 'auction'")
    return opened.select(F.col("seller").alias("person"), _ten_seconds(), "oo_event_time", "auction")  # type: ignore[arg-type]


def q11(events: DataFrame) -> DataFrame:
    """User sessions: bids of each bidder in each of his sessions."""
    return bids(events).groupBy("oo_window", "bidder").agg(F.count(F.lit(1)).alias("bids"))


def q12(events: DataFrame) -> DataFrame:
    """Processing time windows: bids of each bidder by when they came, which the platform has noted."""
    ten = F.floor(F.unix_micros("oo_ingestion_time") / TEN_SECONDS).alias("ten_seconds")
    return bids(events).groupBy(ten, "bidder").agg(F.count(F.lit(1)).alias("bids"))


def q13(events: DataFrame, side: DataFrame) -> DataFrame:
    """Bounded side input: each bid with a value of a table."""
    keyed = bids(events).withColumn("key", F.col("auction") % SIDES)
    return keyed.join(side, "key").select("id", "auction", "bidder", "price", "value")


RANKS = {"low": "price < 10000", "middle": "price >= 10000 AND price < 1000000", "high": "price >= 1000000"}


def q16(events: DataFrame) -> DataFrame:
    """Channel statistics: of each channel and day how many bids, bidders and auctions, in all and by rank of the price.

    A stream has no COUNT(DISTINCT): sets are collected, and their size is taken."""
    ranked = bids(events).withColumn(
        "rank", F.expr(f"CASE WHEN {RANKS['low']} THEN 'low' WHEN {RANKS['middle']} THEN 'middle' ELSE 'high' END")
    )
    counts = [F.count(F.lit(1)).alias("bids"), F.max(F.date_format("at", "HH:mm")).alias("minute")]
    counts += [F.count(F.when(F.col("rank") == rank, 1)).alias(f"{rank}_bids") for rank in RANKS]
    for column in ("bidder", "auction"):
        counts.append(F.size(F.collect_set(column)).alias(f"{column}s"))
        counts += [
            F.size(F.collect_set(F.when(F.col("rank") == rank, F.col(column)))).alias(f"{rank}_{column}s")
            for rank in RANKS
        ]
    return ranked.groupBy("oo_window", "channel").agg(*counts)


def q18(events: DataFrame) -> DataFrame:
    """Last bid: of each bidder and auction the last one; of two at once the one with the higher id."""
    last = F.max(F.struct("at", "id", "price", "channel")).alias("last")
    return (
        bids(events)
        .groupBy("oo_window", "bidder", "auction")
        .agg(last)
        .select("oo_window", "bidder", "auction", "last.*")
    )


def q20_bids(events: DataFrame) -> DataFrame:
    """Expanded bids: the bids."""
    return bids(events).select("auction", "oo_event_time", "id", "bidder", "price")


def q20_auctions(events: DataFrame) -> DataFrame:
    """Expanded bids: auctions of category 10."""
    return events.where("kind = 'auction' AND category = 10").select("auction", "oo_event_time", "item", "seller")
