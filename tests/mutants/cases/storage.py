"""Mutants of `onlyonce/tables` and what belongs to it."""

from __future__ import annotations

from tests.mutants.cases.paths import (
    CHANGES,
    COMMITS,
    DELTA,
    OWN,
    SPARKS_OWN,
)
from tests.mutants.mutant import Mutant
from tests.mutants.operators import Always, Delete, Never, Replace

MUTANTS = (
    Mutant(
        "head-denied-without-code",
        "a denied HEAD of our own names no reason, and a missing bucket has no object",
        "onlyonce/tables/stores.py",
        Delete(
            "Objects.look",
            """
with suppress(FileNotFoundError), told(url):
    return _entry(url, obstore.get(self.bucket(url), url.key).meta)
""",
        ),
        tests=("tests/storage/test_shut_out.py::test_denied_request_of_obstore_names_the_code[head]",),
    ),
    Mutant(
        "spark-head-denied-without-code",
        "a denied HEAD of Spark is an error that onlyonce does not know",
        "onlyonce/engine/failures.py",
        Replace("known_failure", "failures.denied_without_code(text)", "None"),
        tests=("tests/storage/test_shut_out.py::test_denied_request_of_spark_names_the_code[read files]",),
        spark=True,
    ),
    Mutant(
        "delta-skip-unseen",
        "after a write nobody looks whether Delta has skipped it",
        "onlyonce/tables/commit.py",
        Replace(
            "once",
            'there and (there[1].get("content"), there[1].get("unit")) == (commit.content, commit.unit)',
            "there",
        ),
        tests=("tests/fault/matrix/test_transactions.py::test_a_write_that_delta_skips_is_told",),
    ),
    Mutant(
        "transaction-unsaid",
        "a commit to one of the platform's own tables does not say its transaction",
        "onlyonce/tables/own_tables.py",
        Replace("_put", "[Transaction(commit.app_id, commit.version, int(time.time() * 1000))]", "[]"),
        tests=(
            OWN + "test_a_commit_is_there_once_however_often_it_is_tried",
            OWN + "test_of_drivers_at_the_same_instant_one_commits_and_the_others_find_it",
        ),
    ),
    Mutant(
        "batch-behind-a-fence",
        "a driver that was overtaken commits a batch whose units a newer one has taken back",
        "onlyonce/tables/own_tables.py",
        Never("_refuse_fenced", "there is not None and there > epoch"),
        tests=(OWN + "test_a_driver_that_was_overtaken_commits_no_batch_behind_a_fence",),
    ),
    Mutant(
        "units-taken-back-of-a-committed-batch",
        "the units of a batch are taken back although an overtaken driver has committed it meanwhile",
        "onlyonce/receive/batch_files.py",
        Never("fence_batch", "there is not None and there >= batch_id"),
        tests=(OWN + "test_units_of_a_batch_that_an_overtaken_driver_has_committed_are_not_taken_back",),
    ),
    Mutant(
        "refused-without-a-fence",
        "a record is refused before an overtaken driver is fenced, which may commit the batch with it",
        "onlyonce/receive/batch_files.py",
        Delete("written_despite_poison", "fence()"),
        tests=("tests/contract/receive/test_poison.py::test_an_overtaken_driver_is_fenced_before_a_record_is_refused",),
    ),
    Mutant(
        "cut-text-unbounded",
        "the largest text of a file is told as its beginning",
        "onlyonce/tables/statistics.py",
        Replace("_said", 'LAST if up else ""', '""'),
        tests=("tests/spark/sinks/test_delta_append.py::test_an_append_by_files_is_read_and_skipped_as_sparks_own",),
        spark=True,
    ),
    Mutant(
        "bound-is-outside",
        "a file whose largest value is asked for is left out",
        "onlyonce/tables/table_files.py",
        Replace("_compared", "pc.greater_equal(largest, low)", "pc.greater(largest, low)"),
        tests=(
            "tests/unit/storage/test_table_files.py::test_each_file_with_such_a_row_is_told_and_a_whole_one_has_no_other[number-by "
            "statistics]",
        ),
    ),
    Mutant(
        "change-behind-any",
        "a commit that replaces files is put behind whatever came in between",
        "onlyonce/tables/rewrite.py",
        Replace("_commit", "0", "15"),
        tests=(CHANGES + "test_what_comes_while_a_writer_stands_still[local-the same new key-commit]",),
    ),
    Mutant(
        "looks-once",
        "a change looks for its transaction at its first try alone",
        "onlyonce/tables/rewrite.py",
        Replace(
            "_carry_out",
            "there is not None and there >= commit.version",
            "planned is None and there is not None and there >= commit.version",
        ),
        tests=(CHANGES + "test_what_comes_while_a_writer_stands_still[local-the twin-commit]",),
    ),
    Mutant(
        "compacted-is-news",
        "a compaction says that its files are new rows",
        "onlyonce/tables/rewrite.py",
        Replace(
            "replace_files",
            "own_tables.added(path, file, indexed, data_change=False)",
            "own_tables.added(path, file, indexed)",
        ),
        tests=(
            "tests/contract/operate/test_compaction.py::test_what_is_ended_and_read_becomes_few_files_in_order_of_time_with_the_same_rows",
        ),
    ),
    Mutant(
        "compaction-beside-another",
        "delta-rs puts a compaction behind whatever came between, as it does with an append without a transaction",
        "onlyonce/tables/rewrite.py",
        Replace("replace_files", "0", "15"),
        Replace("replace_files", "[Transaction(app_id, number, now)]", "[]"),
        tests=("tests/contract/operate/test_compaction.py::test_of_two_that_compact_at_once_one_does",),
    ),
    Mutant(
        "old-by-its-age",
        "a file that was compacted is swept by its age, and not by the time since",
        "onlyonce/tables/rewrite.py",
        Replace(
            "replace_files",
            "stores.of(path).renew(path / file.path)  # it is an old file from now on",
            "pass  # it is an old file from now on",
        ),
        tests=(
            "tests/contract/operate/test_compaction.py::test_old_files_stay_for_readers_from_the_compaction_on_however_old_they_are",
        ),
    ),
    Mutant(
        "objects-keep-their-age",
        "an object that was compacted keeps its time, by which it is swept",
        "onlyonce/tables/stores.py",
        Replace("Objects.renew", "self.put(at, self.read(at))", "self.read(at)"),
        tests=(
            "tests/storage/test_commands.py::test_maintenance_changes_no_row_and_old_files_stay_for_readers_from_then_on",
        ),
    ),
    Mutant(
        "folders-are-objects",
        "the marker of a folder in a store is taken for an object",
        "onlyonce/tables/stores.py",
        Replace(
            "Objects.entries",
            'self._no_markers([_entry(Url(url.root, one["path"]), one) for one in page if one["path"] != url.key])',
            '[_entry(Url(url.root, one["path"]), one) for one in page if one["path"] != url.key]',
        ),
        tests=("tests/storage/test_stores.py::test_the_marker_of_a_folder_is_no_object[versitygw]",),
    ),
    Mutant(
        "keys-in-sparks-settings",
        "Spark is told the keys of the store",
        "onlyonce/tables/stores.py",
        Replace(
            "options_of_spark",
            """
            {
                    "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
                    "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
                    "spark.hadoop.fs.AbstractFileSystem.s3a.impl": "org.apache.hadoop.fs.s3a.S3A",
                    "spark.hadoop.fs.s3a.endpoint.region": store_region() or "us-east-1",
                    # One PUT for a file of a checkpoint. Spark's default writes another and renames it, which is twenty requests there, and no more atomic.
                    CHECKPOINTS: "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager",
                    "spark.hadoop.fs.s3a.performance.flags": "create,mkdir",
                }
        """,
            """
            {
                    "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
                    "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
                    "spark.hadoop.fs.AbstractFileSystem.s3a.impl": "org.apache.hadoop.fs.s3a.S3A",
                    "spark.hadoop.fs.s3a.secret.key": variable("AWS_SECRET_ACCESS_KEY") or "",
                    "spark.hadoop.fs.s3a.endpoint.region": store_region() or "us-east-1",
                    # One PUT for a file of a checkpoint. Spark's default writes another and renames it, which is twenty requests there, and no more atomic.
                    CHECKPOINTS: "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager",
                    "spark.hadoop.fs.s3a.performance.flags": "create,mkdir",
                }
        """,
        ),
        tests=("tests/storage/test_secrets.py::test_spark_is_told_no_key",),
    ),
    Mutant(
        "values-9-int96-in-nanoseconds",
        "times in INT96 are read in nanoseconds, which wrap around",
        "onlyonce/tables/arrow_files.py",
        Delete("opened", 'form = {"coerce_int96_timestamp_unit": "us", **form}'),
        tests=("tests/unit/sources/test_typed_files.py::test_int96_times_keep_their_date",),
    ),
    Mutant(
        "replay-trusts-the-transaction",
        "a replay asks for the transaction alone, which a table may have forgotten",
        "onlyonce/tables/commit.py",
        Replace(
            "once",
            "(known is None or known < commit.version) and not (replayed and find(path, commit)) and (new := "
            "write()) is not None",
            "(known is None or known < commit.version) and (new := write()) is not None",
        ),
        tests=(DELTA + "test_a_replay_finds_its_commit_though_the_table_has_forgotten_the_transaction",),
    ),
    Mutant(
        "commit-once",
        "a commit that others came between ends the run",
        "onlyonce/tables/own_tables.py",
        Replace("tries", "tenacity.stop_after_attempt(BETWEEN)", "tenacity.stop_after_attempt(1)"),
        tests=(DELTA + "test_a_write_that_others_came_between_is_tried_again",),
    ),
    Mutant(
        "swept-before-its-commit",
        "files of an attempt go though its transaction is not in the table",
        "onlyonce/tables/attempt_files.py",
        Never("_sweep", "there is None or there < attempt.version"),
        tests=(OWN + "test_what_killed_attempts_have_left_is_swept_and_what_may_still_be_committed_stays",),
    ),
    Mutant(
        "manifests-not-swept",
        "files that killed drivers left in manifests stay for ever",
        "onlyonce/tables/attempt_files.py",
        Replace(
            "sweep_attempts",
            "(settings.data_location(instance) / stored_names.EVENTS_FOLDER, *of(instance))",
            "[settings.data_location(instance) / stored_names.EVENTS_FOLDER]",
        ),
        tests=(OWN + "test_sweep_removes_what_killed_drivers_left_in_manifests",),
    ),
    Mutant(
        "put-whatever-is-there",
        "what is to be put only if nothing is there is put in any case",
        "onlyonce/tables/stores.py",
        Replace(
            "Objects._put_if_absent",
            'obstore.put(self.bucket(url), url.key, content, mode="create", use_multipart=False)',
            "obstore.put(self.bucket(url), url.key, content, use_multipart=False)",
        ),
        tests=(
            "tests/storage/test_stores.py::test_of_writers_at_once_that_put_if_absent_one_wins_and_its_content_stays[versitygw]",
            "tests/storage/test_refused_at_the_start.py::test_a_claim_is_made_once_and_is_the_platforms_own",
        ),
    ),
    Mutant(
        "no-bucket-is-no-object",
        "a bucket that is gone is told as an object that is not there",
        "onlyonce/tables/stores.py",
        Always("told", "_code(error) in (None, *failures.NO_OBJECT)"),
        tests=(
            "tests/storage/test_stores.py::test_a_bucket_that_is_gone_is_not_an_object_that_is_not_there[versitygw]",
        ),
    ),
    Mutant(
        "commits-without-the-condition",
        "delta-rs commits to a store by a PUT that overwrites",
        "onlyonce/tables/stores.py",
        Replace(
            "options_of_delta",
            '{"allow_http": "true"}',
            '{"allow_http": "true", "conditional_put": "disabled", "aws_s3_allow_unsafe_rename": "true"}',
        ),
        tests=(COMMITS + "test_of_drivers_at_once_each_acknowledged_commit_is_there[versitygw]",),
    ),
    Mutant(
        "checksum-of-one-file",
        "a version checksum counts one file for a commit of several",
        "onlyonce/tables/commit.py",
        Replace("_after", "len(added)", "1"),
        tests=(SPARKS_OWN + "test_spark_reads_a_new_version_without_a_job_by_a_checksum_that_it_finds_right",),
    ),
    Mutant(
        "version-of-another",
        "a commit that others came between is told as the version that it was meant to be",
        "onlyonce/tables/own_tables.py",
        Replace("_put", "0", "15"),
        tests=(OWN + "test_commits_of_other_transactions_between_do_not_disturb",),
    ),
    Mutant(
        "log-listed-by-each",
        "each commit lists the table's log, to see what of it may go",
        "onlyonce/tables/commit.py",
        Replace("afterwards", "None if version % CLEANED_EVERY == 0 else False", "None"),
        tests=(
            COMMITS + "test_a_run_that_appends_asks_as_much_as_before_and_sees_what_others_have_committed[versitygw]",
        ),
    ),
    Mutant(
        "own-commit-read-again",
        "a run reads what it has committed itself",
        "onlyonce/tables/commit.py",
        Replace("Appended.committed", "(before + 1, number)", "(before, number)"),
        tests=(
            COMMITS + "test_a_run_that_appends_asks_as_much_as_before_and_sees_what_others_have_committed[versitygw]",
        ),
    ),
    Mutant(
        "whatever-is-there-now",
        "ranges of an object are read without the condition that it is what was listed",
        "onlyonce/tables/stores.py",
        Replace("Objects.read_range", '{"range": (begin, end), "if_match": etag}', '{"range": (begin, end)}'),
        tests=(
            "tests/storage/test_object_inbox.py::test_what_changed_since_it_was_listed_is_told_and_never_read[versitygw]",
        ),
    ),
    Mutant(
        "files-that-go-stay",
        "the commit of a change names what comes, and not the files whose rows are in it",
        "onlyonce/tables/rewrite.py",
        Replace("_commit", "change.gone", "()"),
        tests=(
            "tests/spark/sinks/test_other_readers.py::test_three_readers_see_the_same_rows_after_each_kind_of_commit",
        ),
        spark=True,
    ),
    Mutant(
        "etag-as-it-is-told",
        "an ETag counts as another one where a store's listing leaves out its quotes",
        "onlyonce/tables/stores.py",
        Replace("_entry", "f'\"{etag.strip(chr(34))}\"'", "etag"),
        tests=("tests/storage/test_stores.py::test_one_content_has_one_etag_whoever_tells_it",),
    ),
    Mutant(
        "outputs-5-escaped",
        "what we write into a Delta log escapes characters outside the basic plane",
        "onlyonce/tables/opening.py",
        Replace(
            "text",
            "json.dumps(value, ensure_ascii=False, sort_keys=True)",
            "json.dumps(value, sort_keys=True)",
        ),
        tests=("tests/contract/storage/test_other_readers.py::test_a_string_of_any_plane_is_found",),
    ),
    Mutant(
        "outputs-6-fields-of-delta-rs",
        "a compacted file has bounds of the fields inside its columns, which leave NaN out",
        "onlyonce/tables/arrow_files.py",
        Never("footer_of_delta_rs", "any(uncertain and is_nested for _, uncertain, is_nested in columns)"),
        tests=("tests/contract/storage/test_other_readers.py::test_a_nan_is_found_after_maintenance[True]",),
    ),
    Mutant(
        "outputs-6-bounds-of-nan",
        "a NaN inside a structure does not leave out the statistics of its field",
        "onlyonce/tables/arrow_files.py",
        Replace("_leaves", "[chunk.field(at) for chunk in chunks]", "[]"),
        tests=("tests/contract/storage/test_other_readers.py::test_a_nan_is_found_where_readers_order_it",),
    ),
    Mutant(
        "outputs-7-year-without-zeros",
        "a time before the year 1000 in a partition column is written to the log without the zeros of its year",
        "onlyonce/tables/table_files.py",
        Replace(
            "partition_text",
            'value.replace(tzinfo=None).isoformat(" ", "microseconds")',
            'f"{value:%Y-%m-%d %H:%M:%S.%f}"',
        ),
        tests=("tests/unit/storage/test_table_files.py::test_a_partition_value_is_given_as_the_log_has_it",),
    ),
    Mutant(
        "outputs-7-one-name",
        "two data files of one attempt have one name",
        "onlyonce/sinks/delta/delta_files.py",
        Replace("_write", "uuid4().hex", "'few'"),
        tests=(
            "tests/contract/storage/test_other_readers.py::test_rows_of_a_small_batch_are_read_back_by_their_partition",
        ),
    ),
)
