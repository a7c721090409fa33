"""The input of the benchmarks: JSON lines of about 150 bytes, some of them delivered again, by a seed.

A delivery is new, or one of an earlier record with the same content: any earlier one, so that a re-delivery may be
as old as the input. Event time goes on with the records, a day in all. Made by Spark, before anything is timed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SCHEMA = "id string, user long, at timestamp, amount long, kind string, note string"
FILES_A_BATCH = 2
"""One for each core of the smallest machine."""
START = 1_767_225_600_000_000
DAY = 86_400_000_000


@dataclass(frozen=True)
class Input:
    """What is delivered: so many lines in so many batches, of which a share was delivered before."""

    lines: int
    batches: int
    seed: int
    again: float = 0.05

    @property
    def in_batch(self) -> int:
        """The lines of one batch."""
        return self.lines // self.batches

    def make(self, spark: SparkSession, folder: Path) -> list[list[Path]]:
        """Write the files; gives those of each batch."""
        made = folder / "made"
        count = self.batches * FILES_A_BATCH
        rows = spark.range(0, self.in_batch * self.batches, 1, count).select(self._number().alias("n"))
        rows.select(self._line()).write.text(str(made))
        files = []
        for number, part in enumerate(sorted(made.glob("part-*"))):
            files.append(part.rename(folder / f"{number:04d}.jsonl"))
        return [files[at : at + FILES_A_BATCH] for at in range(0, count, FILES_A_BATCH)]

    def _number(self) -> F.Column:
        # The number of the record that a delivery brings: its own, or an earlier one.
        delivery = F.col("id")
        chance = F.pmod(F.xxhash64(F.lit(self.seed), delivery), F.lit(1_000_000))
        earlier = F.pmod(F.xxhash64(F.lit(self.seed + 1), delivery), F.greatest(delivery, F.lit(1)))
        return F.when(chance < int(self.again * 1_000_000), earlier).otherwise(delivery)

    def _line(self) -> F.Column:
        n = F.col("n")
        at = F.timestamp_micros(F.lit(START) + n * F.lit(DAY // self.lines))
        record = F.struct(
            F.md5(F.concat(F.lit(f"{self.seed} "), n.cast("string"))).alias("id"),
            F.pmod(F.xxhash64(n), F.lit(100_000)).alias("user"),
            at.alias("at"),
            F.pmod(F.xxhash64(n, F.lit(2)), F.lit(100_000)).alias("amount"),
            F.element_at(F.array(*map(F.lit, ("view", "cart", "order"))), (n % 3 + 1).cast("int")).alias("kind"),
            F.lpad(F.conv(F.pmod(F.xxhash64(n, F.lit(3)), F.lit(1 << 40)).cast("string"), 10, 36), 16, "-").alias(
                "note"
            ),
        )
        return F.to_json(record, {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"})


def read(spark: SparkSession, files: list[list[Path]]) -> DataFrame:
    """All that is delivered, as one bounded read."""
    return spark.read.schema(SCHEMA).json([str(file) for batch in files for file in batch])


def differing(spark: SparkSession, one: DataFrame, other: DataFrame) -> int:
    """How many distinct rows two frames don't have equally often: 0 when they are the same multiset."""
    # By 128 bits of each row: millions of rows as they are do not fit the memory of two tasks.
    bits = [F.xxhash64(F.lit(half), *one.columns).alias(f"bits{half}") for half in (1, 2)]
    both = one.select(*bits, F.lit(1).alias("side")).unionAll(other.select(*bits, F.lit(-1).alias("side")))
    return both.groupBy("bits1", "bits2").agg(F.sum("side").alias("more")).filter("more <> 0").count()
