"""Ties the tests of this folder to the sentences of docs/explanation/security.md, in both directions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from onlyonce.settings import ROOT

PAGE = ROOT / "docs" / "explanation" / "security.md"
T = TypeVar("T", bound=Callable[..., object])
PERMISSIONS = "tests/page/test_permissions.py::"
UNREAD = "tests/page/test_unread.py::"
ERASING = "tests/unit/model/operate/test_model_erasing.py::"
FORGET = "tests/contract/operate/test_forget.py::"
ERASED = "tests/contract/operate/test_erased_places.py::"
FAILING = "tests/spark/operate/test_forget.py::test_an_output_that_fails_holds_up_no_other_and_is_named"
EVERYWHERE = (
    "tests/spark/operate/test_forget_everywhere.py::test_after_an_erasure_the_search_finds_what_the_receipt_names"
)
OUTSIDE = "tests/spark/operate/test_forget_outside.py::test_of_what_is_outside_the_receipt_names_what_a_search_finds"
IN_STORE = "tests/storage/test_forget_in_store.py::test_in_a_store_the_receipt_names_what_a_search_finds"
ELSEWHERE = {
    "PostgreSQL listens on 127.0.0.1 and asks every client for a generated password": "tests/local/test_postgres.py::test_nobody_gets_in_without_the_password",
    "the passwords are in `.onlyonce/`, readable by you alone.": "tests/local/test_postgres.py::test_secrets_are_private_and_on_no_command_line",
    "Jobs get passwords by the environment, never on the command line.": "tests/airflow/test_dag_runs.py::test_no_log_holds_the_password",
    "No secret is on a command line, in a rendered template or in a task's log.":
        "tests/contract/airflow/test_supervision.py::test_the_secrets_of_a_driver_in_a_cluster_go_by_a_file_of_this_account_alone",
    "In Kubernetes they come by a Secret, since a pod's description shows its variables.": "tests/compose/test_kubernetes.py::test_what_a_manifest_names_is_there",
    "Airflow's page shows a pipeline only to users who may read runs of a DAG that drives it.": f"{PERMISSIONS}test_a_pipeline_of_other_dags_is_not_shown",
    "The commit log has which DAGs do; if it has none, the DAG `<pipeline>_stream` counts.": f"{PERMISSIONS}test_a_pipeline_of_other_dags_is_not_shown",
    "Values of records are shown only to users who may start runs of such a DAG (`page_records`).": f"{PERMISSIONS}test_record_values_need_permission_to_start_runs",
    "The reasons for which a function rejects records are such values.": f"{PERMISSIONS}test_reasons_of_rejected_records_are_values",
    "So is what a finding of the doctor quotes: an error of a function, or an answer of a target.": f"{PERMISSIONS}test_what_findings_quote_is_for_those_who_may_see_records",
    "A pipeline's page asks the sources for their unread input by a process of the API server's account,": f"{UNREAD}test_source_is_asked_when_the_page_is_called",
    "It imports the declarations and a reader of your own, and has the API server's variables:": f"{UNREAD}test_without_an_answer_the_stored_one_is_shown",
    "It reads the log as the reader.": f"{UNREAD}test_source_is_asked_when_the_page_is_called",
    "Only users who may see the pipeline start a request.": f"{PERMISSIONS}test_a_pipeline_of_other_dags_is_not_shown",
    "Two processes ask at once at most, a pipeline's sources once in 15 s,": f"{UNREAD}test_answer_is_kept_and_asked_once_at_a_time",
    "One more process waits for the next request for ten minutes at most,": f"{UNREAD}test_source_is_asked_when_the_page_is_called",
    "A search is a POST, so no access log contains its values.": f"{PERMISSIONS}test_record_values_need_permission_to_start_runs",
    "`onlyonce_reader` has permission to read the views and to call two functions, and no other.": "tests/contract/commitlog/test_reader.py::test_the_reader_changes_nothing_by_any_kind_of_statement",
    "`onlyonce forget` parses each line that may hold a value, so every spelling of the value is found: each " "escape of JSON, doubled quotes of CSV, Latin-1 and UTF-16.":
        f"{FORGET}test_line_in_another_encoding_goes",
    "The [conversion table](../reference/values.md) decides what the value is.": f"{ERASING}test_a_value_is_compared_as_events_has_it",
    "An invalid line is searched for its fields too,": f"{FORGET}test_every_spelling_goes_and_a_record_without_a_line_is_reported",
    "and a message of Pub/Sub, Avro or Protobuf that is not a record for what it says.": f"{FORGET}test_message_that_is_no_record_goes",
    "No line makes the search fail, however deep or long it is.": f"{ERASING}test_no_line_makes_the_search_fail",
    "If a record of `events` has no line in the input files, the receipt reports it and the exit code is 1.": f"{FORGET}test_every_spelling_goes_and_a_record_without_a_line_is_reported",
    "The reason of an invalid record shows no key and no header of its message:": "tests/spark/sources/test_shown_columns.py::test_a_reason_has_no_value_of_a_header",
    "An erasure deletes what the log keeps of errors of batches, and replaces errors of runs and alerts that quote the " "record by a note.": f"{ERASED}test_errors_in_the_log_go",
    "A reprocessing that has ended keeps hashes of reasons, since a reason may quote a record.": "tests/contract/outputs/test_reprocess.py::test_a_reprocessing_that_has_ended_keeps_no_reason",
    "An output whose windows can't be computed again holds up neither the other outputs nor the erasure of " "another person.": FAILING,
    "The receipt names the output and the `onlyonce backfill` to run once the cause is repaired; the exit code is 1.": FAILING,
    "After an erasure no value is in Spark's state of an output that can be computed again,": EVERYWHERE,
    "No value is in files of killed writers, in the platform's logs, or on the pages of the tables from which the erasure "
    "deleted rows.": EVERYWHERE,
    "It erases from pipelines with several sources, each by its own ids.": "tests/spark/operate/test_forget.py::test_a_record_of_one_of_several_sources_goes",
    "A `Stateful` output whose state has the values is computed from the start by the next run.":
        "tests/spark/operate/test_forget.py::test_output_with_state_is_computed_from_the_start_without_erased_records",
    "A search that decodes each stored format looks for the values at the end,": EVERYWHERE,
    "A format that it can't decode, and a compressed file that is damaged, are named as such.": "tests/unit/operate/test_decoders.py::test_damage_of_a_compressed_file_is_named",
    "Statistics that PostgreSQL keeps of columns are among these places,": f"{ERASED}test_statements_that_postgresql_counts_are_searched",
    "The receipt names no place that has no value.": EVERYWHERE,
    "A place that the search does not read is listed only if the pipeline has it.": EVERYWHERE,
    "The receipt lists the messages of a topic with the end that the broker's own settings give them,": "tests/spark/operate/test_forget.py::test_messages_of_a_topic_stay_and_the_receipt_says_until_when",
    "A file that no snapshot of an Iceberg table has is searched as well.": OUTSIDE,
    "The receipt names each bucket that may keep deleted objects.": IN_STORE,
    "The receipt says in one line each why it can't cover what no command can know:":
        "tests/unit/operate/test_erasure_places.py::test_a_receipt_says_why_a_place_can_not_be_searched",
    "The stored receipt has no value, not even in a path.": f"{ERASED}test_names_and_what_killed_writers_left_are_searched",
}  # fmt: skip
"""What a test of another folder proves, which needs that folder's fixtures."""
NO_CASE = (
    "Each sentence of this page about an attack is a test",
    "If you are root, the server runs as `postgres` or `nobody`.",
    "The umask itself stays yours,",
    "If executors of another account share such a home,",
    "Pipeline files are Python: a user who can write them can run code.",
    "The one exception is Airflow's asynchronous URL: asyncpg has no such option.",
    "It holds the password of the role `airflow`,",
    "On a cluster of your own set `spark.authenticate` yourself.",
    "Elsewhere a user of the same machine may call them.",
    "MySQL 8's own methods (`caching_sha2_password`, `sha256_password`)",
    "In addition:",
    "What the server itself quotes of a row (`DETAIL`) stays in the error,",
    "A password changed in `.env` must be changed in PostgreSQL too",
    "In PostgreSQL no one can forbid a role to change its own password,",
    "An open transaction of the reader keeps VACUUM from removing dead rows,",
    "On a PostgreSQL of your own nothing is revoked from PUBLIC,",
    "There a reader may make large objects and temporary tables,",
    "If that is too much, run `sql/statements/own_server.sql`",
    "The view `id_chunks` has hashes of record ids:",
    "Airflow shows that name to its users who may see the waiting task.",
    "A notebook of the platform's own user can read the writer's URL anyway:",
    "Name the addresses of your database and store there,",
    "`psql \"$(onlyonce sql --url)\"` puts the reader's password on psql's command line,",
    "A login to Airflow (`ONLYONCE_AIRFLOW_URL`) goes to the address that you name,",
    "In a MySQL sink's database a user of that database can hold up the making of tables for a minute.",
    "If root starts the embedded server and there is no account `postgres`,",
    "An account that may make pods may name any Secret of its namespace in one,",
    "Put only onlyonce into the namespace all the same.",
    "To check the lock for known vulnerabilities,",
)
"""How sentences begin that give advice, a reason or a limit, and promise nothing."""


def states(*sentences: str) -> Callable[[T], T]:
    """Mark a test as the proof of these sentences of the page."""

    def mark(test: T) -> T:
        test.stated = sentences  # type: ignore[attr-defined]
        return test

    return mark


def missing(sentences: tuple[str, ...]) -> list[str]:
    """Return the sentences that the page does not have, whatever its line breaks."""
    page = " ".join(PAGE.read_text().split())
    return [sentence for sentence in sentences if sentence not in page]


def of_page() -> Iterator[str]:
    """Yield each sentence of the page's paragraphs, without tables and code."""
    sections = re.split(
        r"^#+ ", re.sub(r"^```.*?^```", "", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL), flags=re.MULTILINE
    )
    for section in sections:
        _, _, rest = section.partition("\n")
        for paragraph in re.split(r"\n\s*\n", rest):
            if not paragraph.lstrip().startswith("|"):
                yield from re.split(r"(?<=\.)\s+(?=[A-Z`])", " ".join(paragraph.split()))


def unproved(stated: list[str]) -> list[str]:
    """Return the sentences of the page that no case states, and that are not known to need none."""
    known = (*stated, *ELSEWHERE)
    return [
        one
        for one in of_page()
        if one and not one.startswith(NO_CASE) and not any(part in one or one in part for part in known)
    ]
