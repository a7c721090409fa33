"""The mutants as data: what is broken, by which change of which file, and which tests must fail. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

LONG_LOG = "tests/contract/commitlog/test_long_log.py::"
INTERLEAVINGS = "tests/contract/commitlog/test_interleavings.py::"
EPOCHS = "tests/contract/commitlog/test_epochs.py::"
BATCHES = "tests/contract/commitlog/test_batches.py::"
SHARED = "tests/unit/catalog/test_shared_files.py::"
ALIKE = "tests/unit/sources/test_alike_lines.py::"
RECEIVE = "tests/contract/receive/test_receive_unit.py::"
LAYOUTS = "tests/contract/receive/test_layouts.py::"
POSTGRES = "tests/contract/sinks/test_postgres_unit.py::"
MYSQL = "tests/contract/sinks/test_mysql_sink.py::"
ICEBERG = "tests/contract/sinks/test_iceberg_sink.py::"
STREAMS = "tests/contract/sinks/test_deliver_bigquery_stream.py::"
LOST = "tests/contract/database/test_lost_answers.py::"
UPSERT = "tests/spark/sinks/test_delta_upsert.py::"
CONTENT = "tests/spark/sinks/test_content_hash.py::"
CHANGES = "tests/storage/test_changes.py::"
READING = "tests/spark/sources/test_reading.py::"
SPARKS_OWN = "tests/spark/storage/test_own_tables.py::"
COMMITS = "tests/storage/test_commits.py::"
COPY = "tests/storage/test_working_copy.py::"
OWN = "tests/contract/storage/test_own_tables.py::"
UNITS = "tests/unit/model/test_model_units.py::"
SAMPLE = "tests/fault/matrix/test_every_point.py::test_a_sample_of_kills_does_not_show"
FILES = "tests/contract/sinks/test_files.py::"
REJECTED = "tests/spark/outputs/test_rejected.py::"
REJECTIONS = "tests/contract/outputs/test_rejections.py::"
ARRAYS = "tests/contract/database/test_arrays.py::"
DELIVER = "tests/contract/sinks/test_deliver.py::"
IN_BATCHES = "tests/contract/sinks/test_deliver_batches.py::"
PARCELS = "tests/unit/model/sinks/test_model_parcels.py::"
BIGQUERY = "tests/contract/sinks/test_deliver_bigquery.py::"
KAFKA = "tests/contract/sinks/test_kafka_sink.py::"
DELTA = "tests/contract/sinks/test_delta_once.py::"
TABLES = "tests/unit/sources/test_table_"
NEWEST = "tests/contract/sinks/test_newest_rows.py::"
DELTA_HISTORY = "tests/spark/sinks/test_delta_history.py::"
MYSQL_NEWEST = "tests/contract/sinks/test_mysql_newest.py::"
TURNS = "tests/contract/commitlog/test_turns.py::"
TARGETS = "tests/contract/sinks/test_targets.py::"
LONG = "tests/spark/run/test_long_run.py::"
AUTHORITIES = "tests/contract/commitlog/test_authorities.py::"
ZOMBIES = "tests/fault/matrix/test_drivers.py::test_a_zombie_that_wakes_at_an_end_is_fenced"


@dataclass(frozen=True)
class Mutant:
    """A build with one thing broken. Each change is (text that is there once, text in its place)."""

    name: str
    broken: str
    file: str
    changes: tuple[tuple[str, str], ...]
    tests: tuple[str, ...]
    spark: bool = False

    @property
    def is_sql(self) -> bool:
        """Whether the file is of SQL."""
        return self.file.endswith(".sql")


def changed(mutant: Mutant, text: str) -> str:
    """The text of the mutant's file, broken. Raises AssertionError when the product has moved on under it."""
    for old, new in mutant.changes:
        assert text.count(old) == 1, f"mutant {mutant.name}: {mutant.file} has {text.count(old)} times {old!r}"
        text = text.replace(old, new)
    return text


_CLAIM = """do(
        connection, "units", "claim",
        unique_id=str(unit), lineage=unit.lineage, batch_id=unit.batch_id, sink=unit.sink, partition=unit.partition,
        epoch=wanted.epoch, attempt=wanted.attempt, kind=wanted.kind,
    )"""

_ALL = (
    Mutant(
        "check-then-write", "a unit is looked for first and inserted at the end, instead of claimed first",
        "onlyonce/commitlog/units.py",
        (
            ("def claim(connection", "_WANTED: dict = {}\n\n\ndef claim(connection"),
            (
                f"    ours = {_CLAIM}",
                "    _WANTED[str(unit)] = wanted\n    ours = find(connection, unit) is None",
            ),
            ("    fates: dict[str, Any] = dict.fromkeys(", f"    wanted = _WANTED[str(unit)]\n    {_CLAIM}\n    fates = dict.fromkeys("),
        ),
        (
            INTERLEAVINGS + "test_of_two_attempts_one_writes_its_rows_in_every_interleaving",
            POSTGRES + "test_twins_of_one_unit_write_once",
        ),
    ),
    Mutant(
        "no-epoch-check", "a commit does not check the epoch", "onlyonce/commitlog/lineages.py",
        (("    if not rows or rows[0].epoch != epoch:\n", "    if not rows:\n"),),
        (EPOCHS + "test_a_driver_that_was_overtaken_claims_nothing", ZOMBIES),
    ),
    Mutant(
        "epoch-without-lock", "the epoch is read by a plain SELECT", "sql/units.sql",
        (("WHERE lineage = :lineage FOR SHARE", "WHERE lineage = :lineage"),),
        (EPOCHS + "test_a_bump_waits_for_a_commit_that_has_checked_where_it_may_not_end_its_session",),
    ),
    Mutant(
        "closed-life-goes-on", "a driver that has looked up its life takes an epoch of it though it was closed since", "sql/lineages.sql",
        ((" WHERE lineage = :lineage AND state <> 'closed'", " WHERE lineage = :lineage"),),
        (EPOCHS + "test_a_driver_gets_no_epoch_of_a_life_that_was_closed_since_it_looked",),
    ),
    Mutant(
        "older-sessions-live-on", "a bump does not end the sessions of older drivers: a stalled one blocks it",
        "onlyonce/commitlog/lineages.py",
        (('    ask(connection, "lineages", "end_older_sessions", name_prefix=f"onlyonce/{lineage.number}/%", below=None)\n', ""),),
        (EPOCHS + "test_the_newer_driver_writes_what_the_zombie_could_not",),
    ),
    Mutant(
        "naive-ids", "a unit's id is (batch, sink, partition), without its lineage", "onlyonce/model/units.py",
        (('f"{self.lineage}/{self.batch_id}/{self.sink}/{self.partition}"', 'f"{self.batch_id}/{self.sink}/{self.partition}"'),),
        (UNITS + "test_the_unique_id_reads_as_lineage_batch_sink_partition", RECEIVE + "test_an_earlier_life_is_seen_whatever_its_batch_ids"),
    ),
    Mutant(
        "observed-partition", "receive's unit takes the partition that Spark runs, not the one that its rows carry",
        "onlyonce/receive/receive_unit.py",
        (("    return int(records.high[seeds[0]])", "    return TaskContext.get().partitionId() if TaskContext.get() else 0"),),
        (RECEIVE + "test_a_partition_with_nothing_but_its_seed_has_its_unit", SAMPLE),
    ),
    Mutant(
        "rows-of-any-partition", "a Postgres unit takes whatever rows Spark gives its task", "onlyonce/sinks/postgres/pinned.py",
        (("        if targets not in ([], [unit.partition]):", "        if False:"),),
        (POSTGRES + "test_rows_of_another_partition_stop_the_unit",),
    ),
    Mutant(
        "stream-for-each-attempt", "an attempt begins a write stream of its own, and not that of the unit", "onlyonce/sinks/outbox/bigquery_stream.py",
        (("        name = self._streams.find(unit) or self._new(unit)\n", "        name = self._new(unit)\n"),),
        (STREAMS + "test_of_two_that_write_a_unit_at_once_one_is_seen",),
    ),
    Mutant(
        "stream-uncounted", "a write stream is committed without the server's count of its rows", "onlyonce/sinks/outbox/bigquery_stream.py",
        (("        if counted != number:", "        if False:"),),
        (STREAMS + "test_a_stream_with_a_part_of_the_rows_is_not_committed",),
    ),
    Mutant(
        "mysql-of-any-sign", "rows come into MySQL in the character set of its database", "onlyonce/sinks/mysql/mysql_rows.py",
        (("LONGTEXT CHARACTER SET utf8mb4 PATH", "LONGTEXT PATH"),),
        (MYSQL + "test_texts_arrive_as_they_are[append]",),
    ),
    Mutant(
        "mysql-zombie-lives-on", "a newer driver does not end an older one's sessions in MySQL, which hold the epoch",
        "onlyonce/commitlog/lineages.py",
        (("        mysql.end_older_sessions(connection, driver.number, driver.epoch)\n", ""),),
        (MYSQL + "test_a_driver_that_was_overtaken_writes_nothing",),
    ),
    Mutant(
        "mysql-any-engine", "a table of an engine without transactions is taken", "onlyonce/sinks/mysql/mysql_table.py",
        (('table.kind != "BASE TABLE" or table.engine != "InnoDB"', 'table.kind != "BASE TABLE"'),),
        (MYSQL + "test_a_table_that_cannot_keep_the_promise_is_refused_unchanged[MyISAM]",),
    ),
    Mutant(
        "mysql-window-first", "an upsert sets the end of the window before the columns that depend on it", "onlyonce/sinks/mysql/mysql_upsert.py",
        (("        order = [*others, *(c for c in reversed(latest) if c not in work.keys)] or", "        order = [c for c in self.columns if c not in work.keys] or"),),
        (MYSQL + "test_an_upsert_without_the_window_keeps_the_row_of_the_later_one",
         MYSQL_NEWEST + "test_the_order_is_that_of_all_columns_and_of_the_bytes_of_texts"),
    ),
    Mutant(
        "mysql-by-the-language", "texts are compared by the collation of their column", "onlyonce/sinks/mysql/mysql_upsert.py",
        (("USING utf8mb4) AS BINARY)\" if column in self.texts else value", "USING utf8mb4) AS BINARY)\" if False else value"),),
        (MYSQL_NEWEST + "test_the_order_is_that_of_all_columns_and_of_the_bytes_of_texts",),
    ),
    Mutant(
        "mysql-deleted-and-forgotten", "a key that was deleted is not remembered, so an older update brings its row back", "onlyonce/sinks/mysql/mysql_upsert.py",
        (("        for statement in (REMEMBER, DELETE, FORGET):\n", "        for statement in (DELETE, FORGET):\n"),),
        (MYSQL_NEWEST + "test_an_older_change_does_not_bring_a_deleted_row_back_and_a_newer_one_does",),
    ),
    Mutant(
        "mysql-altered-in-a-unit", "the table of the arriving rows gets a column by ALTER, which commits the claim before its rows", "onlyonce/sinks/mysql/mysql_upsert.py",
        (("        self.run(STAGE, mark=f", "        self.run('ALTER TABLE {target} COMMENT = \\'\\'')\n        self.run(STAGE, mark=f"),),
        (MYSQL_NEWEST + "test_the_table_is_what_the_source_has[upsert-1]",),
    ),
    Mutant(
        "mysql-delete-ends-no-version", "a version goes on behind the delete of its row", "onlyonce/sinks/mysql/mysql_history.py",
        (("        arriving.run(ENDED)\n", "        pass\n"),),
        (MYSQL_NEWEST + "test_a_version_that_comes_late_stands_between_its_neighbours_and_so_does_a_delete",),
    ),
    Mutant(
        "iceberg-unconditional", "a commit to an Iceberg table does not require that its branch is where it was", "onlyonce/sinks/iceberg/commits.py",
        (("AssertTableUUID(uuid=table.metadata.table_uuid), AssertRefSnapshotId(ref=BRANCH, snapshot_id=at.snapshot_id if at else None))",
          "AssertTableUUID(uuid=table.metadata.table_uuid),)"),),
        (ICEBERG + "test_rows_that_others_commit_between_look_and_commit_stay",),
    ),
    Mutant(
        "iceberg-one-look", "after a conflict a batch is committed to an Iceberg table without another look", "onlyonce/sinks/iceberg/commits.py",
        (("                if (there := look(table.metadata, commit)) is not None:\n", "                if False:\n"),),
        (ICEBERG + "test_a_batch_that_a_twin_commits_between_look_and_commit_is_there_once",),
    ),
    Mutant(
        "iceberg-snapshots-only", "only the snapshots of an Iceberg table say which batches it has, and they expire", "onlyonce/sinks/iceberg/commits.py",
        (("    change.set_properties({commit.key: commit.note()})\n", ""),),
        (ICEBERG + "test_a_batch_whose_snapshots_have_expired_is_not_written_again",),
    ),
    Mutant(
        "iceberg-any-epoch", "an overtaken driver commits to an Iceberg table", "onlyonce/sinks/iceberg/commits.py",
        (('    if newest and newest["epoch"] > commit.epoch:\n', "    if False:\n"),),
        (ICEBERG + "test_a_driver_that_was_overtaken_commits_nothing",),
    ),
    Mutant(
        "iceberg-of-anybody", "an Iceberg table that says whose it is may be written by another output", "onlyonce/sinks/iceberg/owners.py",
        (("    if there != owner:\n", "    if False:\n"),),
        (ICEBERG + "test_a_table_belongs_to_one_output",),
    ),
    Mutant(
        "skipped-witness", "a receive unit that is in the log is skipped: its rows are not emitted again",
        "onlyonce/receive/receive_unit.py",
        (
            ("            _commit(here, records, fates, counts)\n", "            if not _commit(here, records, fates, counts):\n                return\n"),
            ("    if run(work.database, write):\n        catalog_lookup.remember(work.database, place, stored, filtered)\n", "    return run(work.database, write)\n"),
        ),
        (RECEIVE + "test_a_replay_gives_the_same_fates_again_in_any_order_and_cut", SAMPLE),
    ),
    Mutant(
        "data-unit-again", "a Postgres unit that is in the log writes its rows again", "onlyonce/sinks/postgres/postgres_unit.py",
        (("        if there is not None:\n            for _ in batches:", "        if False:\n            for _ in batches:"),),
        (POSTGRES + "test_a_replay_writes_nothing_and_gives_the_same", LOST + "test_an_increment_whose_answer_was_lost_is_not_added_again", SAMPLE),
    ),
    Mutant(
        "content-not-compared", "a unit that is in the log passes, whatever the replay holds", "onlyonce/model/units.py",
        (("    if there.same_as(meant):\n", "    if True:\n"),),
        (INTERLEAVINGS + "test_a_twin_with_other_content_is_stopped_and_writes_nothing", RECEIVE + "test_a_replay_of_other_records_stops"),
    ),
    Mutant(
        "nulls-not-counted", "a null counts as nothing in a row's hash, wherever it is", "onlyonce/sinks/content_hash.py",
        (("    return F.when(reduce(or_, nulls), told).otherwise(", "    return F.when(reduce(or_, nulls) & F.lit(False), told).otherwise("),),
        (CONTENT + "test_a_row_has_the_hash_that_earlier_versions_have_given_it",),
    ),
    Mutant(
        "half-a-hash", "a part of each hash is not added up", "onlyonce/sinks/content_hash.py",
        (("F.shiftright(hashed, 32)", "F.shiftright(hashed, 40)"),),
        (CONTENT + "test_spark_and_a_task_count_the_same_content",),
    ),
    Mutant(
        "plans-in-the-session", "a sink turns adaptive execution off in the session that others plan in", "onlyonce/session/adaptive.py",
        (("    copy = session.cloneSession()\n", "    copy = session\n"),),
        (CONTENT + "test_a_frame_planned_once_is_the_same_and_its_session_as_it_was",),
    ),
    Mutant(
        "floats-exact", "sums of floats are compared exactly, which stops a healthy job", "onlyonce/model/units.py",
        (("isclose(one, other, rel_tol=FLOAT_TOLERANCE)", "False"),),
        (UNITS + "test_float_sums_pass_in_any_order_of_the_rows", POSTGRES + "test_float_sums_in_another_order_pass_and_other_floats_stop"),
    ),
    Mutant(
        "errors-swallowed", "a COMMIT that failed counts as done", "onlyonce/database/connect.py",
        (("            connection.invalidate()\n            raise CommitStateUnknown(", "            connection.invalidate()\n            return\n            raise CommitStateUnknown("),),
        (LOST + "test_a_transaction_cut_at_its_commit_is_neither_done_nor_failed", LOST + "test_a_unit_whose_commit_did_not_arrive_is_retryable_and_passes_the_second_time"),
    ),
    Mutant(
        "others-time-limit", "a statement of ours ends where the database or role has a time limit for other work", "onlyonce/database/connect.py",
        ((', "statement_timeout": "0"', ""),),
        ("tests/contract/database/test_sessions.py::test_no_time_limit_of_a_database_or_role_ends_a_statement_of_ours",),
    ),
    Mutant(
        "chunk-by-its-key", "a worker knows a chunk by its key and its number of ids, not by what it holds", "onlyonce/catalog/chunks.py",
        (("r.id_count, r.ids_hash)", "r.id_count, None)"), ("len(packed) // BYTES, ids_hash(packed))", "len(packed) // BYTES, None)")),
        ("tests/contract/receive/test_poison.py::test_a_worker_forgets_a_chunk_that_was_taken_back[as many]",),
    ),
    Mutant(
        "torn-file-trusted", "a worker trusts a shared file by its name, whatever is in it", "onlyonce/catalog/shared_files.py",
        (("held[: _HEADER.size] == _header(name, [content])", "held[:4] == MAGIC"),),
        (SHARED + "test_a_file_whose_content_does_not_fit_is_not_trusted_and_written_again[its end was never written]",),
    ),
    Mutant(
        "folder-of-anybody", "workers share files in a folder that others can write", "onlyonce/catalog/shared_files.py",
        (("if there.st_uid != os.geteuid() or stat.S_IMODE(there.st_mode) & 0o077:", "if False:"),),
        (SHARED + "test_a_folder_that_another_user_can_enter_is_not_used[group's too]",),
    ),
    Mutant(
        "file-by-its-count", "a shared file is named by the number of ids that are in it, and not by these", "onlyonce/catalog/worker_cache.py",
        (("repr((self.instance, self.of.id_count, hashes))", "repr((self.instance, self.of.id_count))"),),
        ("tests/contract/catalog/test_range_filters.py::test_what_is_found_is_what_a_plain_set_has_after_any_history[1]",),
    ),
    Mutant(
        "refused-in-two-steps", "that a batch refuses a record is committed before its units are taken back", "onlyonce/commitlog/failures.py",
        (
            ('    do(connection, "relive", "withdraw_units", **names)\n', ""),
            (
                '    do(connection, "failures", "refuse", refused=told, **names)\n',
                '    do(connection, "failures", "refuse", refused=told, **names)\n    connection.exec_driver_sql("COMMIT; BEGIN")\n'
                '    do(connection, "relive", "withdraw_units", **names)\n',
            ),
        ),
        ("tests/contract/receive/test_poison.py::test_a_kill_while_a_record_is_refused_does_not_show[poison-before-commit]",),
    ),
    Mutant(
        "end-of-another-driver", "a driver's end is noted though another has begun since", "sql/driver_runs.sql",
        ((" AND pipeline = :pipeline AND attempt = :attempt", " AND pipeline = :pipeline"),),
        ("tests/contract/commitlog/test_driver_runs.py::test_a_driver_that_ends_after_another_has_begun_says_nothing_of_it",),
    ),
    Mutant(
        "kept-as-it-is-written", "what a check has found is written in place", "onlyonce/check/kept.py",
        (('file.with_name(f".{file.name}.{os.getpid()}")', "file"),),
        ("tests/unit/check/test_check_kept.py::test_a_kill_while_a_check_is_kept_leaves_all_of_it_or_what_was_there",),
    ),
    Mutant(
        "copy-for-each-row", "a unit's rows come into their table one by one", "onlyonce/sinks/postgres/postgres_unit.py",
        (("        _copy(cursor, _text(\"COPY {table} ({columns}) FROM STDIN (FORMAT csv)\", names, cursor), _Csv(first, rest))",
          "        for batch in (first, *rest):\n            for n in range(batch.num_rows):\n                _copy(cursor, "
          "_text(\"COPY {table} ({columns}) FROM STDIN (FORMAT csv)\", names, cursor), _Csv(batch.slice(n, 1), iter(())))"),),
        ("tests/contract/sinks/test_unit_statements.py::test_a_unit_of_a_table_asks_the_same_for_any_number_of_rows[append]",),
    ),
    Mutant(
        "lost-is-done", "a unit whose answer was lost counts as there without a look into the log", "onlyonce/sinks/postgres/postgres_unit.py",
        (("    if there is None:\n        raise Retryable(", "    if there is None:\n        return\n        raise Retryable("),),
        (LOST + "test_a_unit_whose_commit_did_not_arrive_is_retryable_and_passes_the_second_time",),
    ),
    Mutant(
        "one-txn-app-id", "one txnAppId for all that receive writes: batches, closes, lives", "onlyonce/receive/receive.py",
        (('f"{query.lineage}/events", batch_id,', '"onlyonce", batch_id,'), ('    app_id = f"{query.lineage}/close"\n', '    app_id = "onlyonce"\n')),
        (SAMPLE,),
    ),
    Mutant(
        "delta-skip-unseen", "after a write nobody looks whether Delta has skipped it", "onlyonce/storage/delta.py",
        (("    if there is None or there[1].get(", "    if False and there[1].get("), ("    return there[0]\n", "    return there[0] if there else 0\n")),
        ("tests/fault/matrix/test_transactions.py::test_a_write_that_delta_skips_is_told",),
    ),
    Mutant(
        "transaction-unsaid", "a commit to one of the platform's own tables does not say its transaction", "onlyonce/storage/own_tables.py",
        (("app_transactions=[Transaction(commit.app_id, commit.version, int(time.time() * 1000))]", "app_transactions=[]"),),
        (OWN + "test_a_commit_is_there_once_however_often_it_is_tried", OWN + "test_of_drivers_at_the_same_instant_one_commits_and_the_others_find_it"),
    ),
    Mutant(
        "cut-text-unbounded", "the largest text of a file is told as its beginning", "onlyonce/storage/statistics.py",
        (("(LAST if up else \"\")", "(\"\")"),),
        ("tests/spark/sinks/test_delta_append.py::test_an_append_by_files_is_read_and_skipped_as_sparks_own",), spark=True,
    ),
    Mutant(
        "padding-forgotten", "a column of char(n) gets texts as they are", "onlyonce/sinks/delta/delta_features.py",
        (("        if TEXT in field.metadata and field.name not in texts(there):", "        if False:"),),
        (UPSERT + "test_what_a_table_asks_of_a_writer_is_honoured_or_refused_by_its_name[padded text]",), spark=True,
    ),
    Mutant(
        "vectors-unread", "rows of a file are written again without its deletion vector", "onlyonce/sinks/delta/delta_features.py",
        (('CHANGES = table_features.KNOWN | {"v2Checkpoint"}', "CHANGES = ADDS"),),
        (UPSERT + "test_what_a_table_asks_of_a_writer_is_honoured_or_refused_by_its_name[vectors]",), spark=True,
    ),
    Mutant(
        "rows-beside-go", "of a file that is written again only the rows of the batch stay", "onlyonce/sinks/delta/delta_upsert.py",
        (('matched(self.keys), "full_outer")', 'matched(self.keys), "right_outer")'),),
        (UPSERT + "test_only_files_with_a_key_of_the_batch_are_written_again",), spark=True,
    ),
    Mutant(
        "rest-of-a-day-goes", "a span that begins within a file takes the whole file", "onlyonce/sinks/delta/delta_replace.py",
        (("mixed = [held for held in files if not held.whole]", "mixed: list[Held] = []"),),
        (UPSERT + "test_a_span_is_replaced_as_by_replace_where[(6, 30)-['window_date']]",), spark=True,
    ),
    Mutant(
        "bound-is-outside", "a file whose largest value is asked for is left out", "onlyonce/storage/table_files.py",
        (("pc.greater_equal(largest, low))\n    if bounds.among", "pc.greater(largest, low))\n    if bounds.among"),),
        ("tests/unit/storage/test_table_files.py::test_each_file_with_such_a_row_is_told_and_a_whole_one_has_no_other[number-by statistics]",),
    ),
    Mutant(
        "change-behind-any", "a commit that replaces files is put behind whatever came in between", "onlyonce/storage/changing.py",
        (("max_commit_retries=0,", "max_commit_retries=15,"),),
        (CHANGES + "test_what_comes_while_a_writer_stands_still[local-the same new key-commit]",),
    ),
    Mutant(
        "looks-once", "a change looks for its transaction at its first try alone", "onlyonce/storage/changing.py",
        (("            if there is not None and there >= commit.version:", "            if planned is None and there is not None and there >= commit.version:"),),
        (CHANGES + "test_what_comes_while_a_writer_stands_still[local-the twin-commit]",),
    ),
    Mutant(
        "wall-clock", "the catalog is collected by the clock", "onlyonce/model/operate/collecting.py",
        (("    lived = _behind(sorted(set(known.committed), reverse=True), horizon)\n", '    lived = int(__import__("time").time()) // 600 - horizon\n'),),
        ("tests/contract/operate/test_collect.py::test_an_outage_longer_than_the_horizon_lets_no_duplicate_through", "tests/unit/model/operate/test_model_collecting.py::test_an_outage_of_any_length_lets_the_last_buckets_be"),
    ),
    Mutant(
        "offsets-unchecked", "a replay may read other offsets than the log has", "onlyonce/model/batch.py",
        (("    if there.offsets_hash == meant.offsets_hash:\n", "    if True:\n"),),
        (BATCHES + "test_a_replay_of_other_offsets_is_refused_and_changes_nothing",),
    ),
    Mutant(
        "frontier-anew", "a replay is stamped with the frontier of now, not with the one that its batch began with",
        "onlyonce/commitlog/batches.py",
        (("    return Batch(Plan(**fixed), frontier_of(row), row.gc_floor,", "    return Batch(Plan(**fixed), Frontier(), row.gc_floor,"),),
        (BATCHES + "test_a_batch_is_begun_once_and_a_replay_gets_what_the_first_attempt_fixed",),
    ),
    Mutant(
        "partitions-of-now", "a replay is cut into the partitions that its batch would have now", "onlyonce/commitlog/batches.py",
        (("    check_lookups(there.plan, plan)\n    if there.committed:", "    check_lookups(there.plan, plan)\n    object.__setattr__(there.plan, 'partitions', plan.partitions)\n    if there.committed:"),),
        (LAYOUTS + "test_each_record_is_kept_once_whatever_the_layouts_of_its_deliveries",),
    ),
    Mutant(
        "own-layout-only", "a look-up asks chunks of batches with its own number of partitions only", "sql/catalog.sql",
        (("AND mod(partition, gcd(partitions, :partitions)) = mod(:partition, gcd(partitions, :partitions))", "AND partitions = :partitions AND partition = :partition"),),
        (LAYOUTS + "test_each_record_is_kept_once_whatever_the_layouts_of_its_deliveries",),
    ),
    Mutant(
        "declaration-ignored", "a begun batch goes on under a changed declaration", "onlyonce/model/batch.py",
        (("    if there.declaration_hash == meant.declaration_hash:\n", "    if True:\n"),),
        (BATCHES + "test_a_changed_declaration_is_refused_once_a_unit_has_committed",),
    ),
    Mutant(
        "first-come-twin", "of twins in a batch the first to arrive stays", "onlyonce/receive/receive_unit.py",
        (("first_of_each(ids, records.time[rows], records.payload[rows])", "first_of_each(ids)"),),
        (RECEIVE + "test_a_replay_gives_the_same_fates_again_in_any_order_and_cut",),
    ),
    Mutant(
        "layout-by-its-marks", "a line is of a layout if its quotation marks are where they should be, whatever is between", "onlyonce/sources/parse/alike_lines.py",
        (("there &= _has(block, where, piece)", "there &= True"),),
        (ALIKE + "test_an_odd_line_costs_no_other_line_its_place[other key]",),
    ),
    Mutant(
        "marks-uncounted", "a line of a layout may have more quotation marks than it", "onlyonce/sources/parse/alike_lines.py",
        (("(np.diff(before) == of_line)", "(np.diff(before) >= of_line)"),),
        (ALIKE + "test_a_line_in_a_block_has_the_record_that_it_has_alone[0]",),
    ),
    Mutant(
        "value-of-less-than-nothing", "what is fixed in a line may overlap", "onlyonce/sources/parse/alike_lines.py",
        (("in_order &= where + len(piece) <= after", "in_order &= True"),),
        (ALIKE + "test_an_odd_line_costs_no_other_line_its_place[neither value nor space]",),
    ),
    Mutant(
        "before-a-layout", "what stands before a line of a layout is not looked at", "onlyonce/sources/parse/alike_lines.py",
        (("in_order = places[0] == block.bounds[rows]", "in_order = places[0] >= 0"),),
        (ALIKE + "test_an_odd_line_costs_no_other_line_its_place[sign before]",),
    ),
    Mutant(
        "values-of-any-form", "a value in a line of a layout is taken in any form that Arrow reads", "onlyonce/sources/parse/alike_lines.py",
        (("right &= _right(column, kind)", "right &= True"),),
        (ALIKE + "test_an_odd_line_costs_no_other_line_its_place[zero first]",),
    ),
    Mutant(
        "escapes-as-they-are", "a backslash in a line of a layout stands for itself", "onlyonce/sources/parse/alike_lines.py",
        (("odd = signs == BACKSLASH", "odd = np.zeros(len(signs), bool)"),),
        (ALIKE + "test_an_odd_line_costs_no_other_line_its_place[escape]",),
    ),
    Mutant(
        "control-signs-as-they-are", "a line of a layout may have a tab in a text", "onlyonce/sources/parse/alike_lines.py",
        (("if signs.min() < SPACE:", "if False:"),),
        (ALIKE + "test_an_odd_line_costs_no_other_line_its_place[tab]",),
    ),
    Mutant(
        "signs-of-re2", "what RE2 has for signs is a text: half a surrogate too", "onlyonce/sources/parse/plain_lines.py",
        (("lines.validate(full=True)", "lines.validate()"),),
        (
            ALIKE + "test_bytes_that_are_no_signs_leave_their_line_to_sparks_parser[\\xed\\xa0\\x80]",
            "tests/spark/receive/test_plain_records.py::test_bad_lines_beside_plain_ones_have_the_fates_that_they_have_alone",
        ),
    ),
    Mutant(
        "left-and-forgotten", "without a catalog lines that are not plain are read by nobody", "onlyonce/receive/straight.py",
        (("    if files:\n", "    if not paths:\n"),),
        (
            "tests/spark/receive/test_straight.py::test_plain_lines_need_one_job_and_the_others_are_not_forgotten[files]",
            "tests/spark/receive/test_straight.py::test_plain_lines_need_one_job_and_the_others_are_not_forgotten[topic]",
        ),
        spark=True,
    ),
    Mutant(
        "block-anywhere", "a block of plain records is for the first partition, whatever its ids", "onlyonce/sources/parse/plain_records.py",
        (('np.mod(records.column("oo_high").to_numpy(), self.partitions)', "np.zeros(records.num_rows, np.int64)"),),
        ("tests/unit/receive/test_plain_records.py::test_a_block_is_for_the_partition_of_all_its_ids",),
    ),
    Mutant(
        "left-lines-lost", "lines that are left for Spark's parser are not told to the driver", "onlyonce/receive/blocks/block_files.py",
        (("        if left.any:\n", "        if False:\n"),),
        ("tests/unit/receive/test_plain_records.py::test_each_line_is_in_a_block_or_left_and_never_both",),
    ),
    Mutant(
        "any-size-with-any", "in a bucket that grows chunks of all sizes are merged together, the large one again and again",
        "onlyonce/model/operate/collecting.py",
        (("    if closed:\n        yield others, 2\n", "    if True:\n        yield others, 2\n"),),
        ("tests/unit/model/operate/test_model_collecting.py::test_a_bucket_that_grows_has_few_chunks_for_its_ids_and_writes_each_id_once_for_each_level",),
    ),
    Mutant(
        "session-held-while-writing", "a task keeps its session in the database while it writes what it has judged", "onlyonce/receive/receive_unit.py",
        (
            ('        passing("receive-unit-after-commit")\n        for part in np.split(fates, np.cumsum(sizes)[:-1]):\n            yield', '            for part in np.split(fates, np.cumsum(sizes)[:-1]):\n                yield'),
        ),
        ("tests/contract/receive/test_receive_unit.py::test_a_unit_opens_one_session_which_has_ended_before_its_rows_are_written",),
    ),
    Mutant(
        "nearly-in-order", "ids are sorted by the upper half of their upper halves alone", "onlyonce/catalog/packed.py",
        (('    return order[np.argsort(high[order], kind="stable")]\n', "    return order\n"),),
        ("tests/unit/catalog/test_lookup.py::test_packed_ids_are_sorted_big_endian_and_come_back",),
    ),
    Mutant(
        "no-filter-as-an-empty-one", "a chunk without a filter is read as one whose filter is empty", "onlyonce/catalog/binary_copy.py",
        (("row.append(None if size < 0 else bytes(", "row.append(bytes("),),
        ("tests/contract/catalog/test_binary_copy.py::test_a_chunk_comes_back_byte_by_byte[none]",),
    ),
    Mutant(
        "frontier-of-the-first", "all rows of a task have the frontier of those that it wrote first", "onlyonce/receive/event_files.py",
        (("made = self._alike.get(frontier)", "made = next(iter(self._alike.values()), None)"),),
        ("tests/unit/receive/test_event_files.py::test_each_record_is_in_the_file_of_its_fate_and_a_duplicate_in_none",),
    ),
    Mutant(
        "large-ones-written-again", "two large chunks are merged, which costs more than their filters", "onlyonce/model/operate/collecting.py",
        (("if len(large) >= (CROWD if closed else MANY):", "if len(large) >= 2:"),),
        ("tests/unit/model/operate/test_model_collecting.py::test_a_large_chunk_is_written_again_only_where_there_are_many",),
    ),
    Mutant(
        "dropped-bucket-stays-listed", "a bucket that goes whole leaves its chunks in the list", "onlyonce/catalog/collector.py",
        (('    do(connection, "collect", "unlist", instance=instance, bucket=gone.bucket)\n', ""),),
        ("tests/contract/operate/test_collect.py::test_the_list_of_chunks_is_that_of_the_catalog_whatever_changes_it",),
    ),
    Mutant(
        "unlisted-chunk-passes", "the doctor counts a chunk that no look-up can see", "sql/doctor.sql",
        (("                 AND x.id_count = c.id_count)) AS ids,", "                 AND x.id_count = c.id_count) OR true) AS ids,"),),
        ("tests/contract/operate/test_doctor.py::test_lost_chunks_are_made_again_from_events",),
    ),
    Mutant(
        "stale-range-filter", "a filter over several buckets answers for whatever chunks are in them now, also for those that it does not have",
        "onlyonce/catalog/range_filters.py",
        (("chunk.ids_hash in hashes]", "one.block.first <= chunk.key.bucket <= one.block.last]"),),
        (
            "tests/contract/catalog/test_range_filters.py::test_a_chunk_that_came_late_or_was_made_again_of_as_many_other_ids_is_asked_by_itself",
            "tests/contract/catalog/test_range_filters.py::test_what_is_found_is_what_a_plain_set_has_after_any_history",
        ),
    ),
    Mutant(
        "merge-unfenced", "a driver that was superseded merges chunks", "onlyonce/receive/merge_as_it_grows.py",
        (("    check_epoch(connection, driver.lineage, driver.epoch)\n", ""),),
        ("tests/contract/catalog/test_merging.py::test_a_driver_that_was_superseded_merges_nothing",),
    ),
    Mutant(
        "compacted-is-news", "a compaction says that its files are new rows", "onlyonce/storage/rewriting.py",
        (("own_tables.added(path, file, indexed, data_change=False)", "own_tables.added(path, file, indexed)"),),
        ("tests/contract/operate/test_compaction.py::test_what_is_ended_and_read_becomes_few_files_in_order_of_time_with_the_same_rows",),
    ),
    Mutant(
        "compaction-beside-another", "delta-rs puts a compaction behind whatever came between, as it does with an append without a transaction",
        "onlyonce/storage/rewriting.py",
        (("max_commit_retries=0,", "max_commit_retries=15,"), ("app_transactions=[Transaction(app_id, number, now)],", "app_transactions=[],")),
        ("tests/contract/operate/test_compaction.py::test_of_two_that_compact_at_once_one_does",),
    ),
    Mutant(
        "earliest-control-row", "of folded control rows the one with the least event time stays", "onlyonce/operate/compact/control_rows.py",
        (("largest = pc.max(latest[part])", "largest = pc.min(latest[part])"), ('[(part, "descending")', '[(part, "ascending")')),
        (
            "tests/unit/operate/test_control_rows.py::test_folded_rows_close_the_windows_that_all_rows_close",
            "tests/contract/operate/test_compaction.py::test_control_rows_become_one_that_tells_the_latest_frontier",
        ),
    ),
    Mutant(
        "compacts-the-unread", "commits are compacted that a query has not read", "onlyonce/model/operate/compacting.py",
        (("    for reader in readers:\n", "    for reader in ():\n"),),
        ("tests/contract/operate/test_compaction.py::test_a_query_that_stands_still_holds_what_it_has_not_read",),
    ),
    Mutant(
        "compacts-behind-a-first-batch", "commits are compacted behind a first batch that may be read again", "onlyonce/operate/compact/compaction.py",
        (("*((version, query) for query, version in first)", "*()"),),
        ("tests/contract/operate/test_compaction.py::test_what_is_behind_a_first_batch_that_may_be_read_again_is_not_compacted",),
    ),
    Mutant(
        "old-by-its-age", "a file that was compacted is swept by its age, and not by the time since", "onlyonce/storage/rewriting.py",
        (("        stores.of(path).renew(path / file.path)", "        pass"),),
        ("tests/contract/operate/test_compaction.py::test_old_files_stay_for_readers_from_the_compaction_on_however_old_they_are",),
    ),
    Mutant(
        "objects-keep-their-age", "an object that was compacted keeps its time, by which it is swept", "onlyonce/storage/stores/objects.py",
        (("            self.put(at, self.read(at))\n", "            self.read(at)\n"),),
        ("tests/storage/test_commands.py::test_maintenance_changes_no_row_and_old_files_stay_for_readers_from_then_on",),
    ),
    Mutant(
        "archived-over-others", "an input file goes to the archive in a store over the object that is there", "onlyonce/operate/archive.py",
        (("    done = stores.of(move.target).put_new(", "    done = True\n    stores.of(move.target).put("),),
        ("tests/storage/test_archive.py::test_another_object_of_that_name_stays_and_so_does_the_file",),
    ),
    Mutant(
        "folders-are-objects", "the marker of a folder in a store is taken for an object", "onlyonce/storage/stores/objects.py",
        (("yield from self._no_markers([", "yield from (["),),
        ("tests/storage/test_stores.py::test_the_marker_of_a_folder_is_no_object[versitygw]",),
    ),
    Mutant(
        "released-over-others", "the lines of a release go over the object that has their name", "onlyonce/outputs/releases/release.py",
        (("        return stores.of(path).put_new(path, partial.read_bytes())\n", "        stores.of(path).put(path, partial.read_bytes())\n        return True\n"),),
        ("tests/storage/test_object_inbox_commands.py::test_an_object_of_another_that_has_the_name_of_a_release_stays",),
    ),
    Mutant(
        "erased-before-it-comes", "records are erased while an object in the inbox that holds them is not taken in", "onlyonce/operate/erase/in_use.py",
        ((", *found.objects]", "]"),),
        ("tests/storage/test_object_inbox_commands.py::test_an_erasure_names_the_objects_that_hold_the_records_and_writes_none",),
    ),
    Mutant(
        "a-crash-test-at-work-is-left", "what a crash test that is at work has in a store is taken for what a killed one left", "onlyonce/operate/disk_state.py",
        (("            if all(time.time()", "            if any(time.time()"),),
        ("tests/storage/test_commands.py::test_the_doctor_finds_what_a_killed_start_and_a_killed_crash_test_left",),
    ),
    Mutant(
        "one-archive-for-all", "Spark is given the archive of classes of another class path, which the JVM ignores", "onlyonce/spark/options.py",
        (('("spark-s3.jsa" if is_s3(settings.data_root()) else "spark.jsa")', '"spark.jsa"'),),
        ("tests/unit/test_spark_options.py::test_data_in_s3_has_an_archive_of_its_own",),
    ),
    Mutant(
        "keys-in-sparks-settings", "Spark is told the keys of the store", "onlyonce/storage/stores/options.py",
        (("        \"spark.hadoop.fs.s3a.endpoint.region\"", "        \"spark.hadoop.fs.s3a.secret.key\": variable(\"AWS_SECRET_ACCESS_KEY\") or \"\",\n        \"spark.hadoop.fs.s3a.endpoint.region\""),),
        ("tests/storage/test_secrets.py::test_spark_is_told_no_key",),
    ),
    Mutant(
        "crashtest-in-the-platform", "a crash test has its data at the prefix of the platform itself", "onlyonce/testing/crashtest/play.py",
        (('    at = root / f"crashtest-{uuid4().hex[:8]}"\n', "    at = root\n"),),
        ("tests/storage/test_crashtest_on_s3.py::test_kills_hold_and_the_prefix_of_the_platform_is_as_it_was",), spark=True,
    ),
    Mutant(
        "store-by-half-a-connection", "what a connection of the store asks and no variable says is passed over", "onlyonce/airflow/log/task_environment.py",
        (("    if unknown := sorted({*store.extra_dejson} - {*OF_STORE}):", "    if unknown := []:"),),
        ("tests/dags/test_spark_job.py::test_a_connection_that_not_all_clients_of_the_store_would_follow_starts_nothing",),
    ),
    Mutant(
        "removes-what-is-asked-for", "old records go though a query, a backfill or the dedup horizon may ask for them", "onlyonce/model/operate/retaining.py",
        (("    return min(holds, key=lambda hold: hold.upto)", "    return max(holds, key=lambda hold: hold.upto)"),),
        ("tests/contract/operate/test_keep_events.py::test_what_may_ask_for_a_record_holds_it_and_is_named",),
    ),
    Mutant(
        "open-windows-lose-days", "old records of windows that are not closed go", "onlyonce/model/operate/retaining.py",
        (("for hold in holds if hold.before is not None)]", "for hold in ())]"),),
        ("tests/contract/operate/test_keep_events.py::test_windows_that_are_open_and_late_records_to_fold_in_keep_their_day",),
    ),
    Mutant(
        "removed-uncounted", "an attempt that goes on does not count again what an earlier one has counted", "onlyonce/commitlog/operate/removals.py",
        (('    do_rows(connection, "removals", "add_counts", pa.Table.from_pylist(rows), instance=instance, number=removal.number)\n', ""),),
        ("tests/contract/operate/test_keep_events.py::test_whole_days_that_nobody_asks_for_go_and_the_log_has_their_numbers",),
    ),
    Mutant(
        "begins-where-nothing-is", "a new output begins though records that it would read are removed", "onlyonce/model/operate/retaining.py",
        (("    if kept_from is None or query", "    if query or kept_from is None or query"),),
        ("tests/contract/operate/test_keep_events.py::test_what_is_gone_is_refused_with_the_first_moment_that_there_is",),
    ),
    Mutant(
        "erased-files-stay", "files that had erased rows stay on the disk for a day", "onlyonce/operate/erase/records.py",
        (("    attempt_files.sweep(instance, 0, [])\n    _sweep(path)\n", ""),),
        ("tests/contract/operate/test_forget.py::test_records_go_from_everywhere_and_a_receipt_without_their_values_stays",),
    ),
    Mutant(
        "erased-in-use", "records are erased that a stream is still to read", "onlyonce/operate/erase/windows.py",
        (("    if records.batches & {", "    if not records.batches & {"),),
        ("tests/contract/operate/test_forget.py::test_records_that_are_still_in_use_are_not_erased_yet",),
    ),
    Mutant(
        "erasure-of-another", "the erasure of one condition is finished by the command for another", "onlyonce/commitlog/operate/erasures.py",
        (("    if condition.fingerprint(row.salt) != row.fingerprint:", "    if not row.fingerprint:"),),
        ("tests/contract/operate/test_forget.py::test_a_kill_at_any_step_is_finished_by_the_same_command[forget-after-begin]",),
    ),
    Mutant(
        "blanked-and-changed", "a file whose lines are blanked has another time, so it counts as replaced", "onlyonce/operate/erase/input_files.py",
        (("    os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))\n", ""),),
        ("tests/contract/operate/test_forget.py::test_records_go_from_everywhere_and_a_receipt_without_their_values_stays",),
    ),
    Mutant(
        "folder-of-the-living", "the folder of a driver that is at work is deleted by the next one", "onlyonce/spark/temporary.py",
        (("                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)\n", ""),),
        ("tests/unit/session/test_temporary.py::test_the_folder_of_a_driver_stays_for_as_long_as_it_lives_and_goes_once_it_is_killed",),
    ),
    Mutant(
        "half-a-commit", "what waits is cut within a commit of receive", "onlyonce/model/outputs/cutting.py",
        (("            return files\n", "            return files + 1\n"),),
        ("tests/unit/model/outputs/test_cutting.py::test_a_batch_takes_whole_commits_as_many_as_fit_and_one_at_least",),
    ),
    Mutant(
        "part-from-the-beginning", "a part of a first reading has the rows of the parts before it too", "onlyonce/outputs/events/first_reading.py",
        (("past_rows.in_batches(upto, after)", "past_rows.in_batches(upto)"),),
        ("tests/spark/outputs/test_backlog.py::test_a_first_reading_of_what_is_compacted_is_cut_into_whole_commits_and_no_kill_shows",),
        spark=True,
    ),
    Mutant(
        "counted-again", "a new life counts again what an earlier one has counted, once it takes more than one batch to come there",
        "onlyonce/outputs/windows/window_log.py",
        (('max(versions.after, int(query.start_from.get("counted_upto", -1)))', "versions.after"),),
        ("tests/spark/outputs/test_backlog.py::test_what_waits_is_cut_into_whole_commits_and_a_kill_between_two_parts_does_not_show",),
        spark=True,
    ),
    Mutant(
        "late-is-counted-in-time", "the driver counts late records among those in time", "onlyonce/outputs/windows/counting.py",
        (("counts = [starts, ends, ~late, late,", "counts = [starts, ends, late | ~late, late & ~late,"),),
        ("tests/unit/outputs/test_counting.py::test_windows_are_counted_as_the_model_judges_each_record",),
    ),
    Mutant(
        "no-value-is-empty", "of rows that are told together a value that is missing is written as ''", "onlyonce/database/arrays.py",
        (('"NULL")', "'\"\"')"),),
        (ARRAYS + "test_values_arrive_as_they_are[texts]",),
    ),
    Mutant(
        "sign-taken-for-its-meaning", "a backslash of a text is what an array is written with", "onlyonce/database/arrays.py",
        (("""for special in ("\\\\", '"'):""", """for special in ('"',):"""),),
        (ARRAYS + "test_values_arrive_as_they_are[texts]",),
    ),
    Mutant(
        "last-row-untold", "a row that is alone in the last statement is not told", "onlyonce/database/arrays.py",
        (("range(0, ordered.num_rows, ROWS_AT_ONCE)", "range(0, ordered.num_rows - 1, ROWS_AT_ONCE)"),),
        (ARRAYS + "test_each_row_is_there_once_however_many_statements_take_them[4]", ARRAYS + "test_a_batch_whose_answer_was_lost_has_its_windows_once[answer lost]"),
    ),
    Mutant(
        "whatever-frontier-comes-first", "all records of a file are judged by the frontier of its first", "onlyonce/records/placed.py",
        (("(columns[1:] != columns[:-1]).any(axis=1)", "np.zeros(len(columns) - 1, bool)"),),
        ("tests/unit/outputs/test_counting.py::test_windows_are_counted_as_the_model_judges_each_record",),
    ),
    Mutant(
        "exploded-in-the-driver", "a function that makes many rows of a record is for the driver", "onlyonce/outputs/stateless.py",
        (('"Project", "Filter", "Union", "EventTimeWatermark", "SubqueryAlias"', '"Project", "Filter", "Generate", "Union", "EventTimeWatermark", "SubqueryAlias"'),),
        ("tests/spark/outputs/test_in_driver.py::test_the_driver_takes_the_rows_of_functions_only_that_add_none",),
        spark=True,
    ),
    Mutant(
        "few-without-their-hashes", "what the driver writes is claimed as nothing, so a replay by tasks finds other rows", "onlyonce/outputs/in_driver.py",
        (("        tally.add(part)\n", "        pass\n"),),
        ("tests/spark/outputs/test_in_driver.py::test_rows_units_and_windows_are_the_same_whoever_wrote_them",),
        spark=True,
    ),
    Mutant(
        "free-lock-of-an-older-driver", "a driver that has no lock counts as dead, since nobody holds its lock", "onlyonce/model/run/long_run.py",
        (('return "take" if not now.alive or (released and now.locked) else "wait"', 'return "take" if not now.alive or released else "wait"'),),
        ("tests/unit/model/run/test_model_long_run.py::test_a_driver_that_stands_by_takes_the_place_of_one_that_nobody_stopped",),
    ),
    Mutant(
        "closing-from-its-end", "of the windows that close only the records since the last close are looked for", "onlyonce/outputs/windows/raw_windows.py",
        (("before - longest(window)", "before"),),
        ("tests/spark/outputs/test_closing_files.py::test_a_batch_opens_the_files_that_may_have_rows_of_the_windows_that_it_closes",),
        spark=True,
    ),
    Mutant(
        "closing-by-this-batch", "of the windows that close only the records that this batch has met are read", "onlyonce/outputs/windows/raw_windows.py",
        (("else min(versions.after, read_upto(met.source_from))", "else versions.after"),),
        ("tests/spark/outputs/test_at_close.py::test_rows_are_those_of_a_batch_over_the_records_in_time",),
        spark=True,
    ),
    Mutant(
        "closing-by-this-life", "records that an earlier life has met are left out of the windows that this one closes", "sql/batches.sql",
        (("w.lineage = :lineage AS told", "true AS told"),),
        ("tests/contract/commitlog/test_final_windows.py::test_the_first_batch_with_records_of_closing_windows_is_told_and_whether_the_log_has_all",),
    ),
    Mutant(
        "late-at-close", "late records are given to the function of a window that is made at its close", "onlyonce/outputs/windows/closing_rows.py",
        (("mine = ~late & (ends > before)", "mine = (ends > before)"),),
        ("tests/spark/outputs/test_at_close.py::test_rows_are_those_of_a_batch_over_the_records_in_time",),
        spark=True,
    ),
    Mutant(
        "asked-for-nothing", "a batch that closes no window writes what the function gives of no records", "onlyonce/outputs/events/reading.py",
        (("    return made if also or raw_windows.closes_any(root, ends) else made.limit(0)\n", "    return made\n"),),
        ("tests/spark/outputs/test_at_close.py::test_a_batch_that_closes_no_window_has_no_row_of_a_function_that_gives_one_of_no_records",),
        spark=True,
    ),
    Mutant(
        "few-of-any-size", "rows that are read from anywhere are exchanged as one partition", "onlyonce/session/adaptive.py",
        (('!= "LocalRelation"', '== ""'),),
        (CONTENT + "test_rows_that_the_driver_has_given_are_exchanged_as_one_partition_and_no_others",),
    ),
    Mutant(
        "few-of-many", "of a function that gives many rows the driver writes those that it asked for, and no others", "onlyonce/outputs/in_driver.py",
        (("if bounded and rows.num_rows > MOST:", "if False:"),),
        ("tests/spark/outputs/test_in_driver.py::test_many_rows_of_few_records_are_for_the_tasks",),
        spark=True,
    ),
    Mutant(
        "frontier-from-all", "the frontier is asked of every batch there ever was", "sql/batches.sql",
        (("ORDER BY b.delta_version DESC LIMIT 1) batch ON true", "ORDER BY b.delta_version DESC) batch ON true"),),
        (LONG_LOG + "test_what_is_asked_all_the_time_visits_no_more_rows_in_a_long_log",),
    ),
    Mutant(
        "sums-of-the-unequal", "a batch that does not add up is folded into the sums, where no audit looks", "sql/collect.sql",
        (("WHERE state <> 'committed' OR adds_up IS NOT TRUE OR", "WHERE state <> 'committed' OR"),),
        (LONG_LOG + "test_the_sums_are_those_of_every_row_and_a_batch_that_does_not_add_up_is_told_for_ever",),
    ),
    Mutant(
        "final-though-open", "windows that are open are noted as final, and a new life begins after their first rows", "sql/collect.sql",
        (("IS NOT NULL AND NOT closed.final", "IS NOT NULL AND false"),),
        ("tests/contract/commitlog/test_final_windows.py::test_a_new_life_begins_at_the_first_window_that_is_open",),
    ),
    Mutant(
        "cuts-what-is-open", "batches of windows that are not final are cut from the log", "sql/keep_log.sql",
        (("ELSE least(s.upto, s.final_upto) END", "ELSE s.upto END"),),
        ("tests/contract/operate/test_keep_log.py::test_what_may_be_asked_for_stays",),
    ),
    Mutant(
        "cuts-what-is-late", "batches that met late records are cut from the log", "sql/keep_log.sql",
        (("WHERE o.late = 0 AND", "WHERE"),),
        ("tests/contract/operate/test_keep_log.py::test_old_batches_go_and_every_total_and_window_has_its_numbers",),
    ),
    Mutant(
        "waiting-by-its-name", "files that wait are looked for among all files there ever were", "sql/views.sql",
        (("WHERE pane IS NOT NULL AND finalized_at IS NULL AND state = 'waiting' GROUP BY", "WHERE state = 'waiting' GROUP BY"),),
        (LONG_LOG + "test_no_query_reads_a_table_that_grows_as_a_whole",),
    ),
    Mutant(
        "own-ids-seen", "a replay sees the ids that its first attempt has added", "sql/catalog.sql",
        (("(lineage <> :lineage OR batch_id < :batch_id)", "(lineage <> :lineage OR batch_id <= :batch_id)"),),
        (RECEIVE + "test_a_replay_gives_the_same_fates_again_in_any_order_and_cut", SAMPLE),
    ),
    Mutant(
        "later-ids-seen", "a replay sees the ids of later batches", "sql/catalog.sql",
        (("(lineage <> :lineage OR batch_id < :batch_id)", "(lineage <> :lineage OR batch_id <> :batch_id)"),),
        (RECEIVE + "test_a_batch_sees_the_chunks_of_earlier_batches_and_not_of_later_ones",),
    ),
    Mutant(
        "earlier-lives-forgotten", "a new life does not see the ids of the lives before it", "sql/catalog.sql",
        (("(lineage <> :lineage OR batch_id < :batch_id)", "(lineage = :lineage AND batch_id < :batch_id)"),),
        (RECEIVE + "test_an_earlier_life_is_seen_whatever_its_batch_ids",),
    ),
    Mutant(
        "maybe-is-yes", "a filter's maybe counts as a duplicate", "onlyonce/catalog/catalog_lookup.py",
        (("            self.found[maybe[held]] = True\n", "            self.found[maybe] = True\n"),),
        ("tests/contract/catalog/test_textbook_filter.py",),
    ),
    Mutant(
        "conservation-unchecked", "a receive batch ends whatever its counts", "onlyonce/model/batch.py",
        (("    if outcome.read == sum(part or 0 for part in parts):\n", "    if True:\n"),),
        (BATCHES + "test_receive_does_not_end_without_its_units_or_its_records",),
    ),
    Mutant(
        "missing-units", "a batch ends without all its units", "onlyonce/commitlog/units.py",
        (("    if there != set(range(partitions)):\n", "    if False:\n"),),
        (BATCHES + "test_receive_does_not_end_without_its_units_or_its_records",),
    ),
    Mutant(
        "committed-again", "a batch that the log has as committed is written again", "onlyonce/model/batch.py",
        (('        return self.state == "committed"\n', "        return False\n"),),
        (
            "tests/contract/commitlog/test_batches.py::test_a_changed_declaration_does_not_matter_to_a_batch_that_has_ended",
            "tests/contract/commitlog/test_batches.py::test_a_batch_that_has_ended_stays_as_it_ended",
        ),
    ),
    Mutant(
        "staged-not-read", "stable input is stored, but a replay writes what the function gives now", "onlyonce/outputs/staging.py",
        (("    return stored.filter(", "    return frame\n    return stored.filter("),),
        (SAMPLE,),
    ),
    Mutant(
        "loser-stays", "of twins that write files the one that does not count leaves its files", "onlyonce/sinks/files/files_unit.py",
        (("    if not won:\n        _discard(work, begun)\n", ""),),
        (FILES + "test_of_twins_one_counts_and_the_other_takes_its_files_away",),
    ),
    Mutant(
        "winner-thrown-away", "files whose COMMIT had no answer are taken away, though the log names them",
        "onlyonce/sinks/files/files_unit.py",
        (("    return temporaries == {file.temporary for file in made}\n", "    return False\n"),),
        (FILES + "test_a_lost_answer_is_settled_by_the_log",),
    ),
    Mutant(
        "any-content-final", "finalize does not compare a file with what its unit has recorded", "onlyonce/sinks/files/contents.py",
        (("    if there != (winner.bytes, winner.checksum):\n", "    if False:\n"),),
        (
            FILES + "test_a_taken_name_with_other_content_is_an_error_and_stays",
            FILES + "test_a_temporary_that_was_changed_is_an_error",
        ),
    ),
    Mutant(
        "sweep-of-the-living", "the sweep takes what a running task still writes", "onlyonce/model/sinks/shards.py",
        (("    return standing.settled or temporary.epoch < standing.epoch\n", "    return True\n"),),
        (FILES + "test_the_sweep_removes_what_nobody_can_want_and_nothing_else",),
    ),
    Mutant(
        "unanswered-is-delivered", "a row whose deliverer was killed before an answer counts as delivered", "sql/outbox.sql",
        (("SET state = CASE WHEN attempts < :most THEN 'waiting' ELSE 'dead' END, due_at = NULL,", "SET state = 'delivered', due_at = NULL,"),),
        (DELIVER + "test_a_kill_does_not_show",),
    ),
    Mutant(
        "key-of-the-attempt", "each attempt at a row has an Idempotency-Key of its own", "onlyonce/model/sinks/delivery.py",
        (('        return f"{self.unit}/{self.seq}@{self.life}"\n', '        return f"{self.unit}/{self.seq}@{self.life}/{self.attempts}"\n'),),
        (DELIVER + "test_a_misbehaving_endpoint_that_honours_the_key_has_each_row_once",),
    ),
    Mutant(
        "keys-overtake", "rows of a key are sent in any order", "onlyonce/sinks/outbox/webhook.py",
        (("    ordered = True\n", "    ordered = False\n"),),
        (DELIVER + "test_a_misbehaving_endpoint_that_honours_the_key_has_each_row_once",),
    ),
    Mutant(
        "neighbours-condemned", "what an endpoint refuses is refused for all rows of the request", "onlyonce/model/sinks/delivery.py",
        (('    blames_one_of_several = answer.verdict == "no" and rows > 1\n', "    blames_one_of_several = False\n"),),
        (IN_BATCHES + "test_a_row_that_is_refused_takes_no_other_with_it", PARCELS + "test_a_row_is_refused_alone_and_the_others_are_delivered"),
    ),
    Mutant(
        "neighbours-broken", "a row at which an endpoint breaks shares its last attempt with others", "onlyonce/model/sinks/parcels.py",
        (("        if row.unanswered and row.attempts + 1 >= self.attempts:\n", "        if False:\n"),),
        (IN_BATCHES + "test_a_row_at_which_the_endpoint_breaks_takes_no_other_with_it",),
    ),
    Mutant(
        "key-in-two-requests", "what does not fit into a request goes into the next one beside it", "onlyonce/model/sinks/parcels.py",
        (("        for key in list(self._queues):\n", "        for key in [key for key, queue in self._queues.items() for _ in range(-(-len(queue) // self.room.rows))]:\n"),),
        (PARCELS + "test_each_row_is_in_one_request_and_no_two_at_once_have_its_key",),
    ),
    Mutant(
        "newest-first-in-a-request", "the rows of a key are in a request from the last to the first", "onlyonce/sinks/outbox/webhook.py",
        (('"data": {row.payload}}}\' for row in rows]', '"data": {row.payload}}}\' for row in reversed(rows)]'),),
        (IN_BATCHES + "test_rows_share_requests_in_order_each_with_its_own_id",),
    ),
    Mutant(
        "deliverer-unfenced", "a deliverer that was overtaken goes on", "onlyonce/commitlog/sinks/outbox.py",
        (
            ("        check_epoch(connection, deliverer.name, deliverer.epoch)\n        columns", "        columns"),
            ("        check_epoch(connection, deliverer.name, deliverer.epoch)\n        do(", "        do("),
        ),
        (DELIVER + "test_a_deliverer_that_lost_its_lock_stops_at_its_next_statement",),
    ),
    Mutant(
        "insert-id-of-the-attempt", "each attempt at a row has a BigQuery insert id of its own", "onlyonce/sinks/outbox/bigquery.py",
        (("row_ids=[row.insert_id for row in rows]", 'row_ids=[__import__("uuid").uuid4().hex for row in rows]'),),
        (
            BIGQUERY + "test_rows_arrive_once_with_the_insert_ids_that_are_stored_with_them",
            BIGQUERY + "test_a_misbehaving_server_that_remembers_has_each_row_once",
        ),
    ),
    Mutant(
        "unit-not-asked-for", "a deliverer of units does not ask the target whether it has a unit", "onlyonce/sinks/outbox/units.py",
        (("            there = self.target.committed(unit.name)\n", "            there = False\n"),),
        (KAFKA + "test_kafka_does_what_it_promises[a_lost_answer_does_not_show]",),
    ),
    Mutant(
        "undone-counts", "a Kafka unit counts as committed though its transaction was undone", "onlyonce/sinks/outbox/kafka_units.py",
        (('plain | {"isolation.level": "read_committed"', 'plain | {"isolation.level": "read_uncommitted"'),),
        (KAFKA + "test_a_unit_of_a_transaction_that_was_undone_is_not_committed",),
    ),
    Mutant(
        "one-authority-asked", "a new life and a changed declaration ask the platform's log alone for units",
        "onlyonce/commitlog/authorities.py",
        (("    return look(connection, driver.lineage, batch_id)\n", "    return []\n"),),
        (
            AUTHORITIES + "test_a_new_life_is_refused_while_the_sinks_database_alone_has_units_of_the_batch",
            AUTHORITIES + "test_a_changed_declaration_does_not_begin_a_batch_anew_that_has_units_in_the_sinks_database",
        ),
    ),
    Mutant(
        "one-authority-fenced", "an epoch is raised in the platform's database alone", "onlyonce/commitlog/authorities.py",
        (("    for one in remembered(connection, [driver.lineage]):\n        with _told(one):\n", "    for one in []:\n        with _told(one):\n"),),
        (
            AUTHORITIES + "test_a_zombie_before_its_commit_in_the_sinks_database_is_ended_before_anything_is_decided",
            AUTHORITIES + "test_a_backfill_that_is_done_again_fences_where_its_last_attempt_may_write",
        ),
    ),
    Mutant(
        "owner-not-asked", "a sink's own database lets two platforms write under one name", "onlyonce/commitlog/authorities.py",
        ((".platform) != str(ours):\n", ".platform) == \"\":\n"),),
        (AUTHORITIES + "test_two_platforms_with_one_database_for_their_sinks_do_not_take_each_other_for_themselves",),
    ),
    Mutant(
        "remembered-too-late", "the log learns of a sink's own database after its first epoch is told there",
        "onlyonce/commitlog/authorities.py",
        (
            ("    ours = run(platform, remember)\n", "    ours = run(platform, identity)\n"),
            ("authority, ours))\n\n\ndef remembered", "authority, ours))\n    run(platform, remember)\n\n\ndef remembered"),
        ),
        (AUTHORITIES + "test_a_database_is_remembered_before_an_epoch_is_told_there",),
    ),
    Mutant(
        "control-row-foretold", "a batch without a catalog tells of event time before its control row", "sql/backfills.sql",
        (("CASE WHEN near.mode = 'exactly_once' THEN 0 ELSE 1 END", "0"),),
        ("tests/contract/commitlog/test_backfills.py::test_a_batch_tells_of_event_time_from_its_control_row_on",),
    ),
    Mutant(
        "final-at-first-row", "a window whose rows are written as they come is final with the first of them", "sql/batches.sql",
        (("0, false, rows, :lineage", "0, true, rows, :lineage"),),
        ("tests/contract/commitlog/test_open_windows.py::test_rows_of_a_window_add_up_until_it_closes",),
    ),
    Mutant(
        "rows-written-by-each-life", "a new life reads the rows of open windows again that were written as they came",
        "onlyonce/run/lineage.py", (("if last.stateless else {}", "if False else {}"),),
        ("tests/contract/commitlog/test_open_windows.py::test_a_new_life_reads_what_was_written_as_it_came_no_more",),
    ),
    Mutant(
        "before-1970-in-a-block", "a plain line is not asked whether its event time is before 1970", "onlyonce/sources/parse/plain_records.py",
        (("pc.greater_equal(micros, FIRST_TIME)", "pc.is_valid(micros)"),),
        ("tests/unit/receive/test_plain_records.py::test_each_line_is_in_a_block_or_left_and_never_both",),
    ),
    Mutant(
        "folded-by-the-hour", "late rows of a session ask for the start of their hour, not for where in it they are",
        "onlyonce/commitlog/outputs/backfills.py", (("        if row.late_from is None:\n", "        if True:\n"),),
        ("tests/contract/commitlog/test_backfills.py::test_late_rows_of_sessions_are_folded_by_a_backfill_that_holds_them_all",),
    ),
    Mutant(
        "joins-keep-state", "a join of the stream with a table is taken for one that keeps state", "onlyonce/outputs/stateless.py",
        (('"StreamingExecutionRelation", "Join",', '"StreamingExecutionRelation",'),),
        ("tests/spark/run/test_as_they_come.py::test_rows_written_as_they_come_are_all_there_through_a_new_life",),
        spark=True,
    ),
    Mutant(
        "replay-sees-the-newest", "a batch that is tried again is joined with the newest version of its lookups", "onlyonce/outputs/function/seeing.py",
        (("row.lookups if row and row.declaration_hash == hash else {}", "{}"),),
        ("tests/spark/outputs/test_lookups.py::test_each_row_is_joined_with_the_version_that_its_batch_began_with[1-2]",),
        spark=True,
    ),
    Mutant(
        "replay-reads-todays", "of a PostgreSQL table the copy that is read is the last one, whatever the batch row says", "onlyonce/lookups/postgres_versions.py",
        (("    return spark.read.parquet(str(file(lookup, version)))", "    return spark.read.parquet(str(file(lookup, newest(lookup))))"),),
        ("tests/spark/outputs/test_lookups.py::test_each_row_is_joined_with_the_copy_that_its_batch_began_with[1-2]",),
        spark=True,
    ),
    Mutant(
        "named-is-collected", "a copy of a lookup that a batch or a window names goes as soon as it is old", "onlyonce/lookups/collecting.py",
        (("held=one not in old[folder] - named)", "held=one not in old[folder])"),),
        ("tests/contract/lookups/test_collecting.py::test_what_the_log_names_stays",),
    ),
    Mutant(
        "going-is-used", "a copy that a collection has marked is taken for a table that has its content again", "onlyonce/lookups/copies.py",
        ((" and version not in going)", ")"),),
        ("tests/contract/lookups/test_collecting.py::test_a_version_that_is_going_is_not_used_anew",),
    ),
    Mutant(
        "links-followed", "a link in the inbox is followed", "onlyonce/sources/files/regular_file.py",
        (
            (" | os.O_NOFOLLOW", ""),
            ('    (stat.S_ISLNK, "a symbolic link, which is not followed; links=True of the source allows them"),\n', ""),
        ),
        (
            "tests/unit/sources/test_listing.py::test_what_is_no_file_is_refused_once_by_name_and_nothing_waits_for_it",
            "tests/unit/sources/test_listing.py::test_what_takes_the_place_of_a_file_after_it_was_listed_is_neither_followed_nor_waited_for[link]",
        ),
    ),
    Mutant(
        "missing-is-empty", "an inbox that is not there is taken for an empty one", "onlyonce/sources/discovery.py",
        (("    if isinstance(source, Custom | DeltaSource) or not isinstance(inbox.folder, Path) or inbox.folder.is_dir():\n", "    if True:\n"),),
        ("tests/unit/sources/test_folders.py::test_an_inbox_that_is_not_there_is_refused_by_the_run_and_not_taken_for_an_empty_one",),
    ),
    Mutant(
        "moved-is-new", "an inbox that was moved is taken for a new one", "onlyonce/sources/files/moved_inboxes.py",
        (("    if not roots or (folder in roots and folder not in moved):\n", "    if True:\n"),),
        (
            "tests/unit/sources/test_moved_inboxes.py::test_a_folder_that_no_file_was_read_from_is_asked_about",
            "tests/unit/sources/test_moved_inboxes.py::test_an_inbox_that_was_registered_by_a_relative_path_is_asked_about",
        ),
    ),
    Mutant(
        "long-lines-whole", "a line is held in memory as a whole, however long it is", "onlyonce/sources/files/line_reader.py",
        (("        if self.bytes > self._most:\n", "        if False:\n"),),
        ("tests/unit/sources/test_line_reader.py::test_memory_does_not_grow_with_a_line",),
    ),
    Mutant(
        "keys-not-held-against-the-rows", "a key of a sink that the function does not give is found by the run alone", "onlyonce/check/fits.py",
        (("        if key not in columns:\n", "        if False:\n"),),
        ("tests/unit/check/test_check.py::test_keys_and_types_are_held_against_what_is_there",),
    ),
    Mutant(
        "any-404-is-no-schema", "whatever answers with a 404 makes a schema id unknown, and its records invalid", "onlyonce/sources/formats/schema_registry.py",
        (("""        if getattr(error, "error_code", None) == NO_SUCH_SCHEMA and """, "        if "),),
        ("tests/unit/sources/test_schema_registry.py::test_no_answer_but_the_registrys_own_makes_an_id_unknown",),
    ),
    Mutant(
        "one-message-spoils-the-others", "where messages of one schema can't be decoded together all of them are invalid", "onlyonce/sources/formats/decoding.py",
        (("        if len(rows) == 1:\n", "        if len(rows):\n"),),
        ("tests/unit/sources/test_message_formats.py::test_a_message_is_read_as_if_it_were_alone",),
    ),
    Mutant(
        "schema-looked-for-anew", "a replay asks the registry again for a schema that its batch did not find", "onlyonce/sources/kafka/kafka_schemas.py",
        (("for number in ids if _fact(part, number) in facts}", "for number in ids if None in facts}"),),
        ("tests/spark/sources/test_kafka_formats.py::test_what_a_batch_did_not_find_it_does_not_find_again",),
        spark=True,
    ),
    Mutant(
        "tasks-without-slots", "the tasks of an executor open as many sessions as they are", "onlyonce/database/task_sessions.py",
        (("        if not any(map(_taken, files)):\n            fcntl.flock(files[0], fcntl.LOCK_EX)\n", ""),),
        ("tests/contract/database/test_task_sessions.py::test_tasks_of_an_executor_have_no_more_sessions_at_once_than_they_may",),
    ),
    Mutant(
        "a-tasks-session-is-nobodys", "a newer driver ends the sessions of an older one, and not those of its tasks", "sql/lineages.sql",
        (("[0-9]+(/|$)'", "[0-9]+$'"),),
        ("tests/contract/database/test_task_sessions.py::test_a_newer_driver_ends_the_transactions_of_an_older_ones_tasks",),
    ),
    Mutant(
        "any-function-is-written", "a DAG file does not say that a declaration names a function which is not there", "onlyonce/declare/resolve.py",
        (("    if name not in written and ", "    if not written and "),),
        ("tests/unit/declare/test_model_declarations.py::test_whether_a_function_is_written_is_told_without_importing_its_module",),
    ),
    Mutant(
        "any-record-is-to-blame", "a record is refused that does not fail by itself", "onlyonce/model/halves.py",
        (("    return first if count and goes_on() and fails(first, stop) else None", "    return first if count else None"),),
        ("tests/unit/model/test_model_halves.py::test_the_first_record_that_fails_by_itself_is_found_and_else_none",),
    ),
    Mutant(
        "shared-values-at-once", "rows that share a large value are written out as they come", "onlyonce/sources/files/row_sizes.py",
        ((", before + AT_ONCE, ", ", before + (1 << 62), "),),
        ("tests/unit/sources/test_typed_files.py::test_rows_that_share_a_large_value_are_written_out_some_at_a_time",),
    ),
    Mutant(
        "skipped-stateful-plan", "the plan of a batch that is written already is not run", "onlyonce/outputs/outputs.py",
        (("        if batch.committed:\n            results.hold(held, frame).count()\n", "        if batch.committed:\n"),),
        ("tests/fault/test_replay.py::test_replay_of_a_written_batch_runs_its_plan_and_writes_nothing",),
        spark=True,
    ),
    Mutant(
        "watermark-by-data", "the data rows drive the watermark, not the control rows", "onlyonce/outputs/windows/windowing.py",
        (
            ('    controls = controls.withWatermark("oo_event_time", _span(output.lateness)).filter(BARRIER)\n', "    controls = controls.filter(BARRIER)\n"),
            ("    joined = assign(controls.unionByName(rows), output.window)\n", '    joined = assign(controls.unionByName(rows).withWatermark("oo_event_time", _span(output.lateness)), output.window)\n'),
        ),
        ("tests/spark/run/test_spine.py::test_stream_equals_batch_over_the_rows_in_time",),
        spark=True,
    ),
    Mutant(
        "join-behind-its-windows", "Spark's watermark of a join is where its windows are closed, not the reach behind it, so rows without a partner stay in the state",
        "onlyonce/outputs/windows/windowing.py",
        (("_interval(reach(output.window) + micros(output.lateness))", "_interval(micros(output.lateness))"),),
        ("tests/spark/outputs/test_joins.py::test_a_join_is_that_of_a_batch_however_the_input_is_cut_and_where_runs_end[1]",),
        spark=True,
    ),
    Mutant(
        "null-is-a-key", "rows of two streams whose keys are null are joined with each other", "onlyonce/outputs/windows/joining.py",
        (('    keys += [_of(side, key).isNotNull() for key in output.join.on for side in ("left", "right")]\n', ""),),
        ("tests/spark/outputs/test_joins.py::test_a_join_is_that_of_a_batch_however_the_input_is_cut_and_where_runs_end[2]",),
        spark=True,
    ),
    Mutant(
        "state-made-anew", "a processor begins with no state in each batch", "onlyonce/outputs/stateful/applying.py",
        (("    if not rows.isStreaming:\n", "    if True:\n"),),
        ("tests/spark/outputs/test_processors.py::test_timers_fire_by_the_frontier_and_the_end_of_the_input_fires_those_that_are_left",),
        spark=True,
    ),
    Mutant(
        "timers-by-the-batch", "timers fire by the largest event time of a batch's own records", "onlyonce/outputs/windows/windowing.py",
        (
            ('    controls = controls.withWatermark("oo_event_time", _span(output.lateness)).filter(BARRIER)\n', "    controls = controls.filter(BARRIER)\n"),
            (
                "        return controls.unionByName(rows.filter(~is_late(output.window, output.lateness)))\n",
                '        return controls.unionByName(rows.filter(~is_late(output.window, output.lateness))).withWatermark("oo_event_time", "0 seconds")\n',
            ),
        ),
        ("tests/spark/outputs/test_processors.py::test_timers_fire_by_the_frontier_and_the_end_of_the_input_fires_those_that_are_left",),
        spark=True,
    ),
    Mutant(
        "records-in-any-order", "a processor gets the records of a key in the order in which tasks were ready", "onlyonce/outputs/stateful/ordered.py",
        (('records.sort_values(["oo_event_time", *PLACE], kind="stable", ignore_index=True).drop(', "records.drop("),),
        ("tests/unit/outputs/test_ordered_records.py::test_the_records_of_a_key_come_in_order_of_event_time_and_then_of_their_ids",),
    ),
    Mutant(
        "timers-left-at-the-end", "a bounded run does not fire timers", "onlyonce/outputs/stateful/alone.py",
        (("        given += played.setWatermark(self._end(records))\n", ""),),
        ("tests/unit/outputs/test_ordered_records.py::test_a_key_alone_has_its_records_and_then_its_timers_up_to_the_bound",),
    ),
    Mutant(
        "state-in-no-fingerprint", "another schema of a processor's state is no change", "onlyonce/declare/identity.py",
        (("state=state or None", "state=None"),),
        ("tests/unit/declare/test_declared_state.py::test_another_code_over_the_same_state_goes_on_and_a_changed_state_does_not",),
    ),
    Mutant(
        "identity-by-class-name", "a window's kind is the name of its class", "onlyonce/declare/identity.py",
        (('return _given(kind="fixed", **_fixed(window))', "return _given(kind=type(window).__name__, **_fixed(window))"),),
        (
            "tests/contract/operate/test_identity.py::test_a_begun_batch_goes_on_after_every_class_was_renamed",
            "tests/unit/declare/test_identity.py::test_the_stored_parts_and_their_hash_stay",
        ),
    ),
    Mutant(
        "identity-without-events", "the hash of an output's declaration lacks the schema and the event time", "onlyonce/declare/identity.py",
        (('"events": events, "outputs"', '"events": {}, "outputs"'),),
        ("tests/unit/declare/test_identity.py::test_the_order_of_columns_and_the_schema_are_part_of_every_query",),
    ),
    Mutant(
        "rows-of-earlier-lives-stay", "a life from the start leaves the rows of earlier lives in the table", "onlyonce/outputs/stateful/anew.py",
        (("    if not (root.stateful and query.start_from.get(ANEW)) or _has_begun(query):\n", "    if True:\n"),),
        ("tests/spark/outputs/test_processors.py::test_a_new_life_computes_an_output_with_state_from_the_start_in_the_place_of_what_was_there[till-anew-after-clear]",),
        spark=True,
    ),
    Mutant(
        "own-rows-taken-out", "each start of a life from the start takes its own rows out again", "onlyonce/outputs/stateful/anew.py",
        (("        return lineages.last_batches(connection, query.lineage)[0] is not None", "        return False and lineages.last_batches(connection, query.lineage)"),),
        ("tests/spark/outputs/test_processors.py::test_a_new_life_computes_an_output_with_state_from_the_start_in_the_place_of_what_was_there[till-anew-after-clear]",),
        spark=True,
    ),
    Mutant(
        "joins-close-too-early", "a window of a join is closed at its end, though records in time may still join its rows", "onlyonce/model/frontier.py",
        (("_down(frontier.tide - lateness - behind)", "_down(frontier.tide - lateness)"),),
        ("tests/transcripts/test_transcripts.py::test_the_model_tells_the_same_story[joins]",),
    ),
    Mutant(
        "neighbours-left-late", "a backfill of a join counts late records of its neighbours as folded in, whose own neighbours it leaves as they are",
        "onlyonce/model/outputs/backfill.py",
        (("    known = [start for start, _ in late]\n", "    known: list[Micros] = []\n"),),
        ("tests/unit/declare/test_declared_joins.py::test_a_span_is_computed_again_with_its_neighbours_and_with_theirs_where_late_records_wait",),
    ),
    Mutant(
        "watermark-inside-a-window", "Spark plans a batch without rows whenever an output has read on", "onlyonce/outputs/windows/watermark.py",
        (("    rows, result = by(windowing.last_closed)\n", "    rows, result = by(windowing.closed_until)\n"),),
        ("tests/spark/outputs/test_watermark.py::test_a_batch_without_rows_is_planned_only_when_a_window_has_ended",),
        spark=True,
    ),
    Mutant(
        "ends-for-all-state", "a function's own state waits for the end of a window", "onlyonce/outputs/windows/watermark.py",
        (("    return not keeping or (len(keeping) == 1 and _groups_by(keeping[0], _window(rows)))\n", "    return True\n"),),
        ("tests/spark/outputs/test_watermark.py::test_only_a_function_that_waits_for_ends_of_windows_has_a_watermark_that_moves_by_them",),
        spark=True,
    ),
    Mutant(
        "no-snapshot-in-a-drain", "a driver that lives for a moment leaves the changes of all batches to the next one", "onlyonce/run/drain.py",
        (('    context.spark.conf.set(state.UNLOAD, "true")\n', ""),),
        ("tests/spark/outputs/test_state.py::test_a_driver_that_lives_for_a_moment_leaves_a_snapshot_of_its_state_now_and_then",),
        spark=True,
    ),
    Mutant(
        "jvm-that-is-gone", "a driver whose JVM found no memory says that a connection was refused", "onlyonce/session/ending.py",
        (("unexpected.told(lost.jvm(error) or translate(error))", "unexpected.told(translate(error))"),),
        ("tests/spark/run/test_out_of_memory.py::test_a_driver_without_memory_says_which_setting_gives_it_more",),
        spark=True,
    ),
    Mutant(
        "refused-in-blocks-only", "a refused record is left out of blocks, and not of rows", "onlyonce/sources/chosen.py",
        (("        if not self.refused:\n            return rows\n", "        if True:\n            return rows\n"),),
        ("tests/spark/receive/test_poison_stages.py::test_no_stage_sees_a_record_that_is_refused_or_of_the_other_half[columns]",),
        spark=True,
    ),
    Mutant(
        "cut-below-the-merge", "a condition on sessions is pushed below their merge, where each record has one of its own", "onlyonce/outputs/windows/windowing.py",
        (("    return F.coalesce(F.when(F.spark_partition_id() >= 0, condition), F.lit(False))", "    return condition"),),
        ("tests/spark/outputs/test_recomputed_sessions.py::test_a_session_that_reaches_out_of_the_span_is_whole",),
        spark=True,
    ),
    Mutant(
        "rows-not-vouched-for", "beside receive an output begins on rows whose batch has not ended", "onlyonce/run/continuous.py",
        (("    while not _vouched(context, versions):\n", "    while False:\n"),),
        (LONG + "test_an_output_begins_on_no_row_before_the_log_has_ended_its_receive_batch",),
        spark=True,
    ),
    Mutant(
        "withdrawn-without-a-fence", "the transaction of a withdrawn Delta batch is left free: a driver that wakes lands its rows",
        "onlyonce/run/withdraw.py",
        (("    there = table.transaction_version(app_id)\n    if holds(", "    return\n    there = table.transaction_version(app_id)\n    if holds("),),
        ("tests/contract/run/test_withdraw.py::test_a_driver_that_wakes_can_not_land_a_withdrawn_batch",),
    ),
    Mutant(
        "nothing-is-nothing", "a replay that means no rows adds its units beside one that holds some", "onlyonce/sinks/postgres/pinned.py",
        (("                compare(unit, found, nothing)", "                pass"),),
        ("tests/contract/commitlog/test_batches_of_nothing.py::test_where_one_unit_holds_something_none_is_added",),
    ),
    Mutant(
        "landed-is-taken", "rows that got to the table between the look and the mark count as a transaction of ours, and their batch is withdrawn",
        "onlyonce/run/withdraw.py", (("    if holds(path, app_id, batch_id):", "    if False:"),),
        ("tests/contract/run/test_withdraw.py::test_rows_that_land_after_the_look_keep_their_batch_from_being_withdrawn",),
    ),
    Mutant(
        "appends-withdrawn", "a begun batch is withdrawn though an append has rows of it, which a new life writes again",
        "onlyonce/run/withdraw.py", (('WRITTEN_OVER = ("upsert", ', 'WRITTEN_OVER = ("append", "upsert", '),),
        ("tests/contract/run/test_withdraw.py::test_what_a_new_life_would_write_twice_is_not_withdrawn",),
    ),
    Mutant(
        "two-spellings-two-targets", "a target is known by what stands in the declaration, not by where it is",
        "onlyonce/declare/target_identity.py",
        (
            ('    if place.kind == "postgres":', '    if place.text:\n        return place.text + suffix\n    if place.kind == "postgres":'),
        ),
        (TARGETS + "test_a_target_of_another_pipeline_is_refused_at_run_with_its_owner",),
    ),
    Mutant(
        "deleted-table-made-again", "a table that was deleted is made anew, with the newest rows only", "onlyonce/sinks/own_target.py",
        (("    if made is not None and not _is_there(place):", "    if False:"),),
        (TARGETS + "test_a_table_that_was_deleted_is_not_made_again_without_a_word",),
    ),
    Mutant(
        "replay-trusts-the-transaction", "a replay asks for the transaction alone, which a table may have forgotten",
        "onlyonce/storage/delta.py",
        ((" and not (replayed and find(path, commit))", ""),),
        (DELTA + "test_a_replay_finds_its_commit_though_the_table_has_forgotten_the_transaction",),
    ),
    Mutant(
        "commit-once", "a commit that others came between ends the run", "onlyonce/storage/own_tables.py",
        (("stop=tenacity.stop_after_attempt(BETWEEN)", "stop=tenacity.stop_after_attempt(1)"),),
        (DELTA + "test_a_write_that_others_came_between_is_tried_again",),
    ),
    Mutant(
        "upsert-by-date", "an upsert looks into files of the dates of its rows alone, whatever the keys", "onlyonce/sinks/delta/sink_delta.py",
        (('further=[DATE] if "window_start" in keys else []', "further=[DATE] if DATE in rows.columns else []"),),
        ("tests/spark/sinks/test_sink_schema.py::"
         "test_an_upsert_without_the_window_among_its_keys_has_one_row_a_key_whatever_its_date",),
        spark=True,
    ),
    Mutant(
        "earlier-window-over-the-later", "an upsert whose keys don't say the window takes the row that comes last, not that of the later window",
        "onlyonce/sinks/postgres/postgres_unit.py", (("    elif updates and later_window_wins(", "    elif not updates and later_window_wins("),),
        (POSTGRES + "test_an_upsert_without_the_window_keeps_the_row_of_the_later_one",),
    ),
    Mutant(
        "witness-before-the-rows-fit", "a Delta unit is committed before it is known that the table takes its rows",
        "onlyonce/sinks/delta/sink_delta.py",
        (("        if content.rows:\n            delta_fit.check", "        self._witness(UnitId(batch.plan.lineage, batch.plan.batch_id, self._output.name, 0), content)\n        if content.rows:\n            delta_fit.check"),),
        ("tests/spark/sinks/test_later_windows.py::test_rows_that_delta_refuses_leave_no_unit",), spark=True,
    ),
    Mutant(
        "finished-by-a-later-frontier", "a half-written batch is finished with the windows that its own rows close, which Spark closes a batch later",
        "onlyonce/outputs/windows/finishing.py", (("before, read_upto(batch.plan.source_from))", "before, read_upto(batch.plan.source_to))"),),
        ("tests/spark/run/test_half_written.py::test_a_half_written_batch_without_a_checkpoint_is_withdrawn_or_finished",), spark=True,
    ),
    Mutant(
        "any-row-in-any-result", "a result has the rows of the others too", "onlyonce/outputs/function/several_results.py",
        (("rows.filter(F.col(RESULT) == name).select", "rows.select"),),
        ("tests/spark/outputs/test_several_results.py::test_each_result_is_that_of_a_batch_however_the_input_is_cut_and_where_a_run_ends[1]",), spark=True,
    ),
    Mutant(
        "a-sum-beside-records", "a result that keeps no state is mixed with one that does, so a new life writes its rows again", "onlyonce/outputs/function/several_results.py",
        (("        if len(set(kinds.values())) > 1:", "        if False:"),),
        ("tests/spark/outputs/test_several_results.py::test_results_that_cannot_be_written_are_refused_before_anything_is_read[a sum beside records]",), spark=True,
    ),
    Mutant(
        "tasks-are-sent-the-rows", "a batch of lines and of files that can't be read holds the driver's rows in its tasks' function", "onlyonce/receive/line_tasks.py",
        (("lambda found: work(chosen.of_batches(found))", "lambda found: work(lines.chosen.of_batches(found))"),),
        ("tests/spark/sources/test_bad_files.py::test_each_file_has_the_outcome_that_is_stated",), spark=True,
    ),
    Mutant(
        "plan-overlooks-the-half-written", "a plan is carried out although a batch has units under the declaration before", "onlyonce/operate/change/half_written.py",
        (("    if under == declarations.fingerprint(pipeline, ran.query):", "    if under:"),),
        ("tests/contract/operate/test_plan.py::test_a_batch_that_is_half_written_ends_as_it_was_declared_before_anything_is_done",),
    ),
    Mutant(
        "outputs-one-by-one", "an output has its turn when the one before it has ended", "onlyonce/run/drain.py",
        (("for _ in roots[: settings.spark().outputs_at_once]]", "for _ in roots[:1]]"),),
        ("tests/spark/run/test_side_by_side.py::test_outputs_that_are_drained_side_by_side_give_the_batch_whatever_was_killed",), spark=True,
    ),
    Mutant(
        "close-at-any-time", "a close waits neither for the batch at work nor for what is registered", "onlyonce/receive/receive.py",
        (
            ("    return context.source().last_batch() not in (None, taken_in)\n", "    return False\n"),
            ("    with context.receiving:\n        number, kind, after", "    if True:\n        number, kind, after"),
            ('        passing("close-after-end")\n        context.receiving.notify_all()\n', '        passing("close-after-end")\n'),
        ),
        (LONG + "test_a_close_comes_neither_within_a_receive_batch_nor_while_another_waits",),
        spark=True,
    ),
    Mutant(
        "pane-forgets-what-waits", "a trigger counts the records of one batch alone", "onlyonce/model/outputs/triggers.py",
        (("held = Held(known.records + met.get(window, 0), known.since)", "held = Held(met.get(window, 0), known.since)"),),
        ("tests/unit/model/test_triggers.py::test_a_pane_comes_with_the_batch_that_makes_it_due_and_none_of_a_closed_window",),
    ),
    Mutant(
        "pane-of-its-batch", "a pane of an open window has what has come with its batch, and not all of the window", "onlyonce/outputs/windows/raw_windows.py",
        (('.filter("oo_kind = \'kept\'").filter(near)', '.filter("oo_kind = \'kept\'").filter(near).filter(F.lit(False))'),),
        ("tests/spark/outputs/test_triggers.py::test_panes_are_those_that_the_log_decides_and_the_last_is_that_of_a_batch[1]",), spark=True,
    ),
    Mutant(
        "late-and-rejected", "a record that is late is rejected as well", "onlyonce/outputs/function/rejecting.py",
        (('~F.col("late") & F.col(REASON).isNotNull()', 'F.col(REASON).isNotNull()'),),
        (REJECTED + "test_a_backfill_rejects_anew_with_late_records_and_an_erasure_forgets",), spark=True,
    ),
    Mutant(
        "rejected-and-used", "the function gets the records that are rejected too", "onlyonce/outputs/function/rejecting.py",
        (("return rows.filter(reason(pipeline, output, rows).isNull()) if output.reject else rows", "return rows"),),
        (REJECTED + "test_each_record_is_rejected_or_used_once_however_the_input_is_cut_and_where_a_run_ends[1]",), spark=True,
    ),
    Mutant(
        "rejections-of-before-stay", "a backfill leaves what was rejected of its windows before", "onlyonce/commitlog/outputs/rejections.py",
        (('    do(connection, "rejected", "forget_windows", instance=instance, output=output, window_from=start, window_to=stop)\n', ""),),
        (REJECTIONS + "test_a_backfill_puts_its_rejections_in_the_place_of_those_of_its_windows",),
    ),
    Mutant(
        "reject-unsaid", "a changed function for rejections is no change of the declaration", "onlyonce/declare/loading.py",
        (("        parts += [(o.reject, _source(reject(o))) for o in outputs if o.reject]\n", ""),),
        ("tests/unit/declare/test_declared_rejects.py::test_a_pipeline_that_rejects_nothing_is_as_it_was_and_one_that_does_is_another",),
    ),
    Mutant(
        "one-output-stops-all", "a drain ends at the first output that can't go on", "onlyonce/run/drain.py",
        (("if isinstance(error, Superseded) or not isinstance(error, Exception):", "if True:"),),
        ("tests/spark/run/test_apart.py::test_a_drain_goes_on_with_the_other_outputs_and_ends_with_the_first_ones_error",),
        spark=True,
    ),
    Mutant(
        "furthest-source", "a pipeline of several sources is as far as the furthest of them", "onlyonce/model/sources/tides.py",
        (("return self.furthest() if not awake else min(known) if", "return self.furthest() if not awake else max(known) if"),),
        (TURNS + "test_the_log_is_as_far_as_the_least_source_and_a_replay_sees_what_its_batch_saw",
         "tests/unit/model/sources/test_model_tides.py::test_a_pipeline_is_as_far_as_the_least_source_that_is_not_idle"),
    ),
    Mutant(
        "tides-of-nobody", "a replay of a batch of one of several sources does not see how far they had come", "onlyonce/commitlog/turns.py",
        (("_micros(row.system_time), Tides.read(row.source_tides))", "_micros(row.system_time), Tides({}).declared([row.source_to[SOURCE]], 0))"),),
        (TURNS + "test_the_log_is_as_far_as_the_least_source_and_a_replay_sees_what_its_batch_saw",),
    ),
    Mutant(
        "ids-of-any-source", "two sources with ids of their own have one space of ids", "onlyonce/sources/parse/plain_records.py",
        (("        if self.salt:\n", "        if False:\n"),),
        ("tests/unit/receive/test_plain_records.py::test_an_id_of_one_source_is_another_id_in_another_source",),
    ),
    Mutant(
        "swept-before-its-commit", "files of an attempt go though its transaction is not in the table", "onlyonce/storage/attempt_files.py",
        (("        if there is None or there < attempt.version:\n", "        if False:\n"),),
        (OWN + "test_what_killed_attempts_have_left_is_swept_and_what_may_still_be_committed_stays",),
    ),
    Mutant(
        "compaction-is-news", "of a Delta table that is a source, rows that a compaction has moved are read again", "onlyonce/model/storage/table_versions.py",
        (("action[kind].get(\"dataChange\", True)]", "True]"),),
        ("tests/spark/sources/test_table_registry.py::test_each_row_is_registered_once_however_versions_come_and_looks_are_cut[1]",),
        spark=True,
    ),
    Mutant(
        "file-without-its-version", "a row of a table is known by its file alone, which RESTORE brings back", "onlyonce/model/storage/table_versions.py",
        (("f\"{self.version}/{'-/'", "f\"{'-/'"),),
        (TABLES + "log.py::test_a_file_that_comes_back_is_of_another_version",),
    ),
    Mutant(
        "rewritten-in-silence", "a version that rewrites rows is read as if it appended them", "onlyonce/model/storage/table_versions.py",
        (("    if removes and (adds or not ignore_deletes):\n", "    if removes and not adds and not ignore_deletes:\n"),),
        (TABLES + "log.py::test_a_version_that_deletes_or_rewrites_is_refused_and_what_came_before_is_read[_update-False-version 2 rewrites rows]",),
    ),
    Mutant(
        "any-table-of-that-path", "a table that was made again under its path is read on as the old one", "onlyonce/sources/tables/table_log.py",
        (("    if there.table_id not in (None, table_id):\n", "    if False:\n"),),
        (TABLES + "log.py::test_what_would_lose_rows_is_refused[_made_again-is another table than the one]",),
    ),
    Mutant(
        "look-behind-the-next", "a look at a table begins one version too late", "onlyonce/sources/tables/table_entries.py",
        (("return Read(mark[\"table\"], until, mark", "return Read(mark[\"table\"], until + 1, mark"),),
        ("tests/spark/sources/test_table_registry.py::test_batches_are_numbered_on_and_have_so_many_files",),
        spark=True,
    ),
    Mutant(
        "page-with-the-refused", "what lies on one page with a version that is refused is never read", "onlyonce/sources/tables/table_log.py",
        (("                if found:\n                    return found, version\n", ""),),
        (TABLES + "log.py::test_a_version_that_deletes_or_rewrites_is_refused_and_what_came_before_is_read[_truncate-False-version 2 deletes rows]",),
    ),
    Mutant(
        "changes-without-deletes", "files that a version removes are no deletes of the feed", "onlyonce/model/storage/table_versions.py",
        (("return [*(_file(version, one, DELETE) for one in removes), *", "return [*"),),
        (TABLES + "changes.py::test_changes_are_those_of_the_feed_as_another_reader_has_it",),
    ),
    Mutant(
        "name-that-moved", "a catalog's table that is elsewhere now is read on as if it were there", "onlyonce/sources/tables/table_log.py",
        (("and there.at not in (None, str(at)):\n", "and False:\n"),),
        ("tests/spark/sources/test_table_by_name.py::test_a_table_that_is_elsewhere_now_is_refused",),
        spark=True,
    ),
    Mutant(
        "half-a-manifest", "a manifest that was half written is taken for somebody else's", "onlyonce/sinks/files/object_store.py",
        (("        if there is None or (there != text and text.startswith(there)):\n", "        if there is None:\n"),),
        ("tests/contract/sinks/test_object_store.py::test_a_half_written_manifest_is_written_again",),
    ),
    Mutant(
        "payload-by-rows", "a deliverer reads as many rows as it may, whatever they weigh", "sql/outbox.sql",
        (("    WHERE s.before < :bytes),\n", "    WHERE s.before < :bytes OR true),\n"),),
        (DELIVER + "test_rows_are_read_by_their_bytes_and_each_goes_once_in_order",),
    ),
    Mutant(
        "settings-of-a-moment-ago", "a setting that was read once stays, whatever the environment says now", "onlyonce/settings/configuration.py",
        (("    given = tuple(environment.variable(name) for name in VARIABLES.values())\n", "    given = ()\n"),),
        ("tests/unit/test_settings.py::test_the_environment_wins_over_the_file_and_the_file_over_the_default",),
    ),
    Mutant(
        "put-whatever-is-there", "what is to be put only if nothing is there is put in any case", "onlyonce/storage/stores/objects.py",
        ((', mode="create", use_multipart=False)', ", use_multipart=False)"),),
        ("tests/storage/test_stores.py::test_of_writers_at_once_that_put_if_absent_one_wins_and_its_content_stays[versitygw]",
         "tests/storage/test_refused_at_the_start.py::test_a_claim_is_made_once_and_is_the_platforms_own"),
    ),
    Mutant(
        "no-bucket-is-no-object", "a bucket that is gone is told as an object that is not there", "onlyonce/storage/stores/objects.py",
        (('        if _code(error) in (None, *store_failures.NO_OBJECT):\n', "        if True:\n"),),
        ("tests/storage/test_stores.py::test_a_bucket_that_is_gone_is_not_an_object_that_is_not_there[versitygw]",),
    ),
    Mutant(
        "commits-without-the-condition", "delta-rs commits to a store by a PUT that overwrites", "onlyonce/storage/stores/options.py",
        (('({"allow_http": "true"} if plain_http(at) else {})', '({"allow_http": "true", "conditional_put": "disabled", "aws_s3_allow_unsafe_rename": "true"} if plain_http(at) else {})'),),
        ("tests/storage/test_commits.py::test_of_drivers_at_once_each_acknowledged_commit_is_there[versitygw]",),
    ),
    Mutant(
        "registry-read-in-part", "a run takes the entries of the last commit only for all that came since its last look", "onlyonce/sources/reading.py",
        (("for said in since for file in", "for said in since[-1:] for file in"),),
        (READING + "test_look_by_look_a_run_knows_what_the_registry_says_and_reads_each_entry_once[source0]",),
    ),
    Mutant(
        "registry-rewritten-in-silence", "what a commit has taken out of a registry stays known", "onlyonce/sources/reading.py",
        (('before > now or any("remove" in action for said in since for action in said)', "before > now"),),
        (READING + "test_where_entries_went_or_files_were_written_again_a_run_reads_the_whole",),
    ),
    Mutant(
        "checksum-of-one-file", "a version checksum counts one file for a commit of several", "onlyonce/storage/checksums.py",
        (('there["numFiles"] + len(added)', 'there["numFiles"] + 1'),),
        (SPARKS_OWN + "test_spark_reads_a_new_version_without_a_job_by_a_checksum_that_it_finds_right",),
    ),
    Mutant(
        "version-of-another", "a commit that others came between is told as the version that it was meant to be", "onlyonce/storage/own_tables.py",
        (("max_commit_retries=0,", "max_commit_retries=15,"),),
        (OWN + "test_commits_of_other_transactions_between_do_not_disturb",),
    ),
    Mutant(
        "log-listed-by-each", "each commit lists the table's log, to see what of it may go", "onlyonce/storage/delta.py",
        (("cleanup_expired_logs=None if version % CLEANED_EVERY == 0 else False", "cleanup_expired_logs=None"),),
        (COMMITS + "test_a_run_that_appends_asks_as_much_as_before_and_sees_what_others_have_committed[versitygw]",),
    ),
    Mutant(
        "own-commit-read-again", "a run reads what it has committed itself", "onlyonce/storage/appended.py",
        (("        self._transactions[app_id] = (self.table.version() + 1, number)\n", "        pass\n"),),
        (COMMITS + "test_a_run_that_appends_asks_as_much_as_before_and_sees_what_others_have_committed[versitygw]",),
    ),
    Mutant(
        "plan-over-a-plan", "a driver puts its plan of a batch over that of another", "onlyonce/context/working_copy.py",
        (("if not stores.of(self.folder).put_new(", "if stores.of(self.folder).put("),),
        (COPY + "test_of_two_drivers_with_one_batch_the_first_plan_stands[local]",),
    ),
    Mutant(
        "ends-at-the-end", "Spark's word of the end of a batch comes into the store at the end of its query only", "onlyonce/context/working_copy.py",
        (("        self.ended()\n", ""),),
        (COPY + "test_the_store_has_the_plan_before_a_batch_and_its_end_before_the_next[local]",),
    ),
    Mutant(
        "checkpoint-for-ever", "files of a checkpoint in a store never go", "onlyonce/context/working_copy.py",
        (("        if batch_id % AT_ONCE == 0 and batch_id >= KEPT:\n", "        if False:\n"),),
        (COPY + "test_a_checkpoint_has_no_more_than_its_last_batches[versitygw]",),
    ),
    Mutant(
        "plan-after-its-batch", "the plan of a batch comes into the store once the batch has ended", "onlyonce/context/query.py",
        (("                self._query.copy.planned(batch_id)\n            self._on_batch(frame, batch_id)\n", "                self._on_batch(frame, batch_id)\n                self._query.copy.planned(batch_id)\n                return\n            self._on_batch(frame, batch_id)\n"),),
        ("tests/storage/test_run_on_s3.py::test_kills_do_not_show_in_what_is_in_the_store[committed]",), spark=True,
    ),
    Mutant(
        "blocks-anywhere", "without a shared disk a block goes to the partition of its row's own hash, and not to that of its records", "onlyonce/receive/blocks/block_rows.py",
        (("    return F.coalesce(F.col(TARGET), by_id)", "    return by_id"),),
        ("tests/spark/receive/test_block_rows.py::test_events_and_units_are_the_same_whichever_way_blocks_have_come",), spark=True,
    ),
    Mutant(
        "left-lines-behind-blocks", "without a shared disk the lines that are left in a batch with blocks are lost", "onlyonce/receive/blocks/exchange.py",
        (("        if rows.num_rows:\n            yield rows\n", "        if rows.num_rows and not blocks:\n            yield rows\n"),),
        ("tests/spark/receive/test_block_rows.py::test_events_and_units_are_the_same_whichever_way_blocks_have_come",), spark=True,
    ),
    Mutant(
        "object-by-its-key", "an object is known by its key alone, whatever its ETag is", "onlyonce/sources/files/object_listing.py",
        (("        same = is_known & (marks == _hashes([one.etag for one in entries]))", "        same = is_known"),),
        ("tests/storage/test_object_inbox.py::test_an_object_is_known_by_its_key_and_its_etag[versitygw]",),
    ),
    Mutant(
        "whatever-is-there-now", "ranges of an object are read without the condition that it is what was listed", "onlyonce/storage/stores/objects.py",
        ((', "if_match": etag}', "}"),),
        ("tests/storage/test_object_inbox.py::test_what_changed_since_it_was_listed_is_told_and_never_read[versitygw]",),
    ),
    Mutant(
        "piece-of-another-place", "a reader of an object takes the piece that it has for whatever it is asked for", "onlyonce/sources/files/object_file.py",
        (("        if not 0 <= skipped <= len(self._piece) - wanted:", "        if not self._piece:"),),
        ("tests/storage/test_object_inbox.py::test_an_object_has_the_lines_of_a_file_at_their_places[-versitygw]",),
    ),
    Mutant(
        "files-that-go-stay", "the commit of a change names what comes, and not the files whose rows are in it", "onlyonce/storage/changing.py",
        (("        ) for held in change.gone\n", "        ) for held in ()\n"),),
        ("tests/spark/sinks/test_other_readers.py::test_three_readers_see_the_same_rows_after_each_kind_of_commit",),
        spark=True,
    ),
    Mutant(
        "etag-as-it-is-told", "an ETag counts as another one where a store's listing leaves out its quotes", "onlyonce/storage/stores/objects.py",
        (("""f'"{etag.strip(chr(34))}"'""", "etag"),),
        ("tests/storage/test_stores.py::test_one_content_has_one_etag_whoever_tells_it",),
    ),
    Mutant(
        "spark-without-a-client", "data in GCS or ADLS is taken though Spark has nothing to get there", "onlyonce/spark/jars.py",
        (("    if not clients or ", "    if True or not clients or "),),
        ("tests/unit/storage/test_store_options.py::test_a_store_that_spark_has_no_client_of_is_refused_before_it_starts[gs://lake-gcs-connector]",),
    ),
    Mutant(
        "rows-of-whatever-is-there", "Parquet in an object is read by Arrow's own file system, which has no conditions", "onlyonce/sources/files/parquet_files.py",
        (("    if at.etag:", "    if at.bytes < 0:"),),
        ("tests/storage/test_object_inbox.py::test_rows_of_an_object_that_changed_are_told_and_never_read[parquet-versitygw]",),
    ),
    Mutant(
        "changed-is-damaged", "an object that is replaced while it is counted counts as a damaged file", "onlyonce/sources/files/typed_files.py",
        (("        except (OnlyonceError, FileNotFoundError):\n            raise\n", ""),),
        ("tests/storage/test_object_inbox.py::test_rows_of_an_object_that_changed_are_told_and_never_read[avro-versitygw]",),
    ),
    Mutant(
        "yarn-starts-drivers-too", "YARN starts a driver of its own in the place of one that has ended, whatever its end was", "onlyonce/spark/options.py",
        (('"spark.yarn.maxAppAttempts": "1"', '"spark.yarn.maxAppAttempts": "2"'),),
        ("tests/unit/test_spark_options.py::test_a_driver_in_the_cluster_is_started_by_its_task_alone_and_has_nothing_of_the_machine_that_submits",),
    ),
    Mutant(
        "refused-in-its-own-pod", "a driver in a pod of Kubernetes is taken for one beside the cluster", "onlyonce/spark/options.py",
        (('theirs.get("spark.kubernetes.submitInDriver") == "true"', "False"),),
        ("tests/unit/test_spark_options.py::test_a_driver_in_the_cluster_is_started_by_its_task_alone_and_has_nothing_of_the_machine_that_submits",),
    ),
    Mutant(
        "settings-of-the-worker", "the settings of Airflow's worker decide with which jars a driver's JVM starts, and not the driver's own",
        "onlyonce/airflow/operators/spark_job.py",
        (("refusals_are_final(self.log), within(told):", "refusals_are_final(self.log):"),),
        ("tests/dags/test_spark_job.py::test_the_drivers_own_settings_decide_with_which_jars_it_starts",),
    ),
    Mutant(
        "keys-for-the-driver-alone", "executors in a cluster get no keys of the store", "onlyonce/airflow/operators/cluster_secrets.py",
        (('        **{f"spark.executorEnv.{name}": value for name, value in of_executors.items()},\n', ""),),
        ("tests/contract/airflow/test_supervision.py::test_the_secrets_of_a_driver_in_a_cluster_go_by_a_file_of_this_account_alone",),
    ),
    Mutant(
        "state-in-200", "a state begins on a cluster in Spark's own number of partitions", "onlyonce/spark/state.py",
        (('return not master.startswith("local") and partitions is None', "return False"),),
        ("tests/unit/test_spark_options.py::test_a_state_does_not_begin_on_a_cluster_in_a_number_that_nobody_has_said",),
    ),
    Mutant(
        "trial-on-one-machine", "a part of a batch that failed is tried in a folder that only the driver sees", "onlyonce/receive/batch_files.py",
        (("poison.in_store(settings.trials_location(context.instance))", 'poison.in_store(settings.home().parent / "trials")'),),
        ("tests/spark/receive/test_poison.py::test_a_record_at_which_three_attempts_fail_is_invalid_and_the_others_are_kept[by exchange]",),
    ),
    Mutant(
        "trials-not-forgotten", "an erasure leaves what a killed driver has tried of a batch", "onlyonce/operate/erase/forget.py",
        (("(settings.blocks_dir(instance), settings.trials_location(instance))", "(settings.blocks_dir(instance),)"),),
        ("tests/contract/operate/test_forget.py::test_records_go_from_everywhere_and_a_receipt_without_their_values_stays",),
    ),
    Mutant(
        "hours-by-receive", "windows of a chain close by the frontier of receive, and not by that of the closed windows before them",
        "onlyonce/model/outputs/chained.py",
        (("        return micros(self.waits_before) + (", "        return 0 * ("),),
        ("tests/transcripts/test_transcripts.py::test_the_model_tells_the_same_story[chains]",
         "tests/unit/declare/test_declared_chains.py::test_the_windows_of_a_chain_know_those_before_them"),
    ),
    Mutant(
        "minutes-by-their-end", "a closed window counts by its end, which is in the next window", "onlyonce/model/outputs/chained.py",
        (("self.own.assign(end - 1)[0]", "self.own.assign(end)[0]"),),
        ("tests/transcripts/test_transcripts.py::test_the_model_tells_the_same_story[chains]",),
    ),
    Mutant(
        "whatever-comes-last", "an upsert with newest_by keeps what was written last", "onlyonce/sinks/postgres/postgres_unit.py",
        (("    if work.newest_by:\n", "    if False:\n"),),
        (NEWEST + "test_texts_are_in_the_order_of_their_bytes_in_any_database",),
    ),
    Mutant(
        "deleted-and-forgotten", "a key that was deleted is not remembered, so an older update brings its row back", "onlyonce/sinks/postgres/postgres_newest.py",
        (("    for statement in (REMEMBER, DELETE, FORGET):\n", "    for statement in (DELETE, FORGET):\n"),),
        (NEWEST + "test_an_older_change_does_not_bring_a_deleted_row_back_and_a_newer_one_does",
         NEWEST + "test_a_delete_of_a_key_that_never_came_is_remembered_too"),
    ),
    Mutant(
        "deleted-for-ever", "a key that is created again is still among the deleted ones", "onlyonce/sinks/postgres/postgres_newest.py",
        (("    for statement in (REMEMBER, DELETE, FORGET):\n", "    for statement in (REMEMBER, DELETE):\n"),),
        (NEWEST + "test_an_older_change_does_not_bring_a_deleted_row_back_and_a_newer_one_does",),
    ),
    Mutant(
        "late-version-ends-nothing", "the ends of a key's versions are found among the versions of one unit alone", "onlyonce/sinks/postgres/postgres_history.py",
        (("FROM {target} WHERE ({keys}) IN (SELECT {keys} FROM arriving)\n        {ended}", "FROM {target} WHERE ({identity}) IN (SELECT {identity} FROM arriving)\n        {ended}"),),
        ("tests/contract/sinks/test_histories.py::test_a_version_that_comes_late_stands_between_its_neighbours_and_so_does_a_delete",),
    ),
    Mutant(
        "delete-ends-no-version", "a version goes on behind the delete of its row", "onlyonce/sinks/postgres/postgres_history.py",
        (('    names["ended"] = sql.SQL(ENDED).format(**names) if deletes else sql.SQL("")\n', '    names["ended"] = sql.SQL("")\n'),),
        ("tests/contract/sinks/test_histories.py::test_a_version_that_comes_late_stands_between_its_neighbours_and_so_does_a_delete",),
    ),
    Mutant(
        "any-row-over-the-newest", "a Delta upsert with newest_by keeps what was written last", "onlyonce/sinks/delta/sink_delta.py",
        (("        if not self._sink.newest_by:\n", "        if True:\n"),),
        ("tests/spark/sinks/test_newest_rows.py::test_the_rows_are_those_that_the_source_has[delta]",),
        spark=True,
    ),
    Mutant(
        "change-at-the-snapshot", "a change at the place of the snapshot is as new as the snapshot's row", "onlyonce/sources/kafka/kafka_changes.py",
        (('F.when(op == "r", F.lit("0")).otherwise(F.lit("1"))', 'F.lit("1")'),),
        ("tests/spark/sources/test_changes.py::test_a_change_is_its_row_and_what_happened_to_it",),
        spark=True,
    ),
    Mutant(
        "delete-by-its-row-alone", "a delete without a row before it is invalid, though the message's key says which row went", "onlyonce/sources/kafka/ranges.py",
        (('keyed="key" in source.registered', "keyed=False"),),
        ("tests/spark/sources/test_changes.py::test_the_key_of_a_change_comes_from_the_key_of_its_message",),
        spark=True,
    ),
    Mutant(
        "unknown-without-end", "a registry is asked for each id that a topic of other bytes names", "onlyonce/sources/formats/schema_registry.py",
        (("is None), most + 1))", "is None), None))"),),
        ("tests/unit/sources/test_schema_registry.py::test_a_batch_may_name_any_number_of_schemas_that_the_registry_knows",),
    ),
    Mutant(
        "avro-row-by-row", "the marks between Avro messages are compared one by one, in Python", "onlyonce/sources/formats/avro_messages.py",
        (('not pc.all(pc.equal(pa.array(rows, MARKS).field("mark"), mark)).as_py()', 'any(row["mark"] != mark for row in rows)'),),
        ("tests/unit/sources/test_message_formats.py::test_no_python_runs_for_each_avro_message",),
    ),
    Mutant(
        "late-version-in-delta-ends-nothing", "the ends of a key's versions are found among those of one batch alone", "onlyonce/sinks/delta/delta_history.py",
        (('        found = _marked(came, new=True).unionByName(_marked(kept, new=False), allowMissingColumns=True)\n', "        found = _marked(came, new=True)\n"),),
        (DELTA_HISTORY + "test_a_version_that_comes_late_stands_between_its_neighbours_and_so_does_a_delete",),
        spark=True,
    ),
    Mutant(
        "delete-in-delta-ends-no-version", "a version goes on behind the delete of its row", "onlyonce/sinks/delta/delta_history.py",
        (("allowMissingColumns=True) if self.sink.deletes else found", "allowMissingColumns=True) if False else found"),),
        (DELTA_HISTORY + "test_a_version_that_comes_late_stands_between_its_neighbours_and_so_does_a_delete",),
        spark=True,
    ),
    Mutant(
        "decimal-in-avro-by-a-double", "a decimal of a change in Avro keeps the digits that a double has", "onlyonce/sources/formats/avro_envelopes.py",
        (('return format(value, "f")', "return repr(float(value))"),),
        ("tests/unit/sources/test_avro_envelopes.py::test_a_row_keeps_its_values",),
    ),
    Mutant(
        "delta-forgets-what-it-deleted", "an update that is older than the delete of its row writes it again", "onlyonce/sinks/delta/sink_delta.py",
        (("self._deletes.standing(rows)", "rows"),),
        ("tests/spark/sinks/test_delta_deletes.py::test_an_older_change_does_not_bring_a_deleted_row_back_and_a_newer_one_does",),
        spark=True,
    ),
    Mutant(
        "name-of-another-table", "a name that the catalog has for another table is taken for the output's", "onlyonce/sinks/delta/delta_name.py",
        (("    elif there != path:", "    elif False:"),),
        ("tests/spark/sinks/test_delta_name.py::test_a_name_that_is_another_tables_or_in_no_schema_is_refused",),
        spark=True,
    ),
    Mutant(
        "nulls-inside", "a null within a column is put into a table whose column has none", "onlyonce/sinks/delta/delta_fit.py",
        ((" | delta_inside.conditions(there, written.schema)", ""),),
        ("tests/spark/sinks/test_delta_inside.py::test_a_null_where_the_table_has_none_is_refused_and_no_other",),
        spark=True,
    ),
    Mutant(
        "row-goes-before-its-delete", "the deletes of a batch are committed behind its upsert", "onlyonce/sinks/delta/sink_delta.py",
        (
            ("        if self._deletes:\n            self._deletes.remember(dated, commit, replayed=replayed)\n", ""),
            (
                "        changing.change(self.path, commit, plan, replayed=replayed)\n",
                "        changing.change(self.path, commit, plan, replayed=replayed)\n"
                "        if self._deletes:\n            self._deletes.remember(dated, commit, replayed=replayed)\n",
            ),
        ),
        ("tests/spark/sinks/test_delta_deletes.py::test_a_delete_is_remembered_before_its_row_goes",),
        spark=True,
    ),
    Mutant(
        "zombie-deletes-after-withdrawal", "the transaction of a withdrawn batch is used up in its table only, and not where its deletes are kept", "onlyonce/run/withdraw.py",
        (("if is_ours(beside(path)) and not", "if False and not"),),
        ("tests/contract/run/test_withdraw.py::test_the_deletes_of_a_withdrawn_batch_can_not_land_either",),
    ),
    Mutant(
        "audit-of-one-source", "the audit knows the ids of one source only, and calls sound rows of several wrong", "onlyonce/operate/audit_data.py",
        ((
            'record_id.RecordId(row["oo_high"], row["oo_low"]) not in record_id.of_any_source(pipeline, values)',
            'record_id.of_values(pipeline, values) != record_id.RecordId(row["oo_high"], row["oo_low"])',
        ),),
        ("tests/unit/operate/test_audit_ids.py::test_a_row_of_any_source_has_an_id_of_its_columns_and_another_id_is_found[by_source]",),
    ),
    Mutant(
        "hours-before-their-minutes", "in a long run an output of a chain does not wait for the one before it", "onlyonce/run/upstream.py",
        (("        while not run(", "        while False and not run("),),
        ("tests/spark/outputs/test_chains.py::test_in_a_long_run_an_output_begins_on_no_row_before_the_one_before_it_has_written_what_closes_with_it",),
        spark=True,
    ),
    Mutant(
        "left-out-and-further-on", "a record that an output leaves out as late is in the windows that are made from its own", "onlyonce/outputs/windows/chaining.py",
        (("    if not window.leaves_late_out:\n", "    if True:\n"),),
        ("tests/spark/outputs/test_chains.py::test_a_backfill_of_what_leaves_late_records_out_goes_down_the_chain_once_its_windows_have_closed",),
        spark=True,
    ),
    Mutant(
        "rows-of-batches-not-seen", "the rows that wait in a join are added up though Spark's word of a batch is missing", "sql/states.sql",
        (("CASE WHEN excluded.batch_id = known.batch_id + 1 THEN known.rows + excluded.rows_in - excluded.rows_out END", "known.rows + excluded.rows_in - excluded.rows_out"),),
        ("tests/contract/commitlog/test_states.py::test_rows_are_not_known_where_a_batch_is_missing_and_never_of_what_spark_does_not_count",),
    ),
    Mutant(
        "snapshot-of-the-delete", "of a backfill in Iceberg the snapshot is noted that takes the old rows out", "onlyonce/sinks/iceberg/commits.py",
        (("for snapshot in reversed(metadata.snapshots):", "for snapshot in metadata.snapshots:"),),
        ("tests/contract/sinks/test_iceberg_sink.py::test_a_commit_gives_the_snapshot_that_has_its_rows",),
    ),
    Mutant(
        "dry-run-counts-nothing", "a dry run of keep_log says that no batch would go", "onlyonce/operate/compact/log.py",
        (("    if lives and not holds:\n        if not dry_run:\n", "    if lives and not holds and not dry_run:\n        if not dry_run:\n"),),
        ("tests/contract/operate/test_keep_log.py::test_old_batches_go_and_every_total_and_window_has_its_numbers",),
    ),
)  # fmt: skip

MUTANTS = {mutant.name: mutant for mutant in _ALL}
