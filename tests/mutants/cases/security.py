"""Mutants of what docs/explanation/security.md states."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.operators import Always, Never, Replace, ReplaceSql

FOUND = "tests/unit/model/operate/test_model_erasing.py::"
FORGET = "tests/contract/operate/test_forget.py::"

MUTANTS = (
    Mutant(
        "security-erasure-1-first-failure",
        "an erasure ends at the first output that can't be computed again",
        "onlyonce/operate/erase/forget.py",
        Never("_compute_again", "isinstance(error, Refused | InvariantBroken | Unexpected)"),
        tests=("tests/spark/operate/test_forget.py::test_an_output_that_fails_holds_up_no_other_and_is_named",),
    ),
    Mutant(
        "security-erasure-2-raw-bytes",
        "an erasure finds a line only if it has the value's own bytes",
        "onlyonce/model/operate/erasing.py",
        Never("Condition.may_be_in", '(b\'"\' if layout == "csv" else b"\\\\") in line'),
        tests=(f"{FOUND}test_every_spelling_of_a_value_is_found_in_json", f"{FOUND}test_every_spelling_of_a_value_is_found_in_csv"),
    ),
    Mutant(
        "security-erasure-2-silent",
        "an erasure does not report a record whose line it did not find",
        "onlyonce/operate/erase/in_use.py",
        Replace("Found.records_without_line", "max(0, sum(self.records.fates.values()) - sum(by_name.values()))", "0"),
        tests=(f"{FORGET}test_every_spelling_goes_and_a_record_without_a_line_is_reported",),
    ),
    Mutant(
        "security-erasure-3-deep-lines",
        "an erasure parses a line of any depth",
        "onlyonce/model/operate/erasing.py",
        Replace("Condition.fits_line", "line_values.json_object(line)", "line_values.DECODER.decode(line)"),
        tests=(f"{FOUND}test_no_line_makes_the_search_fail",),
    ),
    Mutant(
        "security-erasure-4-compressed-state",
        "the search reads a changelog of Spark's state without decompressing it",
        "onlyonce/operate/erase/decoders.py",
        Replace("_lz4_blocks", 'bytes(pa.Codec("lz4_raw").decompress(block, size))', "block"),
        tests=("tests/unit/operate/test_decoders.py::test_value_is_found_in_each_format[changelog]",),
    ),
    Mutant(
        "security-erasure-4-logs-stay",
        "an erasure leaves the lines of logs",
        "onlyonce/operate/erase/leftovers.py",
        Replace("_blank_lines", 'b" " * len(kept)', "kept"),
        tests=(f"{FORGET}test_records_go_from_everywhere_and_a_receipt_without_their_values_stays",),
    ),
    Mutant(
        "security-erasure-4-bounds-stay",
        "an erasure leaves the least and largest values in the log of a Delta table",
        "onlyonce/storage/table_statistics.py",
        Replace("_without", "name not in BOUNDS", "True"),
        tests=(f"{FORGET}test_records_go_from_everywhere_and_a_receipt_without_their_values_stays",),
    ),
    Mutant(
        "security-6-any-dag",
        "Airflow's page shows every pipeline to every user",
        "onlyonce/airflow/page/sight.py",
        Replace("Sight.sees", 'any(self.may(dag_id, "GET") for dag_id in self._dags.get(instance, ()))', "True"),
        tests=("tests/page/test_permissions.py::test_a_pipeline_of_other_dags_is_not_shown[/pipelines/shop]",),
    ),
    Mutant(
        "security-6-values-for-viewers",
        "viewers see values of records on Airflow's page",
        "onlyonce/airflow/page/sight.py",
        Replace("Sight.sees_records", '"GET" if who == "viewers" else "POST"', '"GET"'),
        tests=("tests/page/test_permissions.py::test_record_values_need_permission_to_start_runs",),
    ),
    Mutant(
        "security-8-any-authentication",
        "a server on the embedded server's port may ask for the password in clear text",
        "onlyonce/local/database/cluster.py",
        Replace("", 'AUTHENTICATION = "require_auth=scram-sha-256"', 'AUTHENTICATION = "require_auth="'),
        tests=("tests/security/test_fake_server.py::test_a_fake_server_gets_no_password",),
    ),
    Mutant(
        "security-10-open-home",
        "other users of the machine may enter the folders of the embedded home",
        "onlyonce/settings/home_folders.py",
        Replace("", "PRIVATE = 0o700", "PRIVATE = 0o755"),
        tests=("tests/security/test_home_permissions.py::test_another_user_reads_nothing_in_the_home",),
    ),
    Mutant(
        "security-13-time-for-each-read",
        "the time limit of a webhook begins again with each byte",
        "onlyonce/sinks/outbox/deadline.py",
        Replace("within", "time.monotonic() + seconds", "time.monotonic() + 60 * seconds"),
        tests=("tests/security/test_webhook_targets.py::test_a_slow_target_holds_a_request_for_its_timeout_only",),
    ),
    Mutant(
        "security-13-whole-answer",
        "a webhook's answer is read to its end",
        "onlyonce/sinks/outbox/webhook.py",
        Never("_beginning", "len(read) >= ANSWER_BYTES"),
        tests=("tests/security/test_webhook_targets.py::test_a_large_answer_is_read_in_part[long]",),
    ),
    Mutant(
        "security-13-token-in-clear-text",
        "a token goes to an http:// address",
        "onlyonce/declare/outputs/sent.py",
        Replace("in_clear_text", 'parts.scheme == "http" and parts.hostname not in HERE', "False"),
        tests=("tests/security/test_webhook_targets.py::test_a_token_is_not_sent_in_clear_text",),
    ),
    Mutant(
        "security-12-found-of-any-owner",
        "declarations of another user that were found are run",
        "onlyonce/settings/found_file.py",
        Replace("refuse_foreign", "path.stat().st_uid not in (os.geteuid(), 0)", "False"),
        tests=("tests/security/test_found_declarations.py::test_a_found_file_of_another_user_is_not_run[file]",),
    ),
    Mutant(
        "security-9-open-driver",
        "a local driver's port deserialises what any user of the machine sends",
        "onlyonce/spark/options.py",
        Replace("_of_local", '"true"', '"false"'),
        tests=("tests/security/test_spark_ports.py::test_a_local_driver_asks_for_authentication",),
        spark=True,
    ),
    Mutant(
        "security-11-secrets-in-env-vars",
        "a secret in env_vars goes to the command line and to the rendered template",
        "onlyonce/airflow/operators/cluster_secrets.py",
        Never("refuse_secrets", "name in named or SECRET.search(name)"),
        tests=("tests/security/test_cluster_secrets.py::test_a_secret_in_env_vars_is_refused[TEST_MYSQL]",),
    ),
    Mutant(
        "security-11-named-variables-stay",
        "a driver in YARN does not get the variables that its declaration names",
        "onlyonce/airflow/operators/cluster_secrets.py",
        Always("named_secrets", 'not master.startswith("yarn")'),
        tests=(
            "tests/contract/airflow/test_supervision.py::test_the_secrets_of_a_driver_in_a_cluster_go_by_a_file_of_this_account_alone",
        ),
    ),
    Mutant(
        "security-11-their-redaction",
        "a team's own redaction replaces ours",
        "onlyonce/spark/redaction.py",
        Replace("merged", 'f"(?:{theirs})|{OURS}"', "theirs"),
        tests=("tests/unit/test_spark_options.py::test_variables_are_redacted_with_what_the_team_redacts[(?i)iban|card]",),
    ),
    Mutant(
        "security-14-escapes-of-records",
        "a console prints the control characters of records",
        "onlyonce/tables.py",
        Always("Visible.render", "segment.control"),
        tests=("tests/security/test_hostile_records.py::test_no_control_character_reaches_a_terminal[line]",),
    ),
    Mutant(
        "security-14-escapes-in-errors",
        "an error holds the control characters of what it quotes",
        "onlyonce/model/errors.py",
        Replace("OnlyonceError.__init__", "self.what = visible(what)", "self.what = what"),
        tests=("tests/security/test_hostile_records.py::test_an_error_holds_no_control_character",),
    ),
    Mutant(
        "security-14-password-each-time",
        "each start prints the password of Airflow's page",
        "onlyonce/local/platform.py",
        Always("Login.__str__", "self.new"),
        tests=("tests/security/test_hostile_records.py::test_the_password_is_printed_once",),
    ),
    Mutant(
        "security-7-locks-for-all",
        "the reader takes advisory locks on a server of ours",
        "onlyonce/local/database/cluster.py",
        Replace("make_missing", 'cursor.execute(queries("own_server")["protect"])', "pass"),
        tests=("tests/security/test_reader.py::test_the_reader_takes_no_lock_and_stores_nothing",),
    ),
    Mutant(
        "security-7-all-connections",
        "the reader takes every connection of the server",
        "onlyonce/local/database/cluster.py",
        Replace("", '"CONNECTION LIMIT 60"', '"CONNECTION LIMIT -1"'),
        tests=("tests/security/test_reader.py::test_the_reader_leaves_connections_to_drivers",),
    ),
    Mutant(
        "security-7-any-digits",
        "an epoch of 23 digits in a session's name ends the start of a driver",
        "sql/lineages.sql",
        ReplaceSql("end_older_sessions", "'^onlyonce/[0-9]+/[0-9]{1,18}(/|$)'", "'^onlyonce/[0-9]+/[0-9]+(/|$)'"),
        tests=("tests/security/test_reader.py::test_a_name_of_many_digits_ends_no_driver",),
    ),
    Mutant(
        "security-15-readable-copy",
        "the copy of a file whose lines are blanked is readable by others",
        "onlyonce/operate/erase/input_files.py",
        Replace("blank", "0o600", "0o666"),
        tests=("tests/security/test_copies.py::test_the_copy_of_a_blanked_file_is_private",),
    ),
    Mutant(
        "security-15-parameters-in-errors",
        "an error of the database has the parameters of its statement",
        "onlyonce/database/connect.py",
        Replace("_postgres_engine", """
            return create_engine(
                database.url, pool_size=1, max_overflow=3, pool_pre_ping=True, connect_args=arguments,
                executemany_mode="values_plus_batch", hide_parameters=True,
            )
        """, """
            return create_engine(
                database.url, pool_size=1, max_overflow=3, pool_pre_ping=True, connect_args=arguments,
                executemany_mode="values_plus_batch",
            )
        """),
        tests=("tests/security/test_copies.py::test_an_error_has_no_parameters",),
    ),
)
