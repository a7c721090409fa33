"""Mutants of `onlyonce/sinks` and what belongs to it."""

from __future__ import annotations

from tests.mutants.cases.paths import (
    BIGQUERY,
    CONTENT,
    DELIVER,
    DELTA_HISTORY,
    FILES,
    ICEBERG,
    IN_BATCHES,
    KAFKA,
    LOST,
    MYSQL,
    MYSQL_NEWEST,
    NEWEST,
    POSTGRES,
    SAMPLE,
    STREAMS,
    TARGETS,
    UPSERT,
)
from tests.mutants.mutant import Mutant
from tests.mutants.operators import Always, Delete, Never, Replace

CONFORMANCE = "tests/spark/sinks/conformance/test_conformance.py::"
PANE_NAMES = "tests/contract/sinks/test_pane_names.py::"
TEAM = "tests/contract/sinks/test_team_tables.py::"

MUTANTS = (
    Mutant(
        "folder-away-stops-all-files",
        "files of a folder that is away keep those of other folders waiting for their names",
        "onlyonce/sinks/files/finalize.py",
        Replace("_published", "first.place in away", "away"),
        Replace(
            "main",
            "_waiting(database, instances, broken, away)",
            "not away and _waiting(database, instances, broken, away)",
        ),
        tests=("tests/contract/sinks/test_files.py::test_folder_that_is_away_keeps_no_other_waiting",),
    ),
    Mutant(
        "name-of-two-files-of-a-batch",
        "a user's function gives one name to two files of a batch",
        "onlyonce/core/file_names.py",
        Never("name_files", "(other := of_name.setdefault(name, key)) != key"),
        tests=(
            "tests/unit/model/sinks/test_file_names.py::test_function_that_cannot_name_files_is_refused_by_the_check"
            "[without_shard-gives two files the name]",
        ),
    ),
    Mutant(
        "name-of-an-earlier-file",
        "a user's function gives a file the name that an earlier file has, and that is known before the file is written",
        "onlyonce/core/file_names.py",
        Delete("refuse_taken", "raise collision(subject, name, key, of_name[name], data)"),
        tests=(PANE_NAMES + "test_name_of_an_earlier_file_is_refused_before_anything_moves[disk-without_pane]",),
    ),
    Mutant(
        "part-of-a-pane-moves",
        "files of a pane get their names although the name of another file of the pane is taken",
        "onlyonce/sinks/files/file_stores.py",
        Delete(
            "LocalStore.publish",
            "for winner in waiting:\n    with suppress(FileNotFoundError):\n"
            "        _check(winner, self.folder / winner.name)",
        ),
        tests=(PANE_NAMES + "test_foreign_file_under_a_name_stops_the_whole_pane[disk]",),
    ),
    Mutant(
        "pane-without-rows-is-left-out",
        "a window that has fired has no rows any more, and readers take its earlier pane for the newest",
        "onlyonce/sinks/files/sink_files.py",
        Replace(
            "FilesWriter._replace",
            "(had if among is None else had & among) - windows",
            "(had if among is None else set()) - windows",
        ),
        tests=("tests/spark/sinks/test_file_panes.py::test_each_firing_writes_whole_windows_to_new_files",),
    ),
    Mutant(
        "maintenance-ends-at-a-table",
        "a table that can't be opened ends the maintenance of all",
        "onlyonce/sinks/maintain.py",
        Replace("maintain_output", "(DeltaError, OSError, Refused)", "OSError"),
        tests=("tests/contract/sinks/test_maintain.py::test_table_that_cannot_be_opened_is_left_with_a_warning",),
    ),
    Mutant(
        "outputs-4-any-error-is-lost",
        "an error that PostgreSQL answers at COMMIT counts as a lost answer",
        "onlyonce/database/connect.py",
        Never("transaction", "is_answer(error)"),
        tests=(TEAM + "test_what_a_table_rejects_is_refused_at_once[append-deferred trigger]",),
    ),
    Mutant(
        "outputs-conformance-no-partition",
        "a row for which a MySQL table has no partition is an outage, and tried again for ever",
        "onlyonce/sinks/mysql/mysql_rows.py",
        Replace(
            "",
            "{1062, 1048, 1292, 1364, 1365, 1366, 1369, 1411, 1452, 1526, 1591, 1644, 1690, 1748, 1906, 3105, "
            "3819, 4025}",
            "{1062, 1048, 1292, 1364, 1365, 1366, 1369, 1411, 1452, 1591, 1644, 1690, 1748, 1906, 3105, 3819, 4025}",
        ),
        tests=(
            CONFORMANCE + "test_rows_are_in_a_teams_table_with_its_own_values_or_are_refused[MySQLAppend-partition]",
        ),
        spark=True,
    ),
    Mutant(
        "outputs-conformance-base64-in-lines",
        "bytes in CSV files and in the keys of maps are Base64 in lines of 76 characters",
        "onlyonce/engine/encoding.py",
        Replace("_base64", 'F.translate(F.base64(column), "\\r\\n", "")', "F.base64(column)"),
        tests=(CONFORMANCE + "test_values_are_read_back_after_a_kill_and_another_writer[Csv]",),
        spark=True,
    ),
    Mutant(
        "outputs-conformance-years-of-plain-columns",
        "a year that no sink takes is looked for in plain columns alone, so one inside a column is written",
        "onlyonce/sinks/base/held_values.py",
        Always("_has", "not limit.nested"),
        tests=("tests/unit/sinks/test_held_values.py::test_a_limit_is_looked_for_inside_columns",),
    ),
    Mutant(
        "sum-keeps-nan",
        "a corrected sum is not computed again after NaN was removed from it",
        "onlyonce/sinks/postgres/postgres_rows.py",
        Never("write_sums", "windows is not None and floats"),
        tests=(
            "tests/contract/sinks/test_corrected_sums.py::test_float_that_is_corrected_leaves_no_trace_in_the_sum[nan-real]",
        ),
    ),
    Mutant(
        "strings-in-memory-unchecked",
        "a string that is not UTF-8 is written if the driver writes its batch",
        "onlyonce/sinks/base/held_values.py",
        Never("any_outside", "_is_damaged(rows)"),
        tests=("tests/unit/sinks/test_held_values.py::test_strings_in_memory_that_are_not_utf8_are_found[False]",),
    ),
    Mutant(
        "outputs-3-later-is-this",
        "a later transaction counts as evidence of an earlier commit that no history has",
        "onlyonce/tables/commit.py",
        Replace("once", "now == commit.version", "now is not None"),
        tests=("tests/contract/sinks/test_delta_once.py::test_an_older_batch_that_no_history_has_is_no_commit",),
    ),
    Mutant(
        "outputs-4-dropped-unseen",
        "the rows that PostgreSQL reports are not compared with the rows of the unit",
        "onlyonce/sinks/postgres/postgres_unit.py",
        Delete("_fill", "_refuse_dropped(work, rows.count - cursor.rowcount)"),
        tests=(TEAM + "test_what_a_table_rejects_is_refused_at_once[append-dropped row]",),
    ),
    Mutant(
        "outputs-4-left-out-unseen",
        "a row in order that a trigger drops counts as left out for a newer one",
        "onlyonce/sinks/postgres/postgres_rows.py",
        Replace("unwritten_keys", "int(cursor.fetchall()[0][0])", "0"),
        tests=(
            TEAM + "test_a_row_in_order_that_a_trigger_drops_is_refused[upsert-UPDATE]",
            TEAM + "test_a_row_of_a_later_window_that_a_trigger_drops_is_refused",
        ),
    ),
    Mutant(
        "outputs-4-ends-unseen",
        "versions of a history whose ends a trigger keeps count as ended",
        "onlyonce/sinks/postgres/postgres_rows.py",
        Replace("write_history", "dropped + int(cursor.fetchall()[0][0])", "dropped"),
        tests=(TEAM + "test_a_row_in_order_that_a_trigger_drops_is_refused[history-UPDATE]",),
    ),
    Mutant(
        "outputs-4-kept-from-a-clearing",
        "rows that a trigger keeps stand next to those that are computed from the start",
        "onlyonce/sinks/postgres/postgres_table.py",
        Replace(
            "",
            '"WITH gone AS (DELETE FROM {0} RETURNING 1) SELECT (SELECT count(*) FROM {0}) - (SELECT count(*) '
            'FROM gone)"',
            '"WITH gone AS (DELETE FROM {0} RETURNING 1) SELECT 0"',
        ),
        tests=(TEAM + "test_a_trigger_that_keeps_rows_from_a_new_computation_is_refused",),
    ),
    Mutant(
        "outputs-4-mysql-unchecked",
        "check does not see that MySQL computes a column's values itself",
        "onlyonce/sinks/mysql/sink_mysql.py",
        Never(
            "MySQLTable._check",
            'column in there and "GENERATED" in there[column].extra.upper().replace("DEFAULT_GENERATED", "")',
        ),
        tests=(MYSQL + "test_check_reports_what_a_run_would_refuse",),
    ),
    Mutant(
        "outputs-8-strings-merge",
        "an upsert takes a unique index in which different strings are one key",
        "onlyonce/sinks/postgres/postgres_table.py",
        Replace("SinkTable._check_unique", "index.strings_merge", "False"),
        tests=("tests/contract/sinks/test_team_tables.py::test_a_collation_that_merges_keys_is_refused",),
    ),
    Mutant(
        "outputs-8-beginning-of-a-column",
        "an upsert into MySQL takes a unique index over its keys and the beginning of another column",
        "onlyonce/sinks/mysql/sink_mysql.py",
        Replace(
            "MySQLTable._unique",
            'column if row.part is None else f"{column}({row.part})"',
            "column if row.part is None else next(iter(self._sink.row_id))",
        ),
        tests=(MYSQL + "test_an_index_with_the_beginning_of_a_column_is_no_key_index",),
    ),
    Mutant(
        "outputs-8-nulls-differ",
        "an upsert takes a unique index in which two nulls are two keys",
        "onlyonce/sinks/postgres/postgres_table.py",
        Never(
            "SinkTable._check_unique",
            "not (self._sink.delete_when or self._versions) and all(index.nulls_differ for index in over)",
        ),
        tests=(TEAM + "test_a_table_that_cannot_take_an_upsert_is_refused_before_any_row",),
    ),
    Mutant(
        "outputs-6-bounds-in-a-manifest",
        "an Iceberg table's files have bounds that leave NaN out",
        "onlyonce/sinks/iceberg/sink_iceberg.py",
        Replace("_Writer.write", "arrow_files.footer_form(table.schema, table)", "{}"),
        tests=("tests/contract/storage/test_other_readers.py::test_a_nan_of_an_iceberg_table_is_found",),
    ),
    Mutant(
        "outputs-13-of-another-form",
        "rows are committed to a table that was altered after they were checked",
        "onlyonce/tables/opening.py",
        Never("refuse_changed", "found != checked"),
        tests=(
            "tests/contract/sinks/test_delta_once.py::test_rows_that_were_checked_for_another_form_are_not_committed[altered-during "
            "the try-append]",
        ),
    ),
    Mutant(
        "outputs-13-table-made-again",
        "a table of the same form in the place of the one that was checked is taken for it",
        "onlyonce/tables/opening.py",
        Delete("refuse_changed", "ownership.refuse_replaced(str(at), checked.table_id, found.table_id)"),
        Replace("refuse_changed", "found != checked", "found.described != checked.described"),
        tests=(
            "tests/contract/sinks/test_delta_once.py::test_rows_that_were_checked_for_another_form_are_not_committed[made "
            "again-during the try-append]",
        ),
    ),
    Mutant(
        "outputs-13-made-again-between-runs",
        "a Delta or Iceberg table that was dropped and made again since the last run is written on",
        "onlyonce/sinks/targets.py",
        Never("claimed", "made.table_id is not None"),
        tests=(
            TARGETS + "test_a_delta_table_that_was_made_again_is_refused",
            "tests/contract/sinks/test_iceberg_target.py::test_a_table_that_went_is_missed_and_one_of_another_pipeline_is_refused",
        ),
    ),
    Mutant(
        "outputs-13-log-that-begins-again",
        "a run reads on in the log of a table that was made again",
        "onlyonce/tables/commit.py",
        Never("Appended.look", "self._first_entry() != self._begun"),
        tests=("tests/contract/sinks/test_delta_once.py::test_a_look_sees_that_a_table_was_made_again",),
    ),
    Mutant(
        "outputs-13-iceberg-made-again",
        "an Iceberg table that was made again during a commit ends in pyiceberg's own error",
        "onlyonce/sinks/iceberg/iceberg_commits.py",
        Replace("_refresh", "ValueError", "KeyError"),
        tests=(
            "tests/contract/sinks/test_iceberg_sink.py::test_a_table_that_is_made_again_between_look_and_commit_is_refused",
        ),
    ),
    Mutant(
        "outputs-14-iceberg-other-columns",
        "files for other columns than an Iceberg table has are committed",
        "onlyonce/sinks/iceberg/iceberg_commits.py",
        Replace(
            "_until_alone",
            "_put(table, commit, written, schema, instead_of)",
            "_put(table, commit, written, table.metadata.current_schema_id, instead_of)",
        ),
        tests=(
            "tests/contract/sinks/test_iceberg_sink.py::test_files_for_other_columns_than_the_table_has_are_not_committed[the tasks write]",
        ),
    ),
    Mutant(
        "outputs-conformance-in-order-by-their-times",
        "versions that are in order by when they begin have that column twice",
        "onlyonce/sinks/postgres/postgres_rows.py",
        Replace("write_history", "dict.fromkeys((*identity, VALID_FROM))", "(*identity, VALID_FROM)"),
        tests=(
            CONFORMANCE
            + "test_rows_are_in_a_teams_table_with_its_own_values_or_are_refused[PostgresHistory-its own values]",
        ),
        spark=True,
    ),
    Mutant(
        "outputs-14-map-as-a-key",
        "a map among the keys ends in an error of Spark at the first batch",
        "onlyonce/api/outputs.py",
        Never("check_rows", '"map<" in types.get(name, "")'),
        tests=("tests/unit/declare/test_declared_newest.py::test_a_map_among_the_keys_is_refused",),
    ),
    Mutant(
        "outputs-11-hidden-by-a-temporary-table",
        "a MySQL table may have the name of a unit's temporary table, which hides it, so that its rows go with "
        "the unit",
        "onlyonce/api/sinks.py",
        Replace("MySQL.__post_init__", '("onlyonce_", "oo_")', '"onlyonce_"'),
        tests=(
            "tests/unit/declare/test_declare.py::test_what_cannot_work_is_refused_with_the_way_out[MySQL over a "
            "temporary table of a unit]",
        ),
    ),
    Mutant(
        "outputs-7-iceberg-by-floats",
        "rows are written to an Iceberg table that is partitioned by floats, those with 0.0 twice",
        "onlyonce/sinks/iceberg/sink_iceberg.py",
        Never("_refuse_partitions", "isinstance(kind, types.FloatType | types.DoubleType)"),
        tests=("tests/contract/sinks/test_iceberg_sink.py::test_a_table_that_is_partitioned_by_floats_is_refused",),
    ),
    Mutant(
        "outputs-13-kept-columns-unchecked",
        "a constraint sees nulls in the columns that an upsert keeps",
        "onlyonce/sinks/delta/delta_files.py",
        Never("check_fit", "plan and asked and {*there.names} - given"),
        tests=("tests/spark/sinks/test_delta_checks.py::test_a_check_sees_rows_as_they_will_be_in_the_table",),
        spark=True,
    ),
    Mutant(
        "outputs-9-encoding-of-the-database",
        "a session has the encoding of its database, and not that of the strings that it is given",
        "onlyonce/database/connect.py",
        Replace("_postgres_engine", "'UTF8'", "'LATIN1'"),
        tests=(
            TEAM + "test_strings_arrive_in_a_database_that_is_not_utf8",
            TEAM + "test_names_of_columns_arrive_in_a_database_that_is_not_utf8",
        ),
    ),
    Mutant(
        "outputs-10-staged-with-every-constraint",
        "the table of the arriving rows has all columns of the target, NOT NULL ones among them, and no defaults",
        "onlyonce/sinks/postgres/postgres_rows.py",
        Replace(
            "",
            '"CREATE TEMP TABLE arriving ON COMMIT DROP AS SELECT {columns} FROM {target} WITH NO DATA"',
            '"CREATE TEMP TABLE arriving (LIKE {target}) ON COMMIT DROP"',
        ),
        tests=(TEAM + "test_columns_that_the_function_lacks_get_their_own_values[upsert]",),
    ),
    Mutant(
        "outputs-12-options-of-spark",
        "JSON has Spark's defaults: times are cut to milliseconds and null fields are left out",
        "onlyonce/engine/encoding.py",
        Replace("json", "JSON", "{}"),
        tests=("tests/spark/sinks/test_encoding.py::test_every_type_is_encoded_exactly",),
    ),
    Mutant(
        "outputs-12-key-through-a-float",
        "a decimal in the key of a message goes through a float, so that two keys become one",
        "onlyonce/core/conversions.py",
        Replace(
            "parsed",
            "json.loads(line, parse_int=Number, parse_float=Number, parse_constant=Number)",
            "json.loads(line, parse_constant=Number)",
        ),
        tests=("tests/unit/sinks/test_kafka_messages.py::test_a_key_is_the_text_of_one_column_or_json_of_several",),
    ),
    Mutant(
        "outputs-domains-narrower-passes",
        "a column of a team's table whose type holds fewer values passes",
        "onlyonce/core/column_types.py",
        Always("refuse_other", 'found.replace(" ", "") == kind.replace(" ", "")'),
        tests=("tests/unit/sinks/test_column_types.py::test_a_narrower_type_is_refused_by_column_and_types",),
    ),
    Mutant(
        "outputs-domains-spaces-are-cut",
        "the length of a string is not compared with its column, so a database cuts the spaces at its end",
        "onlyonce/sinks/base/held_values.py",
        Replace("_longest", "pc.utf8_length(column)", "pc.utf8_length(pc.utf8_rtrim_whitespace(column))"),
        tests=("tests/unit/sinks/test_held_values.py::test_a_value_longer_than_its_column_is_found_in_memory",),
    ),
    Mutant(
        "outputs-conformance-claims-late",
        "a task whose process is killed after its commit writes its rows again",
        "onlyonce/sinks/postgres/postgres_unit.py",
        Never("_commit", "there is not None"),
        tests=(CONFORMANCE + "test_rows_are_there_once_whatever_task_is_killed[PostgresAppend]",),
        spark=True,
    ),
    Mutant(
        "outputs-12-csv-without-quotes",
        "CSV has no quotes, so a comma ends a value",
        "onlyonce/sinks/base/content.py",
        Replace("csv_writer", '"all_valid"', '"none"'),
        tests=("tests/contract/sinks/test_postgres_unit.py::test_texts_arrive_as_they_are",),
    ),
    Mutant(
        "outputs-11-inside-the-stream",
        "the folder of a bounded run is inside the stream's table if the declared path ends with a slash",
        "onlyonce/core/ownership.py",
        Replace("Place.of_run", 'plain.rstrip("/")', "plain"),
        tests=("tests/unit/model/sinks/test_run_places.py::test_no_run_is_inside_the_place_of_another",),
    ),
    Mutant(
        "outputs-11-names-are-cut",
        "a derived name that is too long is cut, without a hash of the whole name",
        "onlyonce/core/ownership.py",
        Replace("Names._fitting", 'f"_{hashlib.sha256(name.encode()).hexdigest()[:HASH_DIGITS]}"', '""'),
        tests=(
            "tests/unit/model/sinks/test_names.py::test_no_two_derived_names_are_one",
            "tests/contract/sinks/test_sink_tables.py::test_names_that_postgresql_would_cut_are_tables_of_their_own",
        ),
    ),
    Mutant(
        "outputs-11-table-of-a-team",
        "a drop removes a table because of its name alone",
        "onlyonce/commitlog/dropping.py",
        Always("Drops.drop_table", "self.note_of(schema, beside) == note"),
        tests=(
            "tests/contract/sinks/test_sink_tables.py::test_a_teams_table_of_a_derived_name_is_neither_written_nor_dropped",
        ),
    ),
    Mutant(
        "rows-of-any-partition",
        "a Postgres unit takes whatever rows Spark gives its task",
        "onlyonce/sinks/base/pinned.py",
        Never("counted", "targets not in ([], [unit.partition])"),
        tests=(POSTGRES + "test_rows_of_another_partition_stop_the_unit",),
    ),
    Mutant(
        "stream-for-each-attempt",
        "an attempt begins a write stream of its own, and not that of the unit",
        "onlyonce/sinks/outbox/send_bigquery.py",
        Always("BigQueryStreamTarget.write", "name is None or not self._is_here(name)"),
        tests=(STREAMS + "test_of_two_that_write_a_unit_at_once_one_is_seen",),
    ),
    Mutant(
        "stream-of-any-table",
        "a unit goes on in its stream although another table was declared",
        "onlyonce/sinks/outbox/send_bigquery.py",
        Replace("BigQueryStreamTarget.write", "name is None or not self._is_here(name)", "name is None"),
        tests=(STREAMS + "test_unit_goes_whole_to_another_declared_table",),
    ),
    Mutant(
        "stream-of-another-table-unasked",
        "a unit that is committed in the table of before is sent to the declared one",
        "onlyonce/sinks/outbox/send_bigquery.py",
        Replace("BigQueryStreamTarget.committed", "return bool(found.commit_time)", "return False"),
        tests=(STREAMS + "test_unit_of_another_table_is_found_there",),
    ),
    Mutant(
        "stream-finalized-is-wrong",
        "a stream that a killed attempt has finalized is refused at each attempt",
        "onlyonce/sinks/outbox/send_bigquery.py",
        Replace(
            "_takes_no_more", "code == ALREADY_EXISTS or FINALIZED.search(text) is not None", "code == ALREADY_EXISTS"
        ),
        tests=(STREAMS + "test_a_kill_before_the_commit_does_not_show[True]",),
    ),
    Mutant(
        "bigquery-whole-as-double",
        "a whole number that a float does not have is sent to BigQuery as a number of JSON",
        "onlyonce/sinks/outbox/send_bigquery.py",
        Always("_whole", "abs(number) < 1 << 53"),
        tests=("tests/unit/sinks/test_bigquery_numbers.py::test_a_number_reaches_bigquery_exactly",),
    ),
    Mutant(
        "stream-uncounted",
        "a write stream is committed without the server's count of its rows",
        "onlyonce/sinks/outbox/send_bigquery.py",
        Never("BigQueryStreamTarget.write", "counted != number"),
        tests=(STREAMS + "test_a_stream_with_a_part_of_the_rows_is_not_committed",),
    ),
    Mutant(
        "mysql-of-any-sign",
        "rows come into MySQL in the character set of its database",
        "onlyonce/sinks/mysql/mysql_rows.py",
        Replace("_load", "f\"c{n} LONGTEXT CHARACTER SET utf8mb4 PATH '$[{n}]'\"", "f\"c{n} LONGTEXT PATH '$[{n}]'\""),
        tests=(MYSQL + "test_texts_arrive_as_they_are[append]",),
    ),
    Mutant(
        "mysql-any-engine",
        "a table of an engine without transactions is taken",
        "onlyonce/sinks/mysql/sink_mysql.py",
        Replace(
            "MySQLTable._check",
            'table.kind != "BASE TABLE" or table.engine != "InnoDB"',
            'table.kind != "BASE TABLE"',
        ),
        tests=(MYSQL + "test_a_table_that_cannot_keep_the_promise_is_refused_unchanged[MyISAM]",),
    ),
    Mutant(
        "mysql-window-first",
        "an upsert sets the end of the window before the columns that depend on it",
        "onlyonce/sinks/mysql/mysql_rows.py",
        Replace(
            "Arriving._values",
            "[*others, *(c for c in reversed(latest) if c not in work.keys)]",
            "[c for c in self.columns if c not in work.keys]",
        ),
        tests=(
            MYSQL + "test_an_upsert_without_the_window_keeps_the_row_of_the_later_one",
            MYSQL_NEWEST + "test_the_order_is_that_of_all_columns_and_of_the_bytes_of_texts",
        ),
    ),
    Mutant(
        "mysql-by-the-language",
        "texts are compared by the collation of their column",
        "onlyonce/sinks/mysql/mysql_rows.py",
        Never("Arriving._ordered", "column in self.texts"),
        tests=(MYSQL_NEWEST + "test_the_order_is_that_of_all_columns_and_of_the_bytes_of_texts",),
    ),
    Mutant(
        "mysql-deleted-and-forgotten",
        "a key that was deleted is not remembered, so an older update brings its row back",
        "onlyonce/sinks/mysql/mysql_rows.py",
        Replace("Arriving.delete", "(REMEMBER, DELETE, FORGET)", "(DELETE, FORGET)"),
        tests=(MYSQL_NEWEST + "test_an_older_change_does_not_bring_a_deleted_row_back_and_a_newer_one_does",),
    ),
    Mutant(
        "mysql-altered-in-a-unit",
        "the table of the arriving rows gets a column by ALTER, which commits the claim before its rows",
        "onlyonce/sinks/mysql/mysql_rows.py",
        Replace(
            "Arriving.stage",
            "self.drop()",
            """
            self.drop()
            self.run('ALTER TABLE {target} COMMENT = \\'\\'')
        """,
        ),
        tests=(MYSQL_NEWEST + "test_the_table_is_what_the_source_has[upsert-1]",),
    ),
    Mutant(
        "mysql-delete-ends-no-version",
        "a version goes on behind the delete of its row",
        "onlyonce/sinks/mysql/mysql_rows.py",
        Delete("write_history", "arriving.run(ENDED)"),
        tests=(MYSQL_NEWEST + "test_a_version_that_comes_late_stands_between_its_neighbours_and_so_does_a_delete",),
    ),
    Mutant(
        "iceberg-unconditional",
        "a commit to an Iceberg table does not require that its branch is where it was",
        "onlyonce/sinks/iceberg/iceberg_commits.py",
        Replace(
            "_put",
            "(AssertTableUUID(uuid=table.metadata.table_uuid), AssertRefSnapshotId(ref=BRANCH, "
            "snapshot_id=at.snapshot_id if at else None), AssertCurrentSchemaId(current_schema_id=schema))",
            "(AssertTableUUID(uuid=table.metadata.table_uuid), AssertCurrentSchemaId(current_schema_id=schema))",
        ),
        tests=(ICEBERG + "test_rows_that_others_commit_between_look_and_commit_stay",),
    ),
    Mutant(
        "iceberg-one-look",
        "after a conflict a batch is committed to an Iceberg table without another look",
        "onlyonce/sinks/iceberg/iceberg_commits.py",
        Never("_until_alone", "(there := look(table.metadata, commit)) is not None"),
        tests=(ICEBERG + "test_a_batch_that_a_twin_commits_between_look_and_commit_is_there_once",),
    ),
    Mutant(
        "iceberg-snapshots-only",
        "only the snapshots of an Iceberg table say which batches it has, and they expire",
        "onlyonce/sinks/iceberg/iceberg_commits.py",
        Delete("_put", "change.set_properties({commit.key: commit.note()})"),
        tests=(ICEBERG + "test_a_batch_whose_snapshots_have_expired_is_not_written_again",),
    ),
    Mutant(
        "iceberg-any-epoch",
        "an overtaken driver commits to an Iceberg table",
        "onlyonce/sinks/iceberg/iceberg_commits.py",
        Never("look", 'newest and newest["epoch"] > commit.epoch'),
        tests=(ICEBERG + "test_a_driver_that_was_overtaken_commits_nothing",),
    ),
    Mutant(
        "iceberg-of-anybody",
        "an Iceberg table that says whose it is may be written by another output",
        "onlyonce/sinks/iceberg/iceberg_catalogs.py",
        Never("check_owner", "there != owner"),
        tests=(ICEBERG + "test_a_table_belongs_to_one_output",),
    ),
    Mutant(
        "data-unit-again",
        "a Postgres unit that is in the log writes its rows again",
        "onlyonce/sinks/postgres/postgres_unit.py",
        Never("_commit", "there is not None"),
        tests=(
            POSTGRES + "test_a_replay_writes_nothing_and_gives_the_same",
            LOST + "test_an_increment_whose_answer_was_lost_is_not_added_again",
            SAMPLE,
        ),
    ),
    Mutant(
        "nulls-not-counted",
        "a null counts as nothing in a row's hash, wherever it is",
        "onlyonce/sinks/base/content.py",
        Replace("_nulls", "reduce(or_, nulls)", "reduce(or_, nulls) & F.lit(False)"),
        tests=(CONTENT + "test_a_row_has_the_hash_that_earlier_versions_have_given_it",),
    ),
    Mutant(
        "outputs-1-nested-unseen",
        "floats inside nested columns are not compared",
        "onlyonce/sinks/base/content.py",
        Replace(
            "floats",
            "found |= {quoted(field.name) + path: inside(F.col(quoted(field.name))) for path, inside in "
            "_inside(field.dataType)}",
            "pass",
        ),
        tests=(CONTENT + "test_floats_inside_nested_columns_are_compared",),
        spark=True,
    ),
    Mutant(
        "outputs-1-rounded-at-each-cut",
        "the sums of floats are rounded for each cut of the rows",
        "onlyonce/sinks/base/content.py",
        Replace("ExactSum.merge", "self.negative += other.negative", "self.negative += other.negative >> 1100 << 1100"),
        tests=(
            "tests/unit/sinks/test_float_sums.py::test_a_sum_is_exact_in_any_order_and_cut",
            CONTENT + "test_sums_of_floats_are_the_same_however_spark_cuts_the_rows",
        ),
        spark=True,
    ),
    Mutant(
        "outputs-17-any-files-are-the-unit",
        "what tasks wrote is not compared with the unit if it has as many rows",
        "onlyonce/sinks/base/pinned.py",
        Replace("check", "not found.same_as(content)", "found.rows != content.rows"),
        tests=(
            "tests/spark/sinks/test_backfilled_rows.py::test_files_are_compared_with_the_unit[append-another]",
            "tests/spark/sinks/test_backfilled_rows.py::test_files_are_compared_with_the_unit[backfill-another]",
        ),
        spark=True,
    ),
    Mutant(
        "outputs-17-rows-that-were-received",
        "an Iceberg unit is compared with the rows that tasks received, and not with those of the files",
        "onlyonce/sinks/iceberg/sink_iceberg.py",
        Replace("written_files", "replace(content, rows=sum((file.record_count for file in files)))", "content"),
        tests=(
            "tests/contract/sinks/test_iceberg_sink.py::test_rows_of_files_that_differ_from_the_unit_are_not_committed",
        ),
    ),
    Mutant(
        "outputs-17-upsert-unsettled",
        "an upsert reads its rows anew for each of its jobs, and none is compared",
        "onlyonce/sinks/delta/sink_delta.py",
        Replace(
            "DeltaWriter.write",
            "delta_files.settled(hashed, folder, check) if check else nullcontext(hashed)",
            "nullcontext(_dated(rows))",
        ),
        tests=("tests/spark/sinks/test_backfilled_rows.py::test_no_sink_commits_rows_that_differ_from_their_unit",),
        spark=True,
    ),
    Mutant(
        "half-a-hash",
        "a part of each hash is not added up",
        "onlyonce/sinks/base/content.py",
        Replace("Tally.add", "hashes >> 32", "hashes >> 40"),
        tests=(CONTENT + "test_spark_and_a_task_count_the_same_content",),
    ),
    Mutant(
        "copy-for-each-row",
        "a unit's rows come into their table one by one",
        "onlyonce/sinks/postgres/postgres_unit.py",
        Replace(
            "_fill",
            "_copy(cursor, _text(COPY, names, cursor), rows)\n_refuse_dropped(work, rows.count - cursor.rowcount)",
            """
            for batch in (first, *rest):
                for n in range(batch.num_rows):
                    _copy(cursor, _text(COPY, names, cursor), _Csv(batch.slice(n, 1), iter(())))
        """,
        ),
        tests=(
            "tests/contract/sinks/test_unit_statements.py::test_a_unit_of_a_table_asks_the_same_for_any_number_of_rows[append]",
        ),
    ),
    Mutant(
        "lost-is-done",
        "a unit whose answer was lost counts as there without a look into the log",
        "onlyonce/sinks/postgres/postgres_unit.py",
        Replace(
            "_settle",
            'raise Retryable(f"unit {work.unit}: the COMMIT did not arrive", data="none of its rows are in the table")',
            """
            return
            raise Retryable(f"unit {work.unit}: the COMMIT did not arrive", data="none of its rows are in the table")
        """,
        ),
        tests=(LOST + "test_a_unit_whose_commit_did_not_arrive_is_retryable_and_passes_the_second_time",),
    ),
    Mutant(
        "padding-forgotten",
        "a column of char(n) gets texts as they are",
        "onlyonce/sinks/delta/delta_rows.py",
        Never("_wrong", "TEXT in field.metadata and field.name not in lengths(there)"),
        tests=(UPSERT + "test_what_a_table_asks_of_a_writer_is_honoured_or_refused_by_its_name[padded text]",),
        spark=True,
    ),
    Mutant(
        "vectors-unread",
        "rows of a file are written again without its deletion vector",
        "onlyonce/sinks/delta/delta_rows.py",
        Replace("", 'opening.KNOWN | {"v2Checkpoint"}', "ADDS"),
        tests=(UPSERT + "test_what_a_table_asks_of_a_writer_is_honoured_or_refused_by_its_name[vectors]",),
        spark=True,
    ),
    Mutant(
        "rows-beside-go",
        "of a file that is written again only the rows of the batch stay",
        "onlyonce/sinks/delta/delta_upsert.py",
        Replace("Upsert._merged", '"full_outer"', '"right_outer"'),
        tests=(UPSERT + "test_only_files_with_a_key_of_the_batch_are_written_again",),
        spark=True,
    ),
    Mutant(
        "rest-of-a-day-goes",
        "a span that begins within a file takes the whole file",
        "onlyonce/sinks/delta/delta_upsert.py",
        Replace("Replace.write", "mixed = [held for held in files if not held.whole]", "mixed: list[Held] = []"),
        tests=(UPSERT + "test_a_span_is_replaced_as_by_replace_where[(6, 30)-['window_date']]",),
        spark=True,
    ),
    Mutant(
        "loser-stays",
        "of twins that write files the one that does not count leaves its files",
        "onlyonce/sinks/files/sink_files.py",
        Delete(
            "_commit",
            """
            if not won:
                _discard(work, begun)
        """,
        ),
        tests=(FILES + "test_of_twins_one_counts_and_the_other_takes_its_files_away",),
    ),
    Mutant(
        "winner-thrown-away",
        "files whose COMMIT had no answer are taken away, though the log names them",
        "onlyonce/sinks/files/sink_files.py",
        Never("_settle", "temporaries == {file.temporary for file in made}"),
        tests=(FILES + "test_a_lost_answer_is_settled_by_the_log",),
    ),
    Mutant(
        "any-content-final",
        "finalize does not compare a file with what its unit has recorded",
        "onlyonce/sinks/files/file_stores.py",
        Never("check", "there != (winner.bytes, winner.checksum)"),
        tests=(
            FILES + "test_a_taken_name_with_other_content_is_an_error_and_stays",
            FILES + "test_a_temporary_that_was_changed_is_an_error",
        ),
    ),
    Mutant(
        "keys-overtake",
        "rows of a key are sent in any order",
        "onlyonce/sinks/outbox/send_webhook.py",
        Never("WebhookSender", "True"),
        tests=(DELIVER + "test_a_misbehaving_endpoint_that_honours_the_key_has_each_row_once",),
    ),
    Mutant(
        "newest-first-in-a-request",
        "the rows of a key are in a request from the last to the first",
        "onlyonce/sinks/outbox/send_webhook.py",
        Replace(
            "of_several",
            '[f\'{{"id": {json.dumps(row.idempotency_key)}, {rest}, "data": {row.payload}}}\' for row in rows]',
            '[f\'{{"id": {json.dumps(row.idempotency_key)}, {rest}, "data": {row.payload}}}\' for row in '
            "reversed(rows)]",
        ),
        tests=(IN_BATCHES + "test_rows_share_requests_in_order_each_with_its_own_id",),
    ),
    Mutant(
        "insert-id-of-the-attempt",
        "each attempt at a row has a BigQuery insert id of its own",
        "onlyonce/sinks/outbox/send_bigquery.py",
        Replace("BigQuerySender.send", "row.insert_id", '__import__("uuid").uuid4().hex'),
        tests=(
            BIGQUERY + "test_rows_arrive_once_with_the_insert_ids_that_are_stored_with_them",
            BIGQUERY + "test_a_misbehaving_server_that_remembers_has_each_row_once",
        ),
    ),
    Mutant(
        "unit-not-asked-for",
        "a deliverer of units does not ask the target whether it has a unit",
        "onlyonce/sinks/outbox/deliver.py",
        Never("UnitDelivery._deliver", "self.target.committed(unit.name)"),
        tests=(KAFKA + "test_kafka_does_what_it_promises[a_lost_answer_does_not_show]",),
    ),
    Mutant(
        "undone-counts",
        "a Kafka unit counts as committed though its transaction was undone",
        "onlyonce/sinks/outbox/send_kafka.py",
        Replace("_read", '"read_committed"', '"read_uncommitted"'),
        tests=(KAFKA + "test_a_unit_of_a_transaction_that_was_undone_is_not_committed",),
    ),
    Mutant(
        "nothing-is-nothing",
        "a replay that means no rows adds its units beside one that holds some",
        "onlyonce/commitlog/units.py",
        Delete("Units.commit_nothing", "compare(unit, found, nothing)"),
        tests=(
            "tests/contract/commitlog/test_batches_of_nothing.py::test_where_one_unit_holds_something_none_is_added",
        ),
    ),
    Mutant(
        "deleted-table-made-again",
        "a table that was deleted is made again, with the newest rows only",
        "onlyonce/sinks/targets.py",
        Never("claimed", "made.at is not None and not at.is_there(place)"),
        tests=(TARGETS + "test_a_table_that_was_deleted_is_not_made_again_without_a_word",),
    ),
    Mutant(
        "deleted-keys-forgotten",
        "a lost table of deleted keys, or of what each window has added, is made again, empty",
        "onlyonce/sinks/targets.py",
        Never("claimed", "vouched and not at.is_there(kept.place)"),
        tests=("tests/spark/sinks/test_kept_tables.py::test_lost_table_of_deleted_keys_or_windows_is_refused",),
        spark=True,
    ),
    Mutant(
        "deleted-keys-vouched-before-a-batch",
        "a table of deleted keys is missed before any batch could have put a key into it",
        "onlyonce/sinks/targets.py",
        Replace(
            "claimed",
            "vouched and not at.is_there(kept.place)",
            "made.at is not None and not at.is_there(kept.place)",
        ),
        tests=("tests/spark/sinks/test_kept_tables.py::test_kept_table_is_made_again_before_the_first_batch",),
        spark=True,
    ),
    Mutant(
        "target-of-a-package-that-is-gone",
        "a drop leaves out a table whose package is not installed, without a word",
        "onlyonce/core/ownership.py",
        Never("_is_claimed", "place.of_target is None and place.kind not in SENT"),
        tests=("tests/unit/sinks/test_target_kinds.py::test_a_kind_whose_package_is_gone_is_refused",),
    ),
    Mutant(
        "format-1-no-note",
        "a result table does not say which platform writes it",
        "onlyonce/sinks/targets.py",
        Never("claimed", "not at.note(place)"),
        tests=(TARGETS + "test_results_of_another_platform_are_refused_by_name",),
    ),
    Mutant(
        "format-1-files-without-note",
        "a folder or prefix of files does not say which platform writes it",
        "onlyonce/sinks/files/file_target.py",
        Delete("put_note", "store_of(place.where).put_note(note)"),
        tests=(TARGETS + "test_results_of_another_platform_are_refused_by_name[FileSink results/files]",),
    ),
    Mutant(
        "format-1-two-platforms-at-once",
        "of two platforms that claim a folder at once both have it",
        "onlyonce/sinks/targets.py",
        Replace(
            "claimed",
            "ownership.refuse_other_owner(at.note(place), context.platform, output.name, place.where)\n"
            "Targets(context.database).made(context.instance, output.name, at.table_id(place))",
            "Targets(context.database).made(context.instance, output.name, at.table_id(place))",
        ),
        tests=(TARGETS + "test_of_two_platforms_at_once_one_gets_the_folder",),
    ),
    Mutant(
        "format-1-teams-comment-overwritten",
        "the note takes the place of a team's own comment on its table",
        "onlyonce/sinks/targets.py",
        Replace("claimed", "not at.note(place)", "True"),
        tests=(TARGETS + "test_a_teams_comment_on_its_table_stays",),
    ),
    Mutant(
        "upsert-by-date",
        "an upsert looks into files of the dates of its rows alone, whatever the keys",
        "onlyonce/sinks/delta/sink_delta.py",
        Replace("DeltaWriter._upsert", "WINDOW_START in keys", "DATE in rows.columns"),
        tests=(
            "tests/spark/sinks/test_sink_schema.py::test_an_upsert_without_the_window_among_its_keys_has_one_row_a_key_whatever_its_date",
        ),
        spark=True,
    ),
    Mutant(
        "null-in-the-order-keeps-the-row",
        "a stored row that has a null in a column of the order stays, although its first columns are equal",
        "onlyonce/sinks/postgres/postgres_rows.py",
        Replace("", '" WHERE ({target_is_older}) IS NOT FALSE"', '" WHERE {target_is_older}"'),
        tests=(
            "tests/contract/sinks/test_newest_rows.py::test_a_stored_row_with_a_null_in_its_order_is_the_older_of_equal_ones",
        ),
    ),
    Mutant(
        "null-in-the-order-keeps-the-row-in-mysql",
        "the same in MySQL",
        "onlyonce/sinks/mysql/mysql_rows.py",
        Replace(
            "Arriving._values",
            'f"(({there}) <= ({arriving})) IS NOT FALSE"',
            'f"({there}) <= ({arriving})"',
        ),
        tests=(
            "tests/contract/sinks/test_mysql_newest.py::test_a_stored_row_with_a_null_in_its_order_is_the_older_of_equal_ones",
        ),
    ),
    Mutant(
        "nested-times-in-the-driver",
        "a small batch takes times inside structs, arrays and maps that a large one refuses",
        "onlyonce/sinks/base/held_values.py",
        Never("_times", "pa.types.is_struct(column.type)"),
        tests=("tests/unit/sinks/test_held_values.py::test_times_inside_columns_of_rows_in_memory_are_checked",),
    ),
    Mutant(
        "earlier-window-over-the-later",
        "an upsert whose keys don't say the window takes the row that comes last, not that of the later window",
        "onlyonce/sinks/postgres/postgres_unit.py",
        Replace(
            "_write",
            """
            if work.sequence_by:
                merge += postgres_rows.newer_rows(work.sequence_by, types)
            elif later:
                merge += sql.SQL(LATER_WINDOW)
        """,
            """
            if work.sequence_by:
                merge += postgres_rows.newer_rows(work.sequence_by, types)
            elif not later:
                merge += sql.SQL(LATER_WINDOW)
        """,
        ),
        tests=(POSTGRES + "test_an_upsert_without_the_window_keeps_the_row_of_the_later_one",),
    ),
    Mutant(
        "witness-before-the-rows-fit",
        "a Delta unit is committed before it is known that the table takes its rows",
        "onlyonce/sinks/delta/sink_delta.py",
        Replace(
            "DeltaWriter.write",
            "folder = self.path / own_tables.folder(self._commit(batch, content))",
            """
            folder = self.path / own_tables.folder(self._commit(batch, content))
            self._reference(self._unit(batch), content)
        """,
        ),
        tests=("tests/spark/sinks/test_later_windows.py::test_rows_that_delta_refuses_leave_no_unit",),
        spark=True,
    ),
    Mutant(
        "half-a-manifest",
        "a manifest that was half written is taken for somebody else's",
        "onlyonce/sinks/files/file_stores.py",
        Replace("ObjectStore.publish", "there is None or (there != text and text.startswith(there))", "there is None"),
        tests=("tests/contract/sinks/test_object_store.py::test_a_half_written_manifest_is_written_again",),
    ),
    Mutant(
        "whatever-comes-last",
        "an upsert with sequence_by keeps what was written last",
        "onlyonce/sinks/postgres/postgres_unit.py",
        Replace(
            "_write",
            """
            if work.sequence_by:
                merge += postgres_rows.newer_rows(work.sequence_by, types)
            elif later:
                merge += sql.SQL(LATER_WINDOW)
        """,
            """
            if False:
                merge += postgres_rows.newer_rows(work.sequence_by, types)
            elif later:
                merge += sql.SQL(LATER_WINDOW)
        """,
        ),
        tests=(NEWEST + "test_texts_are_in_the_order_of_their_bytes_in_any_database",),
    ),
    Mutant(
        "deleted-and-forgotten",
        "a key that was deleted is not remembered, so an older update brings its row back",
        "onlyonce/sinks/postgres/postgres_rows.py",
        Replace("delete_older", "(REMEMBER, DELETE, FORGET, UNDELETED)", "(DELETE, FORGET, UNDELETED)"),
        tests=(
            NEWEST + "test_an_older_change_does_not_bring_a_deleted_row_back_and_a_newer_one_does",
            NEWEST + "test_a_delete_of_a_key_that_never_came_is_remembered_too",
        ),
    ),
    Mutant(
        "deleted-for-ever",
        "a key that is created again is still among the deleted ones",
        "onlyonce/sinks/postgres/postgres_rows.py",
        Replace("delete_older", "(REMEMBER, DELETE, FORGET, UNDELETED)", "(REMEMBER, DELETE, UNDELETED)"),
        tests=(NEWEST + "test_an_older_change_does_not_bring_a_deleted_row_back_and_a_newer_one_does",),
    ),
    Mutant(
        "late-version-ends-nothing",
        "the ends of a key's versions are found among the versions of one unit alone",
        "onlyonce/sinks/postgres/postgres_rows.py",
        Replace(
            "write_history",
            "sql.SQL(FIND_ENDS)",
            'sql.SQL(FIND_ENDS.replace("({keys}) IN (SELECT {keys}", "({identity}) IN (SELECT {identity}"))',
        ),
        tests=(
            "tests/contract/sinks/test_histories.py::test_a_version_that_comes_late_stands_between_its_neighbours_and_so_does_a_delete",
        ),
    ),
    Mutant(
        "delete-ends-no-version",
        "a version goes on behind the delete of its row",
        "onlyonce/sinks/postgres/postgres_rows.py",
        Replace("write_history", 'sql.SQL(ENDED).format(**names) if delete_when else sql.SQL("")', 'sql.SQL("")'),
        tests=(
            "tests/contract/sinks/test_histories.py::test_a_version_that_comes_late_stands_between_its_neighbours_and_so_does_a_delete",
        ),
    ),
    Mutant(
        "any-row-over-the-newest",
        "a Delta upsert with sequence_by keeps what was written last",
        "onlyonce/sinks/delta/sink_delta.py",
        Always("DeltaWriter._newer", "not self._sink.sequence_by"),
        tests=("tests/spark/sinks/test_newest_rows.py::test_the_rows_are_those_that_the_source_has[delta]",),
        spark=True,
    ),
    Mutant(
        "late-version-in-delta-ends-nothing",
        "the ends of a key's versions are found among those of one batch alone",
        "onlyonce/sinks/delta/delta_upsert.py",
        Replace(
            "History._changes",
            "found = _marked(came, new=True).unionByName(_marked(kept, new=False), allowMissingColumns=True)",
            "found = _marked(came, new=True)",
        ),
        tests=(DELTA_HISTORY + "test_a_version_that_comes_late_stands_between_its_neighbours_and_so_does_a_delete",),
        spark=True,
    ),
    Mutant(
        "delete-in-delta-ends-no-version",
        "a version goes on behind the delete of its row",
        "onlyonce/sinks/delta/delta_upsert.py",
        Replace(
            "History._changes",
            "found.unionByName(_marked(self._ended(), new=False, gone=True), allowMissingColumns=True) if "
            "self.sink.delete_when else found",
            "found.unionByName(_marked(self._ended(), new=False, gone=True), allowMissingColumns=True) if False "
            "else found",
        ),
        tests=(DELTA_HISTORY + "test_a_version_that_comes_late_stands_between_its_neighbours_and_so_does_a_delete",),
        spark=True,
    ),
    Mutant(
        "delta-forgets-what-it-deleted",
        "an update that is older than the delete of its row writes it again",
        "onlyonce/sinks/delta/sink_delta.py",
        Replace("DeltaWriter._upsert", "self._deletes.standing(rows)", "rows"),
        tests=(
            "tests/spark/sinks/test_delta_deletes.py::test_an_older_change_does_not_bring_a_deleted_row_back_and_a_newer_one_does",
        ),
        spark=True,
    ),
    Mutant(
        "name-of-another-table",
        "a name that the catalog has for another table is taken for the output's",
        "onlyonce/sinks/delta/sink_delta.py",
        Never("enter_name", "there != path"),
        tests=("tests/spark/sinks/test_delta_name.py::test_a_name_that_is_another_tables_or_in_no_schema_is_refused",),
        spark=True,
    ),
    Mutant(
        "nulls-inside",
        "a null within a column is put into a table whose column has none",
        "onlyonce/sinks/delta/delta_files.py",
        Replace(
            "fit_conditions",
            "_own(table, there, given) | inside_conditions(there, written.schema)",
            "_own(table, there, given)",
        ),
        tests=("tests/spark/sinks/test_delta_inside.py::test_a_null_where_the_table_has_none_is_refused_and_no_other",),
        spark=True,
    ),
    Mutant(
        "row-goes-before-its-delete",
        "the deletes of a batch are committed behind its upsert",
        "onlyonce/sinks/delta/sink_delta.py",
        Delete(
            "DeltaWriter._change",
            """
            if self._deletes:
                self._deletes.remember(rows, commit, replayed=replayed)
        """,
        ),
        Replace(
            "DeltaWriter._change",
            "rewrite.change_rows(self.path, commit, self._upsert(rows), replayed=replayed, form=self._form)",
            """
            rewrite.change_rows(self.path, commit, self._upsert(rows), replayed=replayed, form=self._form)
            if self._deletes:
                self._deletes.remember(rows, commit, replayed=replayed)
        """,
        ),
        tests=("tests/spark/sinks/test_delta_deletes.py::test_a_delete_is_remembered_before_its_row_goes",),
        spark=True,
    ),
    Mutant(
        "snapshot-of-the-delete",
        "of a backfill in Iceberg the snapshot is noted that takes the old rows out",
        "onlyonce/sinks/iceberg/iceberg_commits.py",
        Replace("_snapshot", "reversed(metadata.snapshots)", "metadata.snapshots"),
        tests=(ICEBERG + "test_a_commit_gives_the_snapshot_that_has_its_rows",),
    ),
)
