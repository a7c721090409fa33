"""Flink: the first row by id, from JSON files or a topic of Kafka to Parquet, in SQL; or each row as it is.

Exactly-once checkpoints of two seconds.

Run as `python flink_sql.py INPUT OUTPUT heap|rocksdb|append JAR…`, by the environment of the peers. INPUT is a folder,
or `kafka://HOST:PORT/TOPIC`.
"""

import sys
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

COLUMNS = "id STRING, `user` BIGINT, `at` STRING, amount BIGINT, kind STRING, note STRING"
NAMES = "id, `user`, `at`, amount, kind, note"


def main(source: str, target: Path, state: str, jars: list[Path]) -> None:
    """Run the job to its end."""
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in {
        "parallelism.default": "2",
        "execution.checkpointing.interval": "2 s",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.dir": f"file://{target.parent}/checkpoints",
        "state.backend.type": "rocksdb" if state == "rocksdb" else "hashmap",
        "taskmanager.memory.managed.size": "1g",
        "pipeline.jars": ";".join(f"file://{jar}" for jar in jars),
    }.items():
        env.get_config().set(name, value)
    env.execute_sql(
        f"CREATE TABLE deliveries ({COLUMNS}, came AS PROCTIME()) WITH ({_read(source)}, 'format' = 'json')"
    )
    env.execute_sql(
        f"CREATE TABLE kept ({COLUMNS}) WITH ('connector' = 'filesystem', 'path' = 'file://{target}', 'format' = "
        "'parquet')"
    )
    first = "(SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY came) AS place FROM deliveries) WHERE place = 1"
    env.execute_sql(f"INSERT INTO kept SELECT {NAMES} FROM {'deliveries' if state == 'append' else first}").wait()


def _read(source: str) -> str:
    if not source.startswith("kafka://"):
        return f"'connector' = 'filesystem', 'path' = 'file://{source}'"
    servers, topic = source.removeprefix("kafka://").split("/")
    bounds = "'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset'"
    return f"'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}', {bounds}"


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], [Path(jar) for jar in sys.argv[4:]])
