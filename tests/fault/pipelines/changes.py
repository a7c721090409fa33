"""Changes of a database by Debezium's envelope, into upserts with deletes and a history: what the source has."""

from __future__ import annotations

from typing import Any

from deltalake import DeltaTable

from onlyonce import settings
from tests.fault.pipelines.case import DELTA, POSTGRES, Case
from tests.support import changes_of_a_table as source
from tests.support import debezium_messages as messages
from tests.support import framed_messages, schema_registry
from tests.support.debezium_messages import ENVELOPE, text

HISTORY = (
    "SELECT key, position, value, extract(epoch FROM valid_from) * 1000, extract(epoch FROM valid_to) * "
    "1000, is_current FROM results.customers_history"
)


class Changes(Case):
    """A snapshot and the changes after it are one stream: delivered again, out of order, cut in batches; duplicates are
    told."""

    declared = "tests/support/customers.py"
    names = ("customers",)
    points = (*DELTA, *POSTGRES, *("delta-before-deletes", "delta-after-deletes") * 4, "postgres-unit-after-delete")
    connector = "postgresql"

    def begin(self) -> None:
        """A topic of two partitions."""
        broker = self.request.getfixturevalue("broker")
        self.topic = broker.topic("customers", partitions=2)
        self.client = broker.producer()
        self.give_setting(CUSTOMERS_TOPIC=self.topic, CUSTOMERS_SERVERS=broker.servers)
        self.changes = source.made(self.chance, keys=9, changes=70)
        self.delivered = source.delivered(self.chance, self.changes)

    def message(self, change: source.Change) -> Any:
        """As the connector writes it."""
        make = messages.of_postgres if self.connector == "postgresql" else messages.of_mysql
        return text(make(change), schema=self.chance.random() < 0.3)

    def give(self, step: int) -> None:
        """A part of the changes, each key in both partitions, with tombstones."""
        size = -(-len(self.delivered) // self.steps)
        for change in self.delivered[step * size : (step + 1) * size]:
            self.client.produce(self.topic, self.message(change), partition=change.value % 2)
            if change.deleted:
                self.client.produce(self.topic, None, change.key, partition=0)
        assert self.client.flush(60) == 0

    def check(self) -> None:
        """See there."""
        there = self.sql("SELECT key, value, position FROM results.customers")
        in_lake = DeltaTable(str(settings.tables_dir() / "customers")).to_pyarrow_table().to_pylist()
        assert sorted((row["key"], row["value"], row["position"]) for row in in_lake) == sorted(
            zip(there.key, there.value, there.position, strict=True)
        )
        assert sorted(zip(there.key, there.value, strict=True)) == sorted(
            (key, value) for key, _, value in source.table(self.changes)
        )
        gone = self.sql("SELECT key FROM results.customers_deleted")
        newest = source.newest(self.changes).values()
        assert sorted(gone.key) == sorted(one.key for one in newest if one.deleted)
        fates = self.sql(
            "SELECT sum(kept)::int, sum(duplicate)::int FROM onlyonce.conservation WHERE query = 'receive'"
        )
        assert [*fates.iloc[0]] == [len(self.changes), len(self.delivered) - len(self.changes)]
        if self.connector == "postgresql":
            assert sorted(zip(there.key, there.position, strict=True)) == sorted(
                (one.key, messages.position(one)) for one in newest if not one.deleted
            )
            assert self.versions() == versions_of(self.changes)
        self.check_books()

    def versions(self) -> set[tuple[Any, ...]]:
        """The history, times as milliseconds since noon."""
        found = self.sql(HISTORY)
        return {
            (
                key,
                position,
                value,
                int(since) - messages.NOON,
                None if until is None else int(until) - messages.NOON,
                current,
            )
            for key, position, value, since, until, current in found.astype(object)
            .where(found.notna(), None)
            .itertuples(index=False)
        }


class ChangesOfMySQL(Changes):
    """By the binlog's position."""

    connector = "mysql"


class ChangesInAvro(Changes):
    """With a registry."""

    def begin(self) -> None:
        """Which is there as long as the test."""
        super().begin()
        serving = schema_registry.running()
        registry = serving.__enter__()
        self.request.addfinalizer(lambda: serving.__exit__(None, None, None))
        self.give_setting(CUSTOMERS_REGISTRY=registry.url)
        self.serializers = framed_messages.Serializers(registry.url, self.topic)

    def message(self, change: source.Change) -> Any:
        """See there."""
        return self.serializers.avro(ENVELOPE, messages.of_postgres(change))


def versions_of(seen: list[source.Change]) -> set[tuple[Any, ...]]:
    """What the history must be."""
    text_of = {(one.key, one.position): messages.position(one) for one in seen}
    return {(key, text_of[key, position], *rest) for key, position, *rest in source.history(seen)}
