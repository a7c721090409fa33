"""The names that are stored, and read again by a later version: an interface from format 1 on.

The comment of each section names where the names are stored and who reads them. A name that changes here makes other
data unreadable. So a test compares each with a literal and the whole list with a hash. Names of SQL tables, views and
columns are in `sql`. Fields of some dataclasses are stored under their own names. The same test lists both. Names that
live only within one Spark query are not here.
"""

from __future__ import annotations

# Incarnations, batches and units.
# Stored in the log (`incarnations.incarnation`, `units.unique_id`), in notes of commits, in messages and in result
# files. Read by a replay, `onlyonce trace`, a sender's idempotency keys and the audit.


def incarnation(instance: str, query: str, ordinal: int) -> str:
    """Name one incarnation of a query."""
    return f"{instance}/{query}/{ordinal}"


def batch(incarnation: str, batch_id: int) -> str:
    """Name a batch."""
    return f"{incarnation}/{batch_id}"


def unit(incarnation: str, batch_id: int, sink: str, partition: int) -> str:
    """Name a unit."""
    return f"{incarnation}/{batch_id}/{sink}/{partition}"


def idempotency_key(unit: str, seq: int, checkpoint_id: str) -> str:
    """Name a row of the outbox for its receiver. `checkpoint_id`: the checkpoint's id, which no other platform has."""
    return f"{unit}/{seq}@{checkpoint_id}"


def unit_sequence(incarnation: str, sink: str, partition: str, checkpoint_id: str) -> str:
    """Name the units of one partition of all batches; a key in the topic that says what a Kafka sink has written."""
    return f"{incarnation}/{sink}/{partition}@{checkpoint_id}"


def transactional_id(prefix: str, deliverer: str) -> str:
    """Name a deliverer to Kafka, which fences an older deliverer of the same name."""
    return f"{prefix}/{deliverer}"


# Transactions of Delta tables.
# Stored as `txn.appId` in the logs of `events`, the manifests, staged rows and result tables. Read before each commit,
# by `onlyonce reset` and by the doctor. A transaction's version is the batch, the marker or the number of the removal.
EVENTS_BY = "events"
MARKER_BY = "marker"
CONTROL_BY = "control"
STAGED_BY = "staged"
FILES_BY = "files"
RANGES_BY = "ranges"
SOURCE_BATCHES_BY = "source_batches"
COMPACTION_BY = "compaction"
RETENTION_BY = "retention"
USED_UP = "/used up"
"""The end of the id of a second transaction, which marks that the first has no rows."""
FENCED_BY = "fenced"
"""Transactions of an incarnation of receive whose version is an epoch: no driver of an earlier one commits a batch."""


def transaction(incarnation: str, by: str) -> str:
    """Name the transactions of an incarnation to one of the platform's own tables."""
    return f"{incarnation}/{by}"


def numbered(transaction: str, number: int) -> str:
    """Name one transaction of one of the platform's own tables; it is the `unit` of its note."""
    return f"{transaction}/{number}"


def receive_note(incarnation: str, batch_id: int) -> str:
    """Name the commit of a receive batch to `events`; it is the `unit` of its note."""
    return f"{batch(incarnation, batch_id)}/{EVENTS_BY}"


def housekeeping(instance: str, by: str) -> str:
    """Name the transactions that rewrite or remove rows of `events`; no incarnation of receive has number 0."""
    return transaction(incarnation(instance, "receive", 0), by)


def writer(platform: object, incarnation: str) -> str:
    """Name an incarnation in a result table, where other platforms may write too."""
    return f"{platform}/{incarnation}"


def result_transaction(platform: object, incarnation: str, output: str) -> str:
    """Name the transactions of an output to its Delta table."""
    return f"{writer(platform, incarnation)}/{output}"


# Notes of commits and marks on tables.
# Stored in Delta's `commitInfo.userMetadata`, in properties of Delta and Iceberg tables, in comments of PostgreSQL and
# MySQL tables, and in a file of a folder. Read before each commit, at each start, and by `onlyonce drop`.
NOTE_APP_ID = "app_id"
NOTE_VERSION = "version"
NOTE_UNIT = "unit"
WITHDRAWN = "withdrawn by: onlyonce reset"
OWNER_PROPERTY = "onlyonce.owner"
OWNER_FILE = "_onlyonce_owner"
OWNER_NOTE = "written by onlyonce, platform "
KEEPS_PROPERTY = "onlyonce.keeps"
ICEBERG_PREFIX = "onlyonce."
DELETED_NOTE = "onlyonce: keys of rows that were deleted from the table next to it"
BY_WINDOW_NOTE = "onlyonce: what each window has added to the sums of the table next to it"
DELETED_SUFFIX = "_deleted"
BY_WINDOW_SUFFIX = "_by_window"


# Locks and sessions.
# Stored in `onlyonce_private.locks` and in `application_name` of PostgreSQL's sessions. Read by each driver that takes
# a lock, and by the statements that end the sessions of older drivers (sql/migrations/platform.sql, MySQL's).


def catalog_lock(instance: str) -> str:
    """Name the lock under which chunks of an instance are dropped, merged or replaced."""
    return f"catalog/{instance}"


def buckets_lock(instance: str) -> str:
    """Name the lock under which the tables of an instance's buckets are created."""
    return f"buckets/{instance}"


def long_run_lock(instance: str) -> str:
    """Name the lock of the driver that runs a pipeline continuously."""
    return f"long_run/{instance}"


def deliverer_lock(name: str) -> str:
    """Name the lock of an output's deliverer."""
    return f"deliverer/{name}"


def schema_lock(name: str) -> str:
    """Name the lock under which the tables of a sink's schema are created."""
    return f"schema/{name}"


SESSION = "onlyonce"
"""The session of a process that is not a driver."""


def driver_session(incarnation_no: int, epoch: int | str) -> str:
    """Name the sessions of one driver. `epoch` is `%` to match the sessions of all drivers of an incarnation."""
    return f"{SESSION}/{incarnation_no}/{epoch}"


def sink_session(platform: str, incarnation_no: int, epoch: int | str) -> str:
    """Name the sessions of one driver in a sink's own database. Several platforms may write there, and each numbers its
    incarnations: `platform` is the beginning of the platform's id.
    """
    return f"{SESSION}@{platform}/{incarnation_no}/{epoch}"


def task_session(session: str, work: str) -> str:
    """Name the session of one task of a driver."""
    return f"{session}/{work}"


# Columns of `events`, of staged rows and of Spark's state.
# Stored in Parquet files and partition folders, and in Spark's checkpoints: state is kept by `oo_window`, and a
# processor or a join keeps whole rows. Read by outputs, backfills, `onlyonce trace`, the audit and erasures.
OO_PREFIX = "oo_"
OO_KIND = "oo_kind"
OO_HIGH = "oo_high"
OO_LOW = "oo_low"
OO_EVENT_TIME = "oo_event_time"
OO_INGESTION_TIME = "oo_ingestion_time"
OO_INCARNATION = "oo_incarnation"
OO_BATCH = "oo_batch"
OO_PARTITION = "oo_partition"
OO_FRONTIER = "oo_frontier"
OO_REASON = "oo_reason"
OO_RAW = "oo_raw"
OO_UNKNOWN = "oo_unknown"
OO_PLACE = "oo_place"
OO_WINDOW = "oo_window"
"""Not in `events`: the key of Spark's state, and a column that functions read."""

OO_BYTES = "oo_bytes"
"""Not a column: the entry of a file's footer that says how many bytes its rows take in memory."""

# Values of `oo_kind`. Stored as folders (`oo_kind=kept`).
KEPT = "kept"
INVALID = "invalid"
EXPIRED = "expired"
CONTROL = "control"

# Columns that the platform adds to result tables, or that a function adds to its rows for the platform.
# Read by sinks, backfills, the audit, and people.
WINDOW_START = "window_start"
WINDOW_END = "window_end"
WINDOW_DATE = "window_date"
VALID_FROM = "valid_from"
VALID_TO = "valid_to"
IS_CURRENT = "is_current"

# Columns of the manifests of sources (`files`, `ranges`, `source_batches`), and keys of `batches.source_to`. Read by a
# replay, by `onlyonce reset`, by the archive and by views.
BATCH_NO = "batch_no"
SOURCE_BATCH_NO = "source_batch_no"
SOURCE = "source"
SEEN_AT = "seen_at"
FILES_COLUMNS = (
    "batch_no long, path string, size long, modified_ns long, lines long, refusal string, root string, "
    "cuts array<long>, quoted_within long"
)
PARTS_COLUMNS = f"{FILES_COLUMNS}, identity string, begins long, ends long, mark string"
"""For a source that is read in ranges of files or parts, or of objects, whose ETag is the mark."""
RANGES_COLUMNS = (
    "batch_no long, place string, topic_id string, part int, first long, until long, refusal string, asked string, "
    "seen_at timestamp"
)
SOURCE_BATCHES_COLUMNS = (
    "batch_no long, source string, source_batch_no long, records long, known string, seen_at timestamp"
)
MARK_TABLE = "table"
MARK_AT = "at"
MARK_SHARED = "shared"
"""Keys in the `mark` of a file of a Delta table: the table's id, its location, and values that all rows share."""

# Other keys of JSON in the log: `batches.source_from`, `source_to`, `facts`, `incarnations.start_from`.
# Read by a replay and by the next incarnation. Spark names the first two.
RESERVOIR_VERSION = "reservoirVersion"
RESERVOIR_INDEX = "index"
FIRST_READING = "first_reading"  # in a position: the last version of the snapshot that is read in parts
LINES = "lines"
LOST = "lost"
OFFSETS = "offsets"
STATELESS = "stateless"
STAGED = "staged"
"""The outputs of a batch whose rows are staged, in its `facts`."""
START_VERSION = "version"
AFTER_BATCH_NO = "after_batch_no"  # receive: the last batch of the manifest that earlier incarnations have read
COUNTED_UPTO = "counted_upto"  # the last version of `events` that earlier incarnations have read
CLOSED_BY = "closed_by"  # the version by whose frontier earlier incarnations have written windows
ROWS_FROM = "rows_from"  # the first version to read if the output keeps no state: it writes rows as it reads them
FIRST_WINDOW = "first_window"  # windows that start before this time are left out
KEPT_FROM = "kept_from"  # the event time from which `events` had all records when the incarnation began
FROM_START = "from_start"  # the incarnation removes all rows of the target, and writes them again
LOOKUP_VERSION = "version"
LOOKUP_TABLE = "table"
"""For each lookup in `batches.lookups` and `panes.lookups`."""


# Airflow: DAGs, tags, tasks, assets, triggers and links.
# Stored in Airflow's database. Read by Airflow, by people's own DAGs and alerts, by the demo and `onlyonce pause`.
STREAM_TAG = "stream"
BACKFILL_TAG = "backfill"
ASSET_GROUP = "onlyonce"
COMMITS_ROUTE = "commits"
PAGE_ROUTE = "exactly-once"
LONG_RUN_TRIGGER = "onlyonce.airflow.triggers.LongRunEnd"
WINDOWS_TRIGGER = "onlyonce.airflow.triggers.OpenWindows"
AUDIT_DAG = "audit"
CATALOG_GC_DAG = "catalog_gc"
DELIVER_OUTBOX_DAG = "deliver_outbox"
FINALIZE_FILES_DAG = "finalize_files"
COMPACT_TABLES_DAG = "compact_tables"
ASK_SOURCES_DAG = "ask_sources"
RUN_TASK = "run"
PULL_TASK = "pull"
DELIVER_TASK = "deliver"
FINALIZE_TASK = "finalize"
BACKFILL_TASK = "backfill"
CONSERVATION_TASK = "conservation"
ALERTS_TASK = "alerts"
DOCTOR_TASK = "doctor"
GC_TASK = "drop_old_ids"
MAINTAIN_TASK = "compact_closed_windows"
ASK_TASK = "ask"


def stream_id(pipeline: str, prefix: str | None = None) -> str:
    """Name the DAG that runs a pipeline."""
    return f"{prefix or ''}{pipeline}_stream"


def backfill_id(pipeline: str, prefix: str | None = None) -> str:
    """Name the DAG that recomputes a pipeline's closed windows."""
    return f"{prefix or ''}{pipeline}_backfill"


def housekeeping_id(name: str, prefix: str | None = None) -> str:
    """Name a DAG for all pipelines: `onlyonce_audit`, or with the prefix in place of `onlyonce_`."""
    return f"{'onlyonce_' if prefix is None else prefix}{name}"


def pipeline_tag(pipeline: str) -> str:
    """Name the tag of each DAG that drives a pipeline, whatever the DAG is called."""
    return f"pipeline:{pipeline}"


def deliver_task(pipeline: str) -> str:
    """Name the task that sends for one pipeline in the DAG for all."""
    return f"{DELIVER_TASK}_{pipeline}"


def asset_alias(pipeline: str) -> str:
    """Name the alias that the tasks of a pipeline declare as their outlet."""
    return f"{ASSET_GROUP}/{pipeline}"


def asset(pipeline: str, output: str) -> str:
    """Name an output's table as the DAGs that follow it do."""
    return f"{pipeline}/{output}"


def asset_uri(pipeline: str, output: str) -> str:
    """Return an asset's address."""
    return f"{ASSET_GROUP}://{pipeline}/{output}"


# Folders and files, of the home, of ONLYONCE_DATA and of result folders.
# Read by each run, `onlyonce doctor`, `drop`, `forget`, backups and people.
DATA_FOLDER = "data"
TABLES_FOLDER = "tables"
RESULT_FILES_FOLDER = "files"
INBOX_FOLDER = "inbox"
CHECKPOINTS_FOLDER = "checkpoints"
EVENTS_FOLDER = "events"
STAGED_FOLDER = "staged"
SOURCES_FOLDER = "sources"
FILES_MANIFEST = "files"
RANGES_MANIFEST = "ranges"
SOURCE_BATCHES_MANIFEST = "source_batches"
BLOCKS_FOLDER = "blocks"
TRIALS_FOLDER = "trials"
LOOKUPS_FOLDER = "@lookups"
INBOXES_FILE = "inboxes.json"
FORMAT_FILE = "format"
CLAIM_FILE = "onlyonce.json"
CHECKS_FOLDER = "checks"
DROPPED_PREFIX = ".dropped-"
PARTIAL_SUFFIX = ".partial"
PENDING_FOLDER = ".pending"
PARTS_FOLDER = "parts"
MANIFESTS_FOLDER = "_manifests"
PULLED_PREFIX = "pubsub-"
REPROCESSED_PREFIX = "reprocessed-"
RESULT_FILE = "{prefix}-{window_start}-{window_end}-pane-{pane}-{shard}-of-{shards}.{ext}"
NO_WINDOW = "global"


def reprocessed_file(kind: str, number: int) -> str:
    """Name the input file that holds reprocessed rows."""
    return f"{REPROCESSED_PREFIX}{kind}-{number:06}.jsonl"


def temporary_file(incarnation_no: int, batch_id: int, output: str, partition: int, epoch: int, attempt: str) -> str:
    """Name the files of one attempt of a sharded output, except their number and extension."""
    return f"{incarnation_no}-{batch_id}-{output}-{partition}.epoch-{epoch}.{attempt}"


def attempt_folder(ordinal: int | str, kind: str, version: int, random: str) -> str:
    """Name the folder in which one attempt writes data files of `events` or of a manifest."""
    return f"{ordinal}-{kind}-{version}-{random}"


# Schemas and roles of PostgreSQL, and the prefix of tables in MySQL.
# Read by `sql`, by people's clients and grants.
VIEWS_SCHEMA = "onlyonce"
PRIVATE_SCHEMA = "onlyonce_private"
READER_ROLE = "onlyonce_reader"


def catalog_table(instance_no: int) -> str:
    """Name the table of an instance's record ids, a partition of `catalog_chunks`."""
    return f"catalog_{instance_no}"


def bucket_table(instance_no: int, bucket: int) -> str:
    """Name the table of one bucket of an instance's record ids."""
    return f"{catalog_table(instance_no)}_{bucket}"
