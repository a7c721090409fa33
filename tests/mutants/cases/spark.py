"""Mutants of `onlyonce/engine` and what belongs to it."""

from __future__ import annotations

from tests.mutants.cases.paths import (
    CONTENT,
)
from tests.mutants.mutant import Mutant
from tests.mutants.operators import Delete, Never, Replace

MUTANTS = (
    Mutant(
        "plans-in-the-session",
        "a sink turns adaptive execution off in the session that others plan in",
        "onlyonce/engine/session.py",
        Replace("_planner", "session.cloneSession()", "session"),
        tests=(CONTENT + "test_a_frame_planned_once_is_the_same_and_its_session_as_it_was",),
    ),
    Mutant(
        "a-jvm-that-nobody-ends",
        "Ctrl-C while Spark starts leaves its JVM, which then lives for ever",
        "onlyonce/engine/session.py",
        Delete("_end_unconnected", "process.kill()"),
        tests=("tests/unit/session/test_interrupted_start.py::test_an_interrupted_start_leaves_no_jvm",),
    ),
    Mutant(
        "columnar-input",
        "a team's setting lets Spark send columns to Python functions, which then wait for ever",
        "onlyonce/engine/options.py",
        Replace("added", "key in _ALWAYS or key not in theirs", "key not in theirs"),
        tests=("tests/unit/test_spark_options.py::test_python_functions_get_no_columnar_input",),
    ),
    Mutant(
        "one-archive-for-all",
        "Spark is given the archive of classes of another class path, which the JVM ignores",
        "onlyonce/engine/options.py",
        Replace("classes", '"spark-s3.jsa" if is_s3(settings.data_root()) else "spark.jsa"', '"spark.jsa"'),
        tests=("tests/unit/test_spark_options.py::test_data_in_s3_has_an_archive_of_its_own",),
    ),
    Mutant(
        "folder-of-the-living",
        "the folder of a driver that is at work is deleted by the next one",
        "onlyonce/engine/temporary.py",
        Delete("sweep", "fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)"),
        tests=(
            "tests/unit/session/test_temporary.py::test_the_folder_of_a_driver_stays_for_as_long_as_it_lives_and_goes_once_it_is_killed",
        ),
    ),
    Mutant(
        "few-of-any-size",
        "rows that are read from anywhere are exchanged as one partition",
        "onlyonce/engine/session.py",
        Replace(
            "frame_of_local_rows",
            '(leaves.apply(at).nodeName() != "LocalRelation" for at in range(leaves.size()))',
            '(leaves.apply(at).nodeName() == "" for at in range(leaves.size()))',
        ),
        tests=(CONTENT + "test_rows_that_the_driver_has_given_are_exchanged_as_one_partition_and_no_others",),
    ),
    Mutant(
        "jvm-that-is-gone",
        "a driver whose JVM found no memory says that a connection was refused",
        "onlyonce/engine/failures.py",
        Replace("ended_with", "jvm_lost(error) or translate(error)", "translate(error)"),
        tests=("tests/spark/run/test_out_of_memory.py::test_a_driver_without_memory_says_which_setting_gives_it_more",),
        spark=True,
    ),
    Mutant(
        "spark-errors-unknown",
        "what Spark says of an ended application, a full heap or a lost message is an error that onlyonce does not know",
        "onlyonce/engine/failures.py",
        Replace("known_failure", "mark in text", "mark == text"),
        tests=(
            "tests/unit/session/test_failures.py::test_what_spark_says_becomes_one_of_our_errors[an application that its cluster ended]",
        ),
    ),
    Mutant(
        "spark-without-a-client",
        "data in GCS or ADLS is taken though Spark has nothing to get there",
        "onlyonce/engine/options.py",
        Replace(
            "refuse_without_client",
            "not clients or any(client in text for client in clients for text in [*named, *(jar.name for jar in "
            'folder.glob("*.jar"))])',
            "True or not clients or any(client in text for client in clients for text in [*named, *(jar.name for "
            'jar in folder.glob("*.jar"))])',
        ),
        tests=(
            "tests/unit/storage/test_store_options.py::test_a_store_that_spark_has_no_client_of_is_refused_before_it_starts[gs://lake-gcs-connector]",
        ),
    ),
    Mutant(
        "yarn-starts-drivers-too",
        "YARN starts a driver of its own in the place of one that has ended, whatever its end was",
        "onlyonce/engine/options.py",
        Replace("_ours", '"1"', '"2"'),
        tests=(
            "tests/unit/test_spark_options.py::test_a_driver_in_the_cluster_is_started_by_its_task_alone_and_has_nothing_of_the_machine_that_submits",
        ),
    ),
    Mutant(
        "refused-in-its-own-pod",
        "a driver in a pod of Kubernetes is taken for one beside the cluster",
        "onlyonce/engine/options.py",
        Never("options", 'theirs.get("spark.kubernetes.submitInDriver") == "true"'),
        tests=(
            "tests/unit/test_spark_options.py::test_a_driver_in_the_cluster_is_started_by_its_task_alone_and_has_nothing_of_the_machine_that_submits",
        ),
    ),
    Mutant(
        "state-in-200",
        "a state begins on a cluster in Spark's own number of partitions",
        "onlyonce/engine/state.py",
        Never("is_unsaid", 'not master.startswith("local") and partitions is None'),
        tests=(
            "tests/unit/test_spark_options.py::test_a_state_does_not_begin_on_a_cluster_in_a_number_that_nobody_has_said",
        ),
    ),
)
