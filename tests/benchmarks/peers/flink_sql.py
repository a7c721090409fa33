"""Flink: the first row by id, from JSON files to Parquet, in SQL; or each row as it is. Exactly-once checkpoints of two seconds.

Run as `python flink_sql.py INPUT OUTPUT heap|rocksdb|append JAR`, by the environment of the peers.
"""

import sys
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

COLUMNS = "id STRING, `user` BIGINT, `at` STRING, amount BIGINT, kind STRING, note STRING"
NAMES = "id, `user`, `at`, amount, kind, note"


def main(source: Path, target: Path, state: str, jar: Path) -> None:
    """Run the job to its end."""
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in {
        "parallelism.default": "2",
        "execution.checkpointing.interval": "2 s",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.dir": f"file://{target.parent}/checkpoints",
        "state.backend.type": "rocksdb" if state == "rocksdb" else "hashmap",
        "taskmanager.memory.managed.size": "1g",
        "pipeline.jars": f"file://{jar}",
    }.items():
        env.get_config().set(name, value)
    env.execute_sql(
        f"CREATE TABLE deliveries ({COLUMNS}, came AS PROCTIME()) WITH ('connector' = 'filesystem', 'path' = 'file://{source}', 'format' = 'json')"
    )
    env.execute_sql(f"CREATE TABLE kept ({COLUMNS}) WITH ('connector' = 'filesystem', 'path' = 'file://{target}', 'format' = 'parquet')")
    first = "(SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY came) AS place FROM deliveries) WHERE place = 1"
    env.execute_sql(f"INSERT INTO kept SELECT {NAMES} FROM {'deliveries' if state == 'append' else first}").wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
