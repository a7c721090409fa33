"""Mutants of `onlyonce/sources` and what belongs to it."""

from __future__ import annotations

from tests.mutants.cases.paths import (
    ALIKE,
    ARROW_LINES,
    PLAIN_RECORDS,
    READING,
    TABLES,
    UNHELD,
    VALUES,
)
from tests.mutants.mutant import Mutant
from tests.mutants.operators import Always, Delete, Never, Replace, ReplaceSql

UNREAD_INPUT = "tests/contract/operate/test_unread_input.py::"

MUTANTS = (
    Mutant(
        "values-7-casts-within",
        "a column of a source is made by a cast of a string to a time that is within another expression",
        "onlyonce/sources/values/parse.py",
        Replace("_clock", "next(filter(None, map(_clock, children)), None)", "None"),
        tests=(VALUES + "test_no_column_of_a_source_is_made_by_the_clock",),
    ),
    Mutant(
        "values-formats-one-unit",
        "Arrow reads a count of milliseconds as seconds",
        "onlyonce/sources/values/arrow_lines.py",
        Replace("_formatted", "EPOCH_FORM.scale - places", "EPOCH_FORM.scale"),
        tests=(ARROW_LINES + "test_a_time_of_a_form_of_its_own_is_what_the_table_says",),
    ),
    Mutant(
        "values-formats-another-day",
        "a pattern that reads an ISO 8601 date as another day is a form",
        "onlyonce/core/conversions.py",
        Delete("time_reader", "_check_iso(read)"),
        tests=("tests/unit/model/values/test_time_formats.py::test_what_gives_no_time_is_no_form",),
    ),
    Mutant(
        "values-arrow-rows-not-counted",
        "two objects on a line, of which Arrow makes two rows, are taken for the rows of two lines",
        "onlyonce/sources/values/arrow_lines.py",
        Always("_table", "found.num_rows == len(texts)"),
        tests=(ARROW_LINES + "test_one_hostile_line_among_good_ones_is_what_the_table_says",),
    ),
    Mutant(
        "values-arrow-integers-rounded",
        "an integer that a float does not have is what Arrow rounds it to",
        "onlyonce/sources/values/arrow_lines.py",
        Replace("_scalar", "_mask(pc.less(pc.abs(column), float(bound)))", "None"),
        tests=(ARROW_LINES + "test_one_hostile_value_among_good_ones_is_what_the_table_says[d-double]",),
    ),
    Mutant(
        "values-arrow-strings-as-numbers",
        "a string of digits is the epoch second that Arrow makes of it",
        "onlyonce/sources/values/arrow_lines.py",
        Delete("_doubtful", "found |= np.array(pc.match_substring_regex(texts, pattern))"),
        tests=(ARROW_LINES + "test_one_hostile_value_among_good_ones_is_what_the_table_says[at-timestamp]",),
    ),
    Mutant(
        "values-10-number-wraps-around",
        "a number of JSON with more digits than its decimal holds is what Arrow's 128 bits make of it",
        "onlyonce/sources/values/arrow_lines.py",
        Replace("_number", "to.precision - to.scale", "MOST_DIGITS"),
        tests=(ARROW_LINES + "test_a_number_of_many_digits_never_wraps_around[decimal(38,18)-number]",),
    ),
    Mutant(
        "values-arrow-nul-by-an-escape",
        "a NUL that is written as an escape is kept",
        "onlyonce/sources/values/arrow_lines.py",
        Replace("_doubtful", 'pc.match_substring(texts, rb"\\u0000")', "pc.is_null(texts)"),
        tests=(ARROW_LINES + "test_one_hostile_value_among_good_ones_is_what_the_table_says[id-string]",),
    ),
    Mutant(
        "values-arrow-quotes-as-they-are",
        "a line of CSV with quotation marks is cut at all of its commas",
        "onlyonce/sources/values/arrow_lines.py",
        Replace("_unquoted", "UNUSUAL", "UNUSUAL.replace('[\"', '[')"),
        tests=(ARROW_LINES + "test_a_value_of_csv_is_what_the_table_says[id-string-csv]",),
    ),
    Mutant(
        "values-2-mark-in-an-id",
        "a byte order mark before a line of CSV is part of its first value, if Arrow reads the line",
        "onlyonce/sources/values/arrow_lines.py",
        Replace("_unquoted", "UNUSUAL", "UNUSUAL.replace('xef', 'xee')"),
        tests=(ARROW_LINES + "test_a_mark_or_a_carriage_return_within_csv_is_left_to_the_table",),
    ),
    Mutant(
        "values-arrow-lines-out-of-order",
        "lines that are read in two ways get each other's ids",
        "onlyonce/sources/values/arrow_lines.py",
        Replace("merged", 'np.argsort(rows, kind="stable")', "np.arange(len(rows))"),
        tests=(PLAIN_RECORDS + "test_lines_read_in_two_ways_keep_their_order",),
    ),
    Mutant(
        "layout-by-its-marks",
        "a line is of a layout if its quotation marks are where they should be, whatever is between",
        "onlyonce/sources/values/fast_json.py",
        Always("_placed", "_has(block, where, piece)"),
        tests=(ALIKE + "test_an_odd_line_costs_no_other_line_its_place[other key]",),
    ),
    Mutant(
        "marks-uncounted",
        "a line of a layout may have more quotation marks than it",
        "onlyonce/sources/values/fast_json.py",
        Replace("_placed", "np.diff(before) == of_line", "np.diff(before) >= of_line"),
        tests=(ALIKE + "test_a_line_in_a_block_has_the_record_that_it_has_alone[0]",),
    ),
    Mutant(
        "value-of-less-than-nothing",
        "what is fixed in a line may overlap",
        "onlyonce/sources/values/fast_json.py",
        Always("_placed", "where + len(piece) <= after"),
        tests=(ALIKE + "test_an_odd_line_costs_no_other_line_its_place[neither value nor space]",),
    ),
    Mutant(
        "before-a-layout",
        "what stands before a line of a layout is not looked at",
        "onlyonce/sources/values/fast_json.py",
        Replace("_placed", "in_order = places[0] == block.bounds[rows]", "in_order = places[0] >= 0"),
        tests=(ALIKE + "test_an_odd_line_costs_no_other_line_its_place[sign before]",),
    ),
    Mutant(
        "values-of-any-form",
        "a value in a line of a layout is taken in any form that Arrow reads",
        "onlyonce/sources/values/fast_json.py",
        Always("read_by_template", "_right(column, kind)"),
        tests=(ALIKE + "test_an_odd_line_costs_no_other_line_its_place[zero first]",),
    ),
    Mutant(
        "escapes-as-they-are",
        "a backslash in a line of a layout stands for itself",
        "onlyonce/sources/values/fast_json.py",
        Replace("_usual", "signs == BACKSLASH", "np.zeros(len(signs), bool)"),
        tests=(ALIKE + "test_an_odd_line_costs_no_other_line_its_place[escape]",),
    ),
    Mutant(
        "control-signs-as-they-are",
        "a line of a layout may have a tab in a text",
        "onlyonce/sources/values/fast_json.py",
        Never("_usual", "signs.min() < SPACE"),
        tests=(ALIKE + "test_an_odd_line_costs_no_other_line_its_place[tab]",),
    ),
    Mutant(
        "signs-of-re2",
        "what RE2 has for signs is a text: half a surrogate too",
        "onlyonce/sources/values/fast_json.py",
        Replace("_texts", "lines.validate(full=True)", "lines.validate()"),
        tests=(
            ALIKE + "test_bytes_that_are_no_signs_leave_their_line_to_sparks_parser[\\xed\\xa0\\x80]",
            "tests/spark/receive/test_plain_records.py::test_bad_lines_beside_plain_ones_have_the_fates_that_they_have_alone",
        ),
    ),
    Mutant(
        "block-anywhere",
        "a block of plain records is for the first partition, whatever its ids",
        "onlyonce/sources/values/fast_json.py",
        Replace("Reader._packed", "np.mod", "np.zeros"),
        Replace("Reader._packed", "records.column(OO_HIGH).to_numpy()", "records.num_rows"),
        Replace("Reader._packed", "self.partitions", "np.int64"),
        tests=("tests/unit/receive/test_plain_records.py::test_a_block_is_for_the_partition_of_all_its_ids",),
    ),
    Mutant(
        "before-1970-in-a-block",
        "a plain line is not asked whether its event time is before 1970",
        "onlyonce/sources/values/fast_json.py",
        Replace("Reader._records", "pc.greater_equal(micros, FIRST_TIME)", "pc.is_valid(micros)"),
        tests=("tests/unit/receive/test_plain_records.py::test_each_line_is_in_a_block_or_left_and_never_both",),
    ),
    Mutant(
        "replay-reads-todays",
        "of a PostgreSQL table the copy that is read is the last one, whatever the batch row says",
        "onlyonce/lookups/postgres_versions.py",
        Replace("frame", "file(lookup, version)", "file(lookup, newest(lookup))"),
        tests=(
            "tests/spark/outputs/test_lookups.py::test_each_row_is_joined_with_the_copy_that_its_batch_began_with[4-2]",
        ),
        spark=True,
    ),
    Mutant(
        "named-is-collected",
        "a copy of a lookup that a batch or a window names goes as soon as it is old",
        "onlyonce/lookups/copies.py",
        Replace("collect_copies", "old[folder] - named", "old[folder]"),
        tests=("tests/contract/lookups/test_collecting.py::test_what_the_log_names_stays",),
    ),
    Mutant(
        "going-is-used",
        "a copy that a collection has marked is taken for a table that has its content again",
        "onlyonce/lookups/copies.py",
        Replace("keep_copy", "version[1] == content and version not in going", "version[1] == content"),
        tests=("tests/contract/lookups/test_collecting.py::test_a_version_that_is_going_is_not_used_anew",),
    ),
    Mutant(
        "links-followed",
        "a link in the inbox is followed",
        "onlyonce/sources/file_bytes.py",
        Replace("opened_file", "os.O_RDONLY | os.O_NOFOLLOW", "os.O_RDONLY"),
        Replace(
            "",
            """
            (
                (stat.S_ISLNK, "a symbolic link, which is not followed; links=True of the source allows them"),
                (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device file"), (stat.S_ISBLK, "a device file"),
                (stat.S_ISDIR, "a folder"),
            )
        """,
            """
            (
                (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device file"), (stat.S_ISBLK, "a device file"),
                (stat.S_ISDIR, "a folder"),
            )
        """,
        ),
        tests=(
            "tests/unit/sources/test_listing.py::test_what_is_no_file_is_refused_once_by_name_and_nothing_waits_for_it",
            "tests/unit/sources/test_listing.py::test_what_takes_the_place_of_a_file_after_it_was_listed_is_neither_followed_nor_waited_for[link]",
        ),
    ),
    Mutant(
        "missing-is-empty",
        "an inbox that is not there is taken for an empty one",
        "onlyonce/sources/discovery.py",
        Always(
            "look_for_folder",
            "not source.has_inbox or not isinstance(inbox.folder, Path) or inbox.folder.is_dir()",
        ),
        tests=(
            "tests/unit/sources/test_folders.py::test_an_inbox_that_is_not_there_is_refused_by_the_run_and_not_taken_for_an_empty_one",
        ),
    ),
    Mutant(
        "moved-is-new",
        "an inbox that was moved is taken for a new one",
        "onlyonce/sources/record_id.py",
        Always("named_inbox", "not roots or (folder in roots and folder not in moved)"),
        tests=(
            "tests/unit/sources/test_moved_inboxes.py::test_a_folder_that_no_file_was_read_from_is_asked_about",
            "tests/unit/sources/test_moved_inboxes.py::test_an_inbox_that_was_registered_by_a_relative_path_is_asked_about",
        ),
    ),
    Mutant(
        "long-lines-whole",
        "a line is held in memory as a whole, however long it is",
        "onlyonce/sources/line_reader.py",
        Never("_Begun.add", "self.bytes > self._most"),
        tests=("tests/unit/sources/test_line_reader.py::test_memory_does_not_grow_with_a_line",),
    ),
    Mutant(
        "any-404-is-no-schema",
        "whatever answers with a 404 makes a schema id unknown, and its records invalid",
        "onlyonce/sources/schema_registry.py",
        Replace(
            "_find",
            'getattr(error, "error_code", None) == NO_SUCH_SCHEMA and getattr(error, "http_status_code", None) == 404',
            'getattr(error, "http_status_code", None) == 404',
        ),
        tests=("tests/unit/sources/test_schema_registry.py::test_no_answer_but_the_registrys_own_makes_an_id_unknown",),
    ),
    Mutant(
        "one-message-spoils-the-others",
        "where messages of one schema can't be decoded together all of them are invalid",
        "onlyonce/sources/kafka_messages.py",
        Replace("_of_schema", "len(rows) == 1", "len(rows)"),
        tests=("tests/unit/sources/test_message_formats.py::test_a_message_is_read_as_if_it_were_alone",),
    ),
    Mutant(
        "schema-looked-for-anew",
        "a replay asks the manifest again for a schema that its batch did not find",
        "onlyonce/sources/kafka_messages.py",
        Replace("_part", "_fact(part, number) in facts", "None in facts"),
        tests=("tests/spark/sources/test_kafka_formats.py::test_what_a_batch_did_not_find_it_does_not_find_again",),
        spark=True,
    ),
    Mutant(
        "values-9-towards-1970",
        "nanoseconds before 1970 are cut off",
        "onlyonce/sources/values/coercion.py",
        Replace(
            "in_microseconds",
            "np.floor_divide(array.cast(pa.int64()).fill_null(0).to_numpy(), NANOSECONDS)",
            "np.trunc(array.cast(pa.int64()).fill_null(0).to_numpy() / NANOSECONDS).astype(np.int64)",
        ),
        tests=("tests/unit/sources/test_typed_files.py::test_types_fit_without_loss_or_the_file_is_refused",),
    ),
    Mutant(
        "values-3-inode-without-birth",
        "a growing file in a deleted file's inode is taken for that file",
        "onlyonce/sources/record_id.py",
        Replace("_born", "statx is None", "statx is not None"),
        tests=("tests/unit/sources/test_growing.py::test_a_new_log_in_a_deleted_logs_inode_is_read_from_its_begin",),
    ),
    Mutant(
        "growing-first-look-counts",
        "a growing file that has two names is read as far as the first look at it went",
        "onlyonce/sources/growing.py",
        Replace(
            "_of_each_file",
            "max(found.get(file, look), look, key=lambda ranges: ranges[-1].ends)",
            "found.get(file, look)",
        ),
        tests=(
            "tests/unit/sources/test_growing.py::test_a_file_with_two_names_that_grows_between_its_looks_is_read_once_without_gaps",
        ),
    ),
    Mutant(
        "values-12-codec-unchecked",
        "a codec that is not installed makes the file damaged",
        "onlyonce/sources/avro_files.py",
        Never("_check_codec", "find_spec(PACKAGES[codec]) is None"),
        tests=("tests/unit/sources/test_typed_files.py::test_a_missing_codec_refuses_the_run_and_not_the_file",),
    ),
    Mutant(
        "values-13-all-names",
        "each row has the names of all undeclared columns",
        "onlyonce/sources/values/coercion.py",
        Never("undeclared", "length > MOST_NAMES"),
        tests=("tests/unit/sources/test_typed_files.py::test_undeclared_names_take_bounded_memory",),
    ),
    Mutant(
        "shared-values-at-once",
        "rows that share a large value are written out as they come",
        "onlyonce/sources/values/coercion.py",
        Replace("groups_of_rows", "AT_ONCE", "1 << 62"),
        tests=(
            "tests/unit/sources/test_typed_files.py::test_rows_that_share_a_large_value_are_written_out_some_at_a_time",
        ),
    ),
    Mutant(
        "refused-in-blocks-only",
        "a refused record is left out of blocks, and not of rows",
        "onlyonce/sources/lines.py",
        Always("Chosen.of_rows", "not self.refused"),
        tests=(
            "tests/spark/receive/test_poison_stages.py::test_no_stage_sees_a_record_that_is_refused_or_of_the_other_half[columns]",
        ),
        spark=True,
    ),
    Mutant(
        "ids-of-any-source",
        "two sources with ids of their own have one space of ids",
        "onlyonce/sources/values/fast_json.py",
        Replace(
            "Reader._identified",
            """
            if self.salt:
                firsts = [filters.hashes_of_texts(pa.array([self.salt]), first) for first in firsts]
        """,
            """
            if False:
                firsts = [filters.hashes_of_texts(pa.array([self.salt]), first) for first in firsts]
        """,
        ),
        tests=("tests/unit/receive/test_plain_records.py::test_an_id_of_one_source_is_another_id_in_another_source",),
    ),
    Mutant(
        "any-table-of-that-path",
        "a table that was made again under its path is read on as the old one",
        "onlyonce/sources/delta_log.py",
        Never("_check_same", "there.table_id not in (None, table_id)"),
        tests=(TABLES + "log.py::test_what_would_lose_rows_is_refused[_made_again-is another table than the one]",),
    ),
    Mutant(
        "look-behind-the-next",
        "a look at a table begins one version too late",
        "onlyonce/sources/delta_log.py",
        Replace(
            "read_until",
            "Read(mark[stored_names.MARK_TABLE], until, mark[stored_names.MARK_AT], number + 1, seen_at)",
            "Read(mark[stored_names.MARK_TABLE], until + 1, mark[stored_names.MARK_AT], number + 1, seen_at)",
        ),
        tests=("tests/spark/sources/test_table_manifest.py::test_batches_are_numbered_on_and_have_so_many_files",),
        spark=True,
    ),
    Mutant(
        "page-with-the-refused",
        "what lies on one page with a version that is refused is never read",
        "onlyonce/sources/delta_log.py",
        Delete(
            "_Table.page",
            """
            if found:
                return found, version
        """,
        ),
        tests=(
            TABLES
            + "log.py::test_a_version_that_deletes_or_rewrites_is_refused_and_what_came_before_is_read[_truncate-False-version "
            "2 deletes rows]",
        ),
    ),
    Mutant(
        "name-that-moved",
        "a catalog's table that is elsewhere now is read on as if it were there",
        "onlyonce/sources/delta_log.py",
        Never("_check_same", "there.at not in (None, str(at))"),
        tests=("tests/spark/sources/test_table_by_name.py::test_a_table_that_is_elsewhere_now_is_refused",),
        spark=True,
    ),
    Mutant(
        "manifest-read-in-part",
        "a run takes the entries of the last commit only for all that came since its last look",
        "onlyonce/sources/manifest.py",
        Replace(
            "Reading._added",
            "[file.path for said in since for file in opening.added_by(self._at, said)]",
            "[file.path for said in since[-1:] for file in opening.added_by(self._at, said)]",
        ),
        tests=(READING + "test_look_by_look_a_run_knows_what_the_registry_says_and_reads_each_entry_once[source0]",),
    ),
    Mutant(
        "manifest-rewritten-in-silence",
        "what a commit has taken out of a manifest stays known",
        "onlyonce/sources/manifest.py",
        Replace(
            "Reading._added",
            'before > now or any("remove" in action for said in since for action in said)',
            "before > now",
        ),
        tests=(READING + "test_where_entries_went_or_files_were_written_again_a_run_reads_the_whole",),
    ),
    Mutant(
        "object-by-its-key",
        "an object is known by its key alone, whatever its ETag is",
        "onlyonce/sources/listing.py",
        Replace("unlisted_objects", "is_known & (marks == _hashes([one.etag for one in entries]))", "is_known"),
        tests=("tests/storage/test_object_inbox.py::test_an_object_is_known_by_its_key_and_its_etag[versitygw]",),
    ),
    Mutant(
        "piece-of-another-place",
        "a reader of an object takes the piece that it has for whatever it is asked for",
        "onlyonce/sources/file_bytes.py",
        Replace("ObjectFile._next", "0 <= skipped <= len(self._piece) - wanted", "self._piece"),
        tests=(
            "tests/storage/test_object_inbox.py::test_an_object_has_the_lines_of_a_file_at_their_places[-versitygw]",
        ),
    ),
    Mutant(
        "rows-of-whatever-is-there",
        "Parquet in an object is read by Arrow's own file system, which has no conditions",
        "onlyonce/sources/typed_files.py",
        Replace("opened_parquet", "at.etag", "at.bytes < 0"),
        tests=(
            "tests/storage/test_object_inbox.py::test_rows_of_an_object_that_changed_are_told_and_never_read[parquet-versitygw]",
        ),
    ),
    Mutant(
        "changed-is-damaged",
        "an object that is replaced while it is counted counts as a damaged file",
        "onlyonce/sources/typed_files.py",
        Replace(
            "counter.count",
            """
            try:
                look_through(at)
                return sum(batch.num_rows for batch in read(Part(at, 0, None, 0, 0, shared)))
            except (OnlyonceError, FileNotFoundError):
                raise
            except Damaged as error:
                raise Damaged(f"the {pipeline.source.format} file does not fit the declaration: {error}") from error
            except OSError as error:
                if error.errno is not None:
                    raise
                raise _damaged(pipeline, error) from error
            except Exception as error:  # the readers raise whatever a damaged byte leads them to
                raise _damaged(pipeline, error) from error
        """,
            """
            try:
                look_through(at)
                return sum(batch.num_rows for batch in read(Part(at, 0, None, 0, 0, shared)))
            except Damaged as error:
                raise Damaged(f"the {pipeline.source.format} file does not fit the declaration: {error}") from error
            except OSError as error:
                if error.errno is not None:
                    raise
                raise _damaged(pipeline, error) from error
            except Exception as error:  # the readers raise whatever a damaged byte leads them to
                raise _damaged(pipeline, error) from error
        """,
        ),
        tests=(
            "tests/storage/test_object_inbox.py::test_rows_of_an_object_that_changed_are_told_and_never_read[avro-versitygw]",
        ),
    ),
    Mutant(
        "change-at-the-snapshot",
        "a change at the place of the snapshot is as new as the snapshot's row",
        "onlyonce/core/line_values.py",
        Replace("_change", "int(op != 'r')", "1"),
        tests=("tests/spark/sources/test_changes.py::test_a_change_is_its_row_and_what_happened_to_it",),
        spark=True,
    ),
    Mutant(
        "delete-by-its-row-alone",
        "a delete without a row before it is invalid, though the message's key says which row went",
        "onlyonce/sources/source_kafka.py",
        Never("Ranges._messages", '"key" in source.registered'),
        tests=("tests/spark/sources/test_changes.py::test_the_key_of_a_change_comes_from_the_key_of_its_message",),
        spark=True,
    ),
    Mutant(
        "unknown-without-end",
        "a manifest is asked for each id that a topic of other bytes names",
        "onlyonce/sources/schema_registry.py",
        Replace("_missing", "most + 1", "None"),
        tests=(
            "tests/unit/sources/test_schema_registry.py::test_a_batch_may_name_any_number_of_schemas_that_the_registry_knows",
        ),
    ),
    Mutant(
        "avro-row-by-row",
        "the marks between Avro messages are compared one by one, in Python",
        "onlyonce/sources/message_formats.py",
        Replace(
            "avro_reader.read",
            'not pc.all(pc.equal(pa.array(rows, MARKS).field("mark"), mark)).as_py()',
            'any(row["mark"] != mark for row in rows)',
        ),
        tests=("tests/unit/sources/test_message_formats.py::test_no_python_runs_for_each_avro_message",),
    ),
    Mutant(
        "decimal-in-avro-by-a-double",
        "a decimal of a change in Avro keeps the digits that a double has",
        "onlyonce/sources/message_formats.py",
        Replace("_plain", 'format(value, "f")', "repr(float(value))"),
        tests=("tests/unit/sources/test_avro_envelopes.py::test_a_row_keeps_its_values",),
    ),
    Mutant(
        "values-8-any-year",
        "a time of a column may be after the year 9999",
        "onlyonce/sources/values/coercion.py",
        Replace("_unheld", 'ends["max"].as_py() > last', "False"),
        tests=(UNHELD + "[year]", UNHELD + "[year in a struct]"),
    ),
    Mutant(
        "values-8-plain-lines-of-any-year",
        "a plain line has a time of any year",
        "onlyonce/sources/values/fast_json.py",
        Always("read_plain", "right.all()"),
        tests=("tests/unit/sources/test_plain_lines.py::test_a_year_outside_1_to_9999_is_left_out",),
    ),
    Mutant(
        "values-8-file-for-a-value",
        "a file of columns is refused as a whole for one value that its type can't hold",
        "onlyonce/sources/values/coercion.py",
        Replace(
            "_fit",
            "_held(found if readable_rows is None else found.take(readable_rows), field, reasons, 0)",
            "cast(found if readable_rows is None else found.take(readable_rows), field)",
        ),
        tests=(UNHELD + "[too large]",),
    ),
    Mutant(
        "values-10-partitions-by-arrows-cast",
        "the value of a partition column is what Arrow's cast makes of its string",
        "onlyonce/sources/typed_files.py",
        Replace(
            "_value",
            "pa.scalar(conversions.of_cell(kind)(Cell(text), []), wanted)",
            "pa.scalar(text, pa.string()).cast(wanted)",
        ),
        tests=(
            "tests/unit/sources/test_shared_columns.py::test_a_partition_value_of_another_form_is_refused[integer-007]",
        ),
    ),
    Mutant(
        "values-10-doubles-infinite-as-floats",
        "a double that no float holds becomes infinity",
        "onlyonce/sources/values/coercion.py",
        Replace("_unheld", "pc.is_inf(fitted)", "pc.is_nan(fitted)"),
        tests=(UNHELD + "[infinite]", UNHELD + "[infinite in a list]"),
    ),
    Mutant(
        "values-2-id-by-javas-strings",
        "an id has a float or a decimal as Spark's cast writes it",
        "onlyonce/sources/values/parse.py",
        Always("_string", "line_values.named_id_form(kind) in AS_CAST"),
        tests=("tests/spark/sources/test_record_ids.py::test_an_id_is_of_the_values_and_not_of_the_format[json]",),
        spark=True,
    ),
    Mutant(
        "values-2-six-decimals",
        "an id of a block has a time without a zone with all six decimals that Arrow writes",
        "onlyonce/sources/values/parse.py",
        Replace("ids_of_arrow", '("timestamp", "timestamp_ntz")', '("timestamp",)'),
        tests=(
            "tests/unit/receive/test_plain_records.py::test_id_of_each_type_is_the_id_of_the_values[timestamp_ntz]",
        ),
    ),
    Mutant(
        "values-2-nested-ids",
        "an array or a map in an id is taken, though no string is stated for it",
        "onlyonce/api/pipeline.py",
        Never("Pipeline.__post_init__", "line_values.named_id_form(kinds[column]) not in line_values.FORMS"),
        tests=("tests/unit/sources/test_record_id.py::test_a_nested_id_is_refused_when_declared",),
    ),
    Mutant(
        "values-12-types-by-the-values",
        "a time that has no number in microseconds makes its whole file invalid",
        "onlyonce/sources/values/coercion.py",
        Never("in_microseconds", "kind.unit in COARSER"),
        tests=(
            "tests/unit/sources/test_typed_values.py::test_a_time_after_9999_is_one_value_of_its_file[timestamp-millis-1000]",
        ),
    ),
    Mutant(
        "values-12-unions-as-they-come",
        "a union of two types is not read as strings",
        "onlyonce/sources/avro_files.py",
        Delete("records", "make_strings(group, mixed)"),
        tests=("tests/unit/sources/test_typed_values.py::test_avro_of_a_usual_kind_is_read[int or string]",),
    ),
    Mutant(
        "values-8-nul-in-columns",
        "a string of a column may have the NUL character, which PostgreSQL can't store",
        "onlyonce/sources/values/coercion.py",
        Replace("_unheld", r'pc.any(pc.match_substring(fitted, "\0")).as_py()', "False"),
        tests=("tests/fuzz/test_fuzz.py::test_hostile_columns_are_read_as_the_page_says",),
    ),
    Mutant(
        "values-10-neighbours-of-a-list",
        "a value within a list that its type can't hold makes the records before it invalid",
        "onlyonce/sources/values/coercion.py",
        Replace("_part", "types.is_nested(array.type)", "False"),
        tests=("tests/fuzz/test_fuzz.py::test_hostile_columns_are_read_as_the_page_says",),
    ),
    Mutant(
        "values-6-columns-within-uncounted",
        "unknown fields within structs of Parquet and Avro are not counted",
        "onlyonce/sources/values/coercion.py",
        Replace("_fit", "[*there, *undeclared_within(batch.schema, wanted)]", "[*there]"),
        tests=("tests/unit/sources/test_typed_values.py::test_unknown_fields_of_structs_are_counted",),
    ),
    Mutant(
        "values-10-parts-by-arrows-cast",
        "an element of a list or map is read as whatever Arrow's cast makes of it",
        "onlyonce/sources/values/coercion.py",
        Replace("_parts_fit", "_fits(there.value_type, wanted.value_type)", "True"),
        tests=(
            "tests/unit/sources/test_typed_values.py::test_a_part_of_a_column_fits_as_a_column_does[there0-array<int>]",
        ),
    ),
    Mutant(
        "values-4-folder-skipped-silently",
        "a folder below an inbox is skipped and not reported",
        "onlyonce/sources/folders.py",
        Delete("Folders.entries", "self.skipped.add(entry.path)"),
        tests=("tests/unit/sources/test_input_folders.py::test_no_folder_below_an_inbox_is_skipped_silently[Files]",),
    ),
    Mutant(
        "values-4-moved-one-level",
        "a file in a folder below a moved inbox is looked for at its old place",
        "onlyonce/sources/record_id.py",
        Replace("place_in_inbox", 'path.startswith(f"{folder}/")', 'path.rpartition("/")[0] == folder'),
        tests=(
            "tests/unit/sources/test_input_folders.py::test_a_recursive_inbox_that_was_moved_keeps_the_names_of_its_files",
        ),
    ),
    Mutant(
        "values-17-counted-again-as-it-is-now",
        "what was compacted away since it was read has no place in the count of a batch",
        "onlyonce/sources/source_kafka.py",
        Never("Ranges.lines", "now < fated < offsets and self._compacted()"),
        tests=("tests/spark/sources/test_kafka_source.py::test_message_compacted_after_it_was_read_is_no_loss",),
        spark=True,
    ),
    Mutant(
        "values-17-units-stay",
        "a replay of a batch of a compacted topic is compared with units that hold other messages",
        "onlyonce/receive/batch_files.py",
        Never("write_batch", "batch.replayed and not batch.without_catalog and lines.shrinks()"),
        tests=("tests/spark/sources/test_kafka.py::test_batch_goes_on_after_one_of_its_messages_was_compacted",),
        spark=True,
    ),
    Mutant(
        "values-20-time-moves-back",
        "the ingestion time of a source batch is compared with the last turn before the poll only",
        "onlyonce/sources/all_sources.py",
        Replace("Several._new", "max(at, reached or at)", 'max(at, last["seen_at"]) if last else at'),
        tests=("tests/unit/sources/test_source_batch_times.py::test_ingestion_time_of_turns_never_moves_back[0]",),
    ),
    Mutant(
        "values-5-stray-quote-swallows",
        "a quote that opens and closes within an open one does not make it malformed",
        "onlyonce/sources/file_bytes.py",
        Never("CsvRecords._several", "not self._is(INNER, self._open, begin, end, data, at)"),
        tests=(
            "tests/unit/sources/test_record_ends.py::test_records_are_those_of_a_strict_csv_module",
            "tests/unit/sources/test_growing.py::test_a_record_with_an_open_quote_waits",
        ),
    ),
    Mutant(
        "values-5-limit-of-now",
        "a file is cut into records by the declaration of now, and not as it was counted",
        "onlyonce/sources/source_files.py",
        Replace("_range", "file.quoted_within", "discovery.quoted_within(pipeline)"),
        tests=("tests/unit/sources/test_record_ends.py::test_a_changed_limit_changes_no_record_of_a_listed_file",),
    ),
    Mutant(
        "values-5-growing-in-lines",
        "a growing file of CSV ends for a listing with its last line, also within an open quote",
        "onlyonce/sources/growing.py",
        Replace(
            "_ends",
            "file_bytes.record_end_reader(csv.quoted_within, start, csv.delimiter)",
            "file_bytes.record_end_reader(None, start)",
        ),
        tests=("tests/unit/sources/test_growing.py::test_a_record_with_an_open_quote_waits",),
    ),
    Mutant(
        "values-5-cut-anywhere",
        "a part of a file of CSV begins with the line that begins in it",
        "onlyonce/sources/line_reader.py",
        Never("_cut", "whole.quoted_within is not None"),
        tests=("tests/unit/sources/test_record_ends.py::test_parts_of_a_file_have_its_records",),
    ),
    Mutant(
        "code-page-by-latin-1",
        "a byte of a code page is read as the character of its number",
        "onlyonce/core/encodings.py",
        Replace("decode", "characters(encoding)", '"".join(map(chr, range(256)))'),
        tests=("tests/unit/sources/test_encodings.py::test_each_byte_is_the_character_of_pythons_codec[windows-1252]",),
    ),
    Mutant(
        "code-page-undefined-byte-kept",
        "a line with a byte that its code page does not define is kept",
        "onlyonce/sources/line_reader.py",
        Replace("_within", "unknown.items()", "()"),
        tests=("tests/unit/sources/test_encodings.py::test_each_byte_is_the_character_of_pythons_codec[windows-1252]",),
    ),
    Mutant(
        "code-page-places-in-utf-8",
        "where a line of a code page begins is not moved by the characters before it that are longer in UTF-8",
        "onlyonce/sources/file_bytes.py",
        Replace("in_utf8", "offsets + grown[np.searchsorted(high, offsets)]", "offsets"),
        tests=("tests/unit/sources/test_encodings.py::test_lines_are_the_same_however_a_file_is_cut[1048576]",),
    ),
    Mutant(
        "code-page-of-a-file-with-a-mark",
        "a file of UTF-8 with a byte order mark is read by the declared code page",
        "onlyonce/core/encodings.py",
        Always("other_mark", "encoding == UTF_8 and found == 'UTF-8'"),
        tests=(
            "tests/unit/sources/test_encodings.py::test_a_byte_order_mark_of_another_encoding_refuses_the_file"
            "[None-utf-8-sig-windows-1252-False]",
        ),
    ),
    Mutant(
        "growing-by-commas",
        "the ends of records of a growing CSV are found by commas, whatever the delimiter",
        "onlyonce/sources/growing.py",
        Replace(
            "_ends",
            "file_bytes.record_end_reader(csv.quoted_within, start, csv.delimiter)",
            "file_bytes.record_end_reader(csv.quoted_within, start)",
        ),
        tests=("tests/unit/sources/test_growing.py::test_every_way_to_append_gives_the_records_of_csv[20-;]",),
    ),
    Mutant(
        "values-14-field-limit",
        "the header is split by a library that refuses a field of 131,073 characters",
        "onlyonce/sources/listing.py",
        Replace("_other_header", "csv_cells(first, layout.delimiter)", 'next(__import__("csv").reader([first]))'),
        tests=("tests/unit/sources/test_listing.py::test_a_first_line_of_any_length_is_a_header_or_refused[-140000]",),
    ),
    Mutant(
        "form-of-a-guess",
        "a time that two usual forms read has the first one as its form to declare",
        "onlyonce/core/conversions.py",
        Replace(
            "form_to_declare",
            '" or ".join(f"formats={{{column!r}: {form!r}}}" for form in forms)',
            'f"formats={{{column!r}: {forms[0]!r}}}"',
        ),
        tests=("tests/unit/model/values/test_line_values.py::test_a_time_in_another_form_says_what_to_declare",),
    ),
    Mutant(
        "file-of-another-format",
        "a Parquet or UTF-16 file in an inbox of JSON lines becomes as many invalid records as it has line feeds",
        "onlyonce/sources/listing.py",
        Replace("other_format", "beginning.startswith(first)", "False"),
        tests=("tests/unit/sources/test_listing.py::test_file_of_another_format_is_one_invalid_record[Parquet]",),
    ),
    Mutant(
        "alias-of-the-source-name",
        "a refused header proposes an alias of the name in the source instead of the declared column",
        "onlyonce/sources/listing.py",
        Replace("_difference", "columns[lacking[0]]", "lacking[0]"),
        tests=("tests/unit/sources/test_listing.py::test_refused_header_names_the_columns_that_differ",),
    ),
    Mutant(
        "values-11-nulls-left-out",
        "two rows of columns that differ in the place of a null alone are in no order",
        "onlyonce/sources/values/parse.py",
        Replace("content_column", "parts += [column.isNotNull(), column]", "parts += [column]"),
        tests=(
            "tests/spark/receive/test_plain_records.py::test_rows_of_columns_that_differ_in_one_value_have_an_order",
        ),
        spark=True,
    ),
    Mutant(
        "values-11-value-alone",
        "two messages of one id are put in order by their values alone",
        "onlyonce/sources/values/parse.py",
        Replace("_Asked.kept_beside", '[F.col(quoted(name)).cast("string") for name in self.beside]', "[]"),
        tests=(
            "tests/spark/receive/test_plain_records.py::test_messages_that_differ_in_their_headers_alone_have_an_order",
        ),
        spark=True,
    ),
    Mutant(
        "unread-failure-is-nothing",
        "a source that did not answer has nothing unread",
        "onlyonce/core/backlog.py",
        Replace("no_answer", "Backlog(None, None, None, why=why, failed=True)", "Backlog(0, 0, None, why=why)"),
        tests=(
            UNREAD_INPUT + "test_source_without_answer_is_no_zero",
            "tests/contract/sources/test_unread_brokers.py::test_sum_with_a_failed_answer_is_not_known",
        ),
    ),
    Mutant(
        "unread-sum-of-what-is-known",
        "the unread input of several sources is the sum of those that answered",
        "onlyonce/core/backlog.py",
        Never("_sum", "None in found"),
        tests=("tests/contract/sources/test_unread_brokers.py::test_sum_with_a_failed_answer_is_not_known",),
    ),
    Mutant(
        "unread-asked-without-end",
        "a source is waited for as long as it takes",
        "onlyonce/sources/backlog.py",
        Replace("_waited_for", "max(0.0, request.began + backlog.ANSWER_SECONDS - time.monotonic())", "90"),
        tests=(UNREAD_INPUT + "test_source_without_answer_is_no_zero",),
    ),
    Mutant(
        "unread-asked-each-time",
        "a source is asked again however short ago its answer came",
        "onlyonce/sources/backlog.py",
        Replace("_Request.is_kept", "time.monotonic() - self.began < backlog.KEPT_SECONDS", "False"),
        tests=(UNREAD_INPUT + "test_answer_is_kept_for_seconds",),
    ),
    Mutant(
        "old-answer-shown",
        "the view shows the numbers of an old answer of a source",
        "sql/views/4_sources.sql",
        ReplaceSql("", "a.asked_at >= clock_timestamp() - 3 * a.asked_every AS is_current", "true AS is_current"),
        tests=(UNREAD_INPUT + "test_stored_answer_reaches_views_metrics_and_alerts",),
    ),
    Mutant(
        "unread-from-the-end-of-the-manifest",
        "what a run has listed and not committed is not unread",
        "onlyonce/sources/backlog.py",
        Replace("unread", "_registered(inbox, taken_in)", "Backlog()"),
        tests=("tests/spark/sources/test_unread.py::test_unread_input[files]",),
        spark=True,
    ),
    Mutant(
        "unread-by-the-pipelines-number",
        "a source of several is counted from its pipeline's batch number, not from its own",
        "onlyonce/sources/backlog.py",
        Always("_of_source", "view.part is None or taken_in is None"),
        tests=("tests/spark/run/test_source_answers.py::test_each_of_several_sources_is_counted_from_its_own_commit",),
        spark=True,
    ),
    Mutant(
        "unread-broker-is-silent",
        "a broker's reason for a refused login is not in the answer",
        "onlyonce/sources/kafka_client.py",
        Replace("asking", "_reason(refusals) or named", "named"),
        tests=(
            "tests/contract/sources/test_unread_brokers.py::test_refused_login_is_a_failed_answer[password-Authentication failed]",
        ),
    ),
    Mutant(
        "unread-failure-is-not-stored",
        "a failed request leaves the numbers of before",
        "onlyonce/sources/backlog.py",
        Replace(
            "ask_and_store",
            "[one.stored() for one in answers]",
            "[one.stored() for one in answers if not one.backlog.failed]",
        ),
        tests=(UNREAD_INPUT + "test_failed_request_replaces_the_numbers",),
    ),
    Mutant(
        "empty-versions-hide-later-ones",
        "if the unread versions that are looked at have no rows, nothing waits",
        "onlyonce/sources/delta_log.py",
        Replace("unread_versions", "versions > MOST_UNREAD", "files and versions > MOST_UNREAD"),
        tests=("tests/unit/sources/test_table_log.py::test_unread_versions_without_rows_do_not_hide_later_rows",),
    ),
    Mutant(
        "fixed-lists-keep-nanoseconds",
        "times in a list of a fixed size are not rounded to microseconds",
        "onlyonce/sources/values/coercion.py",
        Never("in_microseconds", "types.is_fixed_size_list(kind)"),
        tests=("tests/unit/sources/test_typed_values.py::test_nanoseconds_in_lists_are_rounded_as_in_a_column[fixed]",),
    ),
)
