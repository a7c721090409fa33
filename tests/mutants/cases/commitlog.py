"""Mutants of `onlyonce/commitlog` and what belongs to it."""

from __future__ import annotations

from tests.mutants.cases.paths import (
    AUTHORITIES,
    BATCHES,
    DELIVER,
    EPOCHS,
    INTERLEAVINGS,
    KAFKA,
    LAYOUTS,
    MYSQL,
    POSTGRES,
    REJECTIONS,
    STREAMS,
    TURNS,
    ZOMBIES,
)
from tests.mutants.mutant import Mutant
from tests.mutants.operators import Always, Delete, Never, Replace, ReplaceSql

MUTANTS = (
    Mutant(
        "check-then-write",
        "a unit is looked for first and inserted at the end, instead of claimed first",
        "onlyonce/commitlog/units.py",
        Replace(
            "Units.claim",
            """
            ours = do(
                self.connection, "units", "claim",
                unique_id=str(unit), incarnation=unit.incarnation, batch_id=unit.batch_id, sink=unit.sink, partition=unit.partition,
                epoch=wanted.epoch, attempt=wanted.attempt, kind=wanted.kind,
            )
        """,
            """
            Units.claim.__dict__[str(unit)] = wanted
            ours = self.find(unit) is None
        """,
        ),
        Replace(
            "Units.fill",
            'fates: dict[str, Any] = dict.fromkeys((*FATES, "largest"))',
            """
            wanted = Units.claim.__dict__[str(unit)]
            do(
                self.connection, "units", "claim",
                unique_id=str(unit), incarnation=unit.incarnation, batch_id=unit.batch_id, sink=unit.sink, partition=unit.partition,
                epoch=wanted.epoch, attempt=wanted.attempt, kind=wanted.kind,
            )
            fates: dict[str, Any] = dict.fromkeys(("kept", "invalid", "expired", "duplicate", "unknown_fields", "largest"))
        """,
        ),
        tests=(
            INTERLEAVINGS + "test_of_two_attempts_one_writes_its_rows_in_every_interleaving",
            POSTGRES + "test_twins_of_one_unit_write_once",
        ),
    ),
    Mutant(
        "no-epoch-check",
        "a commit does not check the epoch",
        "onlyonce/commitlog/incarnations.py",
        Replace("Incarnations.check_epoch", "not rows or rows[0].epoch != epoch", "not rows"),
        tests=(EPOCHS + "test_a_driver_that_was_overtaken_claims_nothing", ZOMBIES),
    ),
    Mutant(
        "older-sessions-live-on",
        "a bump does not end the sessions of older drivers: a stalled one blocks it",
        "onlyonce/commitlog/incarnations.py",
        Delete(
            "Incarnations.bump",
            'ask(self.connection, "incarnations", "end_older_sessions", names=[session_name(platform, incarnation.number, "%") for platform in (None, ours)], below=None)',
        ),
        tests=(EPOCHS + "test_the_newer_driver_writes_what_the_zombie_could_not",),
    ),
    Mutant(
        "mysql-zombie-lives-on",
        "a newer driver does not end an older one's sessions in MySQL, which hold the epoch",
        "onlyonce/commitlog/incarnations.py",
        Delete(
            "Incarnations._end_older_sessions",
            "mysql.end_older_sessions(self.connection, platform, driver.number, driver.epoch)",
        ),
        tests=(MYSQL + "test_a_driver_that_was_overtaken_writes_nothing",),
    ),
    Mutant(
        "another-platforms-sessions-ended",
        "a driver's start ends another platform's sessions in a database of both their sinks",
        "onlyonce/commitlog/incarnations.py",
        Always("session_name", "platform is None"),
        tests=(
            "tests/contract/commitlog/test_authorities.py::test_a_start_leaves_the_sessions_of_another_platform_alone",
        ),
    ),
    Mutant(
        "another-platforms-mysql-sessions-ended",
        "a driver's start ends another platform's sessions in a MySQL of both their sinks",
        "onlyonce/database/mysql.py",
        Replace("end_older_sessions", 'f"{short(platform)}-%" if platform else "%"', '"%"'),
        tests=(MYSQL + "test_a_start_leaves_the_sessions_of_another_platform_in_mysql_alone",),
    ),
    Mutant(
        "refused-in-two-steps",
        "that a batch refuses a record is committed before its units are taken back",
        "onlyonce/commitlog/sources.py",
        Delete(
            "FailedAttempts.withdraw",
            'do(self.connection, "new_incarnations", "withdraw_units", incarnation=driver.incarnation, batch_id=batch_id)',
        ),
        Replace(
            "FailedAttempts.refuse",
            'do(self.connection, "failures", "refuse", refused=told, incarnation=driver.incarnation, batch_id=batch_id)',
            """
            do(self.connection, "failures", "refuse", refused=told, incarnation=driver.incarnation, batch_id=batch_id)
            self.connection.exec_driver_sql("COMMIT; BEGIN")
            do(self.connection, "new_incarnations", "withdraw_units", incarnation=driver.incarnation, batch_id=batch_id)
        """,
        ),
        tests=(
            "tests/contract/receive/test_poison.py::test_a_kill_while_a_record_is_refused_does_not_show[poison-before-commit]",
        ),
    ),
    Mutant(
        "frontier-anew",
        "a replay is stamped with the frontier of now, not with the one that its batch began with",
        "onlyonce/commitlog/batches.py",
        Replace("_from_row", "frontier_of(row)", "Frontier()"),
        tests=(BATCHES + "test_a_batch_is_begun_once_and_a_replay_gets_what_the_first_attempt_fixed",),
    ),
    Mutant(
        "partitions-of-now",
        "a replay is cut into the partitions that its batch would have now",
        "onlyonce/commitlog/batches.py",
        Replace(
            "Batches.begin",
            "check_lookups(there.plan, plan)",
            """
            check_lookups(there.plan, plan)
            object.__setattr__(there.plan, 'partitions', plan.partitions)
        """,
        ),
        tests=(LAYOUTS + "test_each_record_is_kept_once_whatever_the_layouts_of_its_deliveries",),
    ),
    Mutant(
        "removed-uncounted",
        "an attempt that goes on does not count again what an earlier one has counted",
        "onlyonce/commitlog/removals.py",
        Delete(
            "Removals.count",
            'do_rows(self.connection, "removals", "add_counts", pa.Table.from_pylist(rows), instance=instance, '
            "number=removal.number)",
        ),
        tests=(
            "tests/contract/operate/test_keep_events.py::test_whole_days_that_nobody_asks_for_go_and_the_log_has_their_numbers",
        ),
    ),
    Mutant(
        "erasure-of-another",
        "the erasure of one condition is finished by the command for another",
        "onlyonce/commitlog/erasures.py",
        Replace("Erasures.begun", "condition.fingerprint(row.salt) != row.fingerprint", "not row.fingerprint"),
        tests=(
            "tests/contract/operate/test_forget.py::test_a_kill_at_any_step_is_finished_by_the_same_command[forget-after-begin]",
        ),
    ),
    Mutant(
        "missing-units",
        "a batch ends without all its units",
        "onlyonce/commitlog/units.py",
        Never("expect", "found != set(range(partitions))"),
        tests=(BATCHES + "test_receive_does_not_end_without_its_units_or_its_records",),
    ),
    Mutant(
        "deliverer-unfenced",
        "a deliverer that was overtaken goes on",
        "onlyonce/commitlog/outbox.py",
        Delete("OutboxRows.begin", "Incarnations(self.connection).check_epoch(deliverer.name, deliverer.epoch)"),
        Delete("OutboxRows.record", "Incarnations(self.connection).check_epoch(deliverer.name, deliverer.epoch)"),
        tests=(DELIVER + "test_a_deliverer_that_lost_its_lock_stops_at_its_next_statement",),
    ),
    Mutant(
        "streamed-rows-inserted",
        "rows that a write stream of BigQuery may have are sent by insert ids",
        "onlyonce/commitlog/outbox.py",
        Never("OutboxRows.take_over", "_is_stream(name)"),
        tests=(STREAMS + "test_units_in_a_lost_write_stream_are_not_inserted",),
    ),
    Mutant(
        "units-topic-of-now",
        "a Kafka unit is looked for in the units topic that is declared now, not in the one of its attempt",
        "onlyonce/commitlog/outbox.py",
        Never("OutboxUnits.take_over", "not _is_stream(name) and name != units_topic"),
        tests=(KAFKA + "test_another_units_topic_waits_for_a_begun_unit",),
    ),
    Mutant(
        "one-authority-asked",
        "a new incarnation and a changed declaration ask the platform's log alone for units",
        "onlyonce/commitlog/units.py",
        Replace("Authorities.units_elsewhere", "self.look(driver.incarnation, batch_id)", "[]"),
        tests=(
            AUTHORITIES + "test_a_new_incarnation_is_refused_while_the_sinks_database_alone_has_units_of_the_batch",
            AUTHORITIES + "test_a_changed_declaration_does_not_begin_a_batch_anew_that_has_units_in_the_sinks_database",
        ),
    ),
    Mutant(
        "one-authority-fenced",
        "an epoch is raised in the platform's database alone",
        "onlyonce/commitlog/units.py",
        Replace("Authorities.fence", "self.remembered([driver.incarnation])", "[]"),
        tests=(
            AUTHORITIES + "test_a_zombie_before_its_commit_in_the_sinks_database_is_ended_before_anything_is_decided",
            AUTHORITIES + "test_a_backfill_that_is_done_again_fences_where_its_last_attempt_may_write",
        ),
    ),
    Mutant(
        "owner-not-asked",
        "a sink's own database lets two platforms write under one name",
        "onlyonce/commitlog/units.py",
        Replace(
            "Authorities._tell",
            'str(ask(self.connection, "authorities", "owner", incarnation=driver.incarnation)[0].platform) != str(ours)',
            'str(ask(self.connection, "authorities", "owner", incarnation=driver.incarnation)[0].platform) == ""',
        ),
        tests=(
            AUTHORITIES + "test_two_platforms_with_one_database_for_their_sinks_do_not_take_each_other_for_themselves",
        ),
    ),
    Mutant(
        "remembered-too-late",
        "the log learns of a sink's own database after its first epoch is told there",
        "onlyonce/commitlog/units.py",
        Replace("adopt_authority", "run(platform, remember)", "Authorities(platform).identity()"),
        Replace(
            "adopt_authority",
            "Authorities(there)._tell(driver, authority, ours)",
            """
            Authorities(there)._tell(driver, authority, ours)
            run(platform, remember)
        """,
        ),
        tests=(AUTHORITIES + "test_a_database_is_remembered_before_an_epoch_is_told_there",),
    ),
    Mutant(
        "folded-by-the-hour",
        "late rows of a session ask for the start of their hour, not for where in it they are",
        "onlyonce/commitlog/backfills.py",
        Always("Backfills.late_windows", "row.late_from is None"),
        tests=(
            "tests/contract/commitlog/test_backfills.py::test_late_rows_of_sessions_are_folded_by_a_backfill_that_holds_them_all",
        ),
    ),
    Mutant(
        "late-sessions-by-their-first",
        "late records of sessions inside an interval are left out if the first one of their hour is not in it",
        "onlyonce/outputs/events.py",
        Never("late_spans", "within is not None and isinstance(root.window, Session)"),
        tests=(
            "tests/contract/commitlog/test_backfills.py::test_late_records_of_sessions_are_taken_inside_of_an_interval",
        ),
    ),
    Mutant(
        "new-at-each-search",
        "a new source that never sends is never idle if no other source sends either",
        "onlyonce/receive/loop.py",
        Never("looked_idle", "any(idle_after[name] for name in progress.of.keys() - known.of.keys())"),
        tests=("tests/contract/commitlog/test_batches.py::test_new_source_that_never_sends_falls_idle",),
    ),
    Mutant(
        "idle-in-a-begun-batch",
        "a watermark marker for an idle source comes before a batch of receive that a killed driver has begun",
        "onlyonce/commitlog/batches.py",
        Never("Batches.standing", "begun != committed"),
        tests=(
            "tests/contract/commitlog/test_batches.py::test_no_source_is_found_idle_while_a_batch_of_receive_is_begun",
        ),
    ),
    Mutant(
        "begun-backfill-in-the-way",
        "a backfill that ended before it wrote anything keeps others from its windows",
        "sql/statements/backfills.sql",
        ReplaceSql("under_way", "(driver.at_work OR b.windows IS NOT NULL) AND b.instance", "b.instance"),
        tests=(
            "tests/contract/commitlog/test_backfills.py::test_two_that_turn_out_to_need_the_windows_of_each_other_do_not_wait_for_each_other_for_ever",
        ),
    ),
    Mutant(
        "next-attempt-unsettled",
        "the next attempt at a backfill that may have written lets others have its windows",
        "onlyonce/commitlog/backfills.py",
        Replace("Backfills.begin", "0 if left else None", "None"),
        tests=("tests/contract/commitlog/test_backfills.py::test_an_attempt_at_what_was_settled_keeps_its_windows",),
    ),
    Mutant(
        "wide-backfill-begins-narrow",
        "two backfills of neighbouring windows of a join begin, and each is in the other's way",
        "onlyonce/commitlog/backfills.py",
        Replace("Backfills.begin", "wide or request.span", "request.span"),
        tests=("tests/contract/commitlog/test_backfills.py::test_a_wide_one_is_alone_from_its_begin",),
    ),
    Mutant(
        "older-backfill-replaces-a-newer-one",
        "a backfill that has read less of events replaces the windows of a committed one that has read more",
        "onlyonce/commitlog/backfills.py",
        Never("Backfills._refuse_older", "version > events_version"),
        tests=(
            "tests/contract/commitlog/test_backfills.py::test_a_backfill_that_has_read_less_replaces_no_window_of_one_that_has_read_more",
        ),
    ),
    Mutant(
        "late-pane-each-time",
        "late records change their window at the end of each run, whatever trigger is declared",
        "onlyonce/commitlog/backfills.py",
        Never(
            "Backfills.late_windows",
            "not row.begun and not is_due(trigger, Held(row.late, since), to_micros(row.now) or since)",
        ),
        tests=(
            "tests/contract/commitlog/test_backfills.py::test_late_windows_are_due_as_a_list_of_waiting_records_says[0]",
        ),
    ),
    Mutant(
        "late-pane-half-written",
        "a window that a killed run has begun to compute again with its late records waits for its trigger",
        "onlyonce/commitlog/backfills.py",
        Replace(
            "Backfills.late_windows",
            "not row.begun and not is_due(trigger, Held(row.late, since), to_micros(row.now) or since)",
            "not is_due(trigger, Held(row.late, since), to_micros(row.now) or since)",
        ),
        tests=(
            "tests/contract/commitlog/test_backfills.py::test_late_windows_are_due_as_a_list_of_waiting_records_says[0]",
        ),
    ),
    Mutant(
        "rejections-of-before-stay",
        "a backfill leaves what was rejected of its windows before",
        "onlyonce/commitlog/removals.py",
        Delete(
            "Rejections.replace",
            'do(self.connection, "rejected", "forget_windows", instance=instance, output=output, window_from=start, '
            "window_to=stop)",
        ),
        tests=(REJECTIONS + "test_a_backfill_puts_its_rejections_in_the_place_of_those_of_its_windows",),
    ),
    Mutant(
        "progress-of-nobody",
        "a replay of a batch of one of several sources does not see how far they had come",
        "onlyonce/commitlog/incarnations.py",
        Replace(
            "source_batch_of_row",
            "Progress.read(row.source_progress)",
            "Progress({}).declared([row.source_to[SOURCE]], 0)",
        ),
        tests=(TURNS + "test_the_log_is_as_far_as_the_least_source_and_a_replay_sees_what_its_batch_saw",),
    ),
    Mutant(
        "values-19-clock-ahead",
        "a driver's clock may be ahead of PostgreSQL's by any time",
        "onlyonce/commitlog/drivers.py",
        Replace(
            "DriverClock.check",
            "theirs < before - MOST_SECONDS or theirs > after + MOST_SECONDS",
            "theirs > after + MOST_SECONDS",
        ),
        tests=("tests/contract/commitlog/test_driver_clock.py::test_a_clock_far_from_the_databases_is_refused[310.0]",),
    ),
    Mutant(
        "values-19-not-compared",
        "a run registers new input without comparing its clock",
        "onlyonce/receive/loop.py",
        Delete("register", "context.check_clock()"),
        tests=("tests/spark/sources/test_several_sources.py::test_a_run_with_a_wrong_clock_registers_nothing",),
        spark=True,
    ),
    Mutant(
        "values-19-floor-by-the-wrong-clock",
        "after a correction buckets that a wrong clock has dated decide which ids are removed",
        "onlyonce/core/gc.py",
        Always("floor", "known.newest is None or bucket <= known.newest"),
        tests=(
            "tests/contract/commitlog/test_arrivals.py::test_after_a_correction_no_id_within_the_horizon_is_forgotten[False-3]",
        ),
    ),
    Mutant(
        "values-19-removed-ids-live-again",
        "a correction lowers the floor over buckets whose ids were removed",
        "onlyonce/commitlog/sources.py",
        Always("_free", "found.free_from <= found.bucket"),
        tests=("tests/contract/commitlog/test_arrivals.py::test_ids_that_were_removed_far_ahead_refuse_a_correction",),
    ),
)
