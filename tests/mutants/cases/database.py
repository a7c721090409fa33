"""Mutants of `onlyonce/database` and what belongs to it."""

from __future__ import annotations

from tests.mutants.cases.paths import (
    ARRAYS,
    LOST,
)
from tests.mutants.mutant import Mutant
from tests.mutants.operators import Delete, Never, Replace

MUTANTS = (
    Mutant(
        "mysql-tables-without-their-lock",
        "a session that does not get the lock makes the tables in MySQL all the same",
        "onlyonce/database/migrate.py",
        Replace(
            "_apply_mysql",
            'not connection.exec_driver_sql(f"SELECT GET_LOCK({MYSQL_LOCK}, %s)", (MYSQL_LOCK_SECONDS,)).scalar()',
            'connection.exec_driver_sql(f"SELECT GET_LOCK({MYSQL_LOCK}, %s)", (MYSQL_LOCK_SECONDS,)).scalar() == 2',
        ),
        tests=("tests/contract/sinks/test_mysql_sink.py::test_tables_are_made_only_under_their_lock",),
    ),
    Mutant(
        "format-6-dependents-dropped",
        "a view that can't be replaced in place is dropped with a team's views and grants",
        "onlyonce/database/migrate.py",
        Delete("_replace_views", "_refuse_dependents(connection, view, [name for name, _ in pieces if name])"),
        tests=(
            "tests/contract/database/test_migrations.py::test_view_that_cannot_be_replaced_is_refused_with_its_dependents",
        ),
    ),
    Mutant(
        "format-6-views-made-anew",
        "views are dropped and made again whenever one changes",
        "onlyonce/database/migrate.py",
        Replace(
            "_replace_views",
            "_script(connection, piece)",
            '_script(connection, f"DROP VIEW IF EXISTS {view} CASCADE;" * bool(view) + piece)',
        ),
        tests=("tests/contract/database/test_migrations.py::test_replaced_views_keep_a_teams_views_and_grants",),
    ),
    Mutant(
        "format-1-session-in-any-format",
        "a session opens in a database of another format",
        "onlyonce/database/connect.py",
        Never("_new_engine", "not (database.any_format or database.of_task)"),
        tests=("tests/contract/database/test_other_format.py::test_no_session_opens_in_a_database_of_another_format",),
    ),
    Mutant(
        "format-1-mysql-in-any-format",
        "a session opens in a MySQL sink's database of another format",
        "onlyonce/database/connect.py",
        Replace(
            "_refuse_other_format",
            "statements.format_of_mysql_session(cursor) if is_mysql else statements.format_of_session(cursor)",
            "None if is_mysql else statements.format_of_session(cursor)",
        ),
        tests=("tests/contract/sinks/test_mysql_sink.py::test_no_session_opens_in_a_database_of_another_format",),
    ),
    Mutant(
        "format-1-command-in-any-format",
        "a command asks neither the home nor the database for its format",
        "onlyonce/cli/shell.py",
        Never(
            "PlatformGroup.resolve_command",
            'not (ctx.resilient_parsing or found[0] in ANY_FORMAT or {"-h", "--help"} & {*args})',
        ),
        tests=("tests/contract/database/test_other_format.py::test_command_refuses_a_home_of_another_format[status]",),
    ),
    Mutant(
        "format-1-bare-home",
        "a home with data and without the file of its format passes for a new one",
        "onlyonce/database/statements.py",
        Never("of_home", "any((home / name).exists() for name in STATE)"),
        tests=("tests/contract/database/test_other_format.py::test_command_refuses_a_home_of_another_format[status]",),
    ),
    Mutant(
        "format-1-data-after-format",
        "a home that another process makes at this moment passes for one with data and no format",
        "onlyonce/database/statements.py",
        Replace(
            "of_home", "NO_FILE if has_data else None", "NO_FILE if any((home / n).exists() for n in STATE) else None"
        ),
        tests=(
            "tests/unit/database/test_formats.py::"
            "test_home_that_another_process_makes_meanwhile_is_not_of_another_format",
        ),
    ),
    Mutant(
        "format-1-newer-is-old",
        "a home of a newer version is refused with the advice to start over",
        "onlyonce/database/statements.py",
        Replace("_is_newer", "int(part) > int(FORMAT)", "int(part) < int(FORMAT)"),
        tests=("tests/unit/database/test_formats.py::test_home_of_another_format_is_refused",),
    ),
    Mutant(
        "format-1-job-in-any-home",
        "a job does not ask the home for its format",
        "onlyonce/job_main.py",
        Delete("run", "statements.check_home()"),
        tests=(
            "tests/contract/database/test_other_format.py::test_job_refuses_a_home_of_another_format[onlyonce.operate.audit]",
        ),
    ),
    Mutant(
        "errors-swallowed",
        "a COMMIT that failed counts as done",
        "onlyonce/database/connect.py",
        Replace(
            "transaction",
            """
            raise CommitStateUnknown(
                f"the database's answer to a COMMIT was lost: {first_line(error)}",
                data="the transaction is either whole in the log or not in it at all",
                hint="the platform reads the log and decides; if this error reaches you, run the same command again",
            ) from error
        """,
            """
            return
            raise CommitStateUnknown(
                f"the database's answer to a COMMIT was lost: {first_line(error)}",
                data="the transaction is either whole in the log or not in it at all",
                hint="the platform reads the log and decides; if this error reaches you, run the same command again",
            ) from error
        """,
        ),
        tests=(
            LOST + "test_a_transaction_cut_at_its_commit_is_neither_done_nor_failed",
            LOST + "test_a_unit_whose_commit_did_not_arrive_is_retryable_and_passes_the_second_time",
        ),
    ),
    Mutant(
        "others-time-limit",
        "a statement of ours ends where the database or role has a time limit for other work",
        "onlyonce/database/connect.py",
        Replace(
            "",
            '{"lock_timeout": "30s", "idle_in_transaction_session_timeout": "10min", "statement_timeout": "0", '
            '"timezone": "UTC", "synchronous_commit": "on"}',
            '{"lock_timeout": "30s", "idle_in_transaction_session_timeout": "10min", "timezone": "UTC", '
            '"synchronous_commit": "on"}',
        ),
        tests=(
            "tests/contract/database/test_sessions.py::test_no_time_limit_of_a_database_or_role_ends_a_statement_of_ours",
        ),
    ),
    Mutant(
        "others-commits-without-a-disk",
        "a commit is answered before it is on the disk, as the database or role has it for other work",
        "onlyonce/database/connect.py",
        Replace(
            "",
            '{"lock_timeout": "30s", "idle_in_transaction_session_timeout": "10min", "statement_timeout": "0", '
            '"timezone": "UTC", "synchronous_commit": "on"}',
            '{"lock_timeout": "30s", "idle_in_transaction_session_timeout": "10min", "statement_timeout": "0", '
            '"timezone": "UTC"}',
        ),
        tests=("tests/contract/database/test_sessions.py::test_a_commit_of_ours_waits_until_it_is_on_the_disk",),
    ),
    Mutant(
        "no-value-is-empty",
        "of rows that are told together a value that is missing is written as ''",
        "onlyonce/database/locks.py",
        Replace("array", '"NULL"', "'\"\"'"),
        tests=(ARRAYS + "test_values_arrive_as_they_are[texts]",),
    ),
    Mutant(
        "sign-taken-for-its-meaning",
        "a backslash of a text is what an array is written with",
        "onlyonce/database/locks.py",
        Replace("array", '("\\\\", \'"\')', "('\"',)"),
        tests=(ARRAYS + "test_values_arrive_as_they_are[texts]",),
    ),
    Mutant(
        "last-row-untold",
        "a row that is alone in the last statement is not told",
        "onlyonce/database/locks.py",
        Replace("do_rows", "ordered.num_rows", "ordered.num_rows - 1"),
        tests=(
            ARRAYS + "test_each_row_is_there_once_however_many_statements_take_them[4]",
            ARRAYS + "test_a_batch_whose_answer_was_lost_has_its_windows_once[answer lost]",
        ),
    ),
    Mutant(
        "tasks-without-slots",
        "the tasks of an executor open as many sessions as they are",
        "onlyonce/database/connect.py",
        Delete(
            "_slot",
            """
            if not any(map(_taken, files)):
                fcntl.flock(files[0], fcntl.LOCK_EX)
        """,
        ),
        tests=(
            "tests/contract/database/test_task_sessions.py::test_tasks_of_an_executor_have_no_more_sessions_at_once_than_they_may",
        ),
    ),
    Mutant(
        "part-commits-by-itself",
        "a method of the log commits what it has done, also as a part of another transaction",
        "onlyonce/database/connect.py",
        Replace(
            "one_transaction.whole",
            "return work(self, *args, **kwargs)",
            """
            done = work(self, *args, **kwargs)
            self.scope.exec_driver_sql("COMMIT; BEGIN")
            return done
        """,
        ),
        tests=(
            "tests/contract/database/test_transactions.py::test_all_that_a_method_has_done_is_committed_or_nothing",
            "tests/contract/database/test_transactions.py::test_methods_in_an_open_transaction_are_committed_with_it",
        ),
    ),
    Mutant(
        "reader-is-an-unknown-error",
        "the reader's URL where the writer's belongs is an unknown error, and the same command is said to help",
        "onlyonce/database/connect.py",
        Replace("transaction", "takes_no_writes(connection, error)", "None"),
        tests=("tests/contract/database/test_transactions.py::test_url_that_can_not_work_is_refused_without_patience",),
    ),
    Mutant(
        "our-own-snapshot-is-a-reader",
        "a statement that writes in a transaction of ours that only reads is blamed on the role",
        "onlyonce/database/connect.py",
        Replace("takes_no_writes", "connection.rollback()", "connection.rollback(); reads = True"),
        tests=(
            "tests/contract/database/test_transactions.py::test_our_own_transaction_that_only_reads_is_not_taken_for_the_role",
        ),
    ),
    Mutant(
        "lock-left-to-the-server",
        "a deliverer gives up its lock only when the server has ended its session, so that the next one finds it taken",
        "onlyonce/database/locks.py",
        Replace("give_up", "session.ask(lambda connection: release(connection, name))", "None"),
        tests=(
            "tests/contract/database/test_sessions.py::test_lock_is_free_at_once_though_the_server_still_lists_the_session",
        ),
    ),
)
