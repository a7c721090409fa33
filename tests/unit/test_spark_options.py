"""The settings of a session, without Spark."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest

from onlyonce.core.errors import Refused
from onlyonce.engine import options as spark_options
from onlyonce.engine import state
from onlyonce.engine.options import refuse_master, spark_defaults, with_retries

DAEMON = "spark.python.daemon.module"
JAVA = "spark.driver.extraJavaOptions"


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of jars as `make env` leaves it."""
    (tmp_path / "delta-spark_4.2_2.13-4.4.0.jar").touch()
    monkeypatch.setenv("ONLYONCE_JARS", str(tmp_path))
    return tmp_path


def test_without_a_folder_the_jars_come_by_the_coordinates_of_the_installed_packages(
    jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is there and has none is another thing: somebody forgot them."""
    spark, delta = version("pyspark"), version("delta-spark")
    by_folder = spark_options.options("local[2]")
    monkeypatch.delenv("ONLYONCE_JARS")
    monkeypatch.setattr(spark_options, "jar_folder", lambda: jars / "none")
    by_name = spark_options.options("local[2]")
    (jars / "empty").mkdir()
    monkeypatch.setattr(spark_options, "jar_folder", lambda: jars / "empty")

    assert (by_folder["spark.driver.extraClassPath"], "spark.jars.packages" in by_folder) == (f"{jars}/*", False)
    assert by_name["spark.jars.packages"].split(",") == [
        f"io.delta:delta-spark_{spark[:3]}_2.13:{delta}", f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark}"
    ]  # fmt: skip
    assert "spark.driver.extraClassPath" not in by_name
    with pytest.raises(Refused, match=r"the folder of jars .*/empty has no jar of Delta"):
        spark_options.options("local[2]")


KAFKA_JAR = "spark-sql-kafka-0-10_2.13-4.2.0.jar"
BRINGS_KAFKA = {
    "a package": {"spark.jars.packages": "a:b:1,org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"},
    "a jar": {"spark.jars": f"/theirs/{KAFKA_JAR}"},
    "a folder on the class path": {"spark.driver.extraClassPath": "/x/a.jar:JARS/theirs/*"},
    "jars by a pattern": {"spark.jars": "JARS/theirs/*.jar"},
}


@pytest.mark.parametrize("theirs", BRINGS_KAFKA.values(), ids=BRINGS_KAFKA)
def test_package_for_kafka_may_come_by_a_setting_of_the_team(jars: Path, theirs: dict[str, str]) -> None:
    (jars / "theirs").mkdir()
    (jars / "theirs" / KAFKA_JAR).touch()

    spark_options.refuse_without_kafka("", {key: value.replace("JARS", str(jars)) for key, value in theirs.items()})


def test_session_without_the_package_for_kafka_is_refused(jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its coordinates. If Spark fetches the jars itself it fetches that of Kafka too."""
    for theirs in ({}, {"spark.jars.packages": "io.delta:delta-spark_4.2_2.13:4.4.0"}):
        with pytest.raises(Refused, match=r"^p.py:3: Spark lacks its package for Kafka") as refused:
            spark_options.refuse_without_kafka("p.py:3: ", theirs)
        assert f"add org.apache.spark:spark-sql-kafka-0-10_2.13:{version('pyspark')} to" in refused.value.hint
        assert f"or put these jars into {jars}," in refused.value.hint
    (jars / KAFKA_JAR).touch()
    spark_options.refuse_without_kafka("", {})
    monkeypatch.setenv("ONLYONCE_JARS", str(jars / "none"))
    spark_options.refuse_without_kafka("", {})


@pytest.mark.parametrize(
    ("folder", "what"), [(".", ", which has no jar of Delta"), ("none", ", and there is no such folder")]
)
def test_a_named_folder_without_delta_is_refused_with_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, what: str
) -> None:
    """And with the coordinates of what must be in it."""
    monkeypatch.setenv("ONLYONCE_JARS", str(tmp_path / folder))

    with pytest.raises(Refused) as refused:
        spark_options.options("local[2]")

    assert refused.value.what == f"ONLYONCE_JARS is {(tmp_path / folder).resolve()}{what}"
    assert refused.value.hint.startswith("unset ONLYONCE_JARS: Spark then fetches io.delta:delta-spark_")


@pytest.mark.parametrize(("master", "there", "used"), [
    ("local[2]", True, True), ("local[2]", False, False), ("spark://host:7077", True, False),
])  # fmt: skip
def test_the_archive_of_classes_is_used_by_a_local_master_that_has_one(
    jars: Path, master: str, there: bool, used: bool
) -> None:
    """Another machine's driver may have another JVM, and one without the file starts as ever."""
    if there:
        (jars / "spark.jsa").touch()

    assert ("SharedArchiveFile" in spark_options.options(master).get(JAVA, "")) is used


def test_data_in_s3_has_an_archive_of_its_own(jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM ignores the archive of another class path, and S3's jars are on it there alone."""
    (jars / "spark.jsa").touch()
    beside = jars.with_name(f"{jars.name}-s3")
    beside.mkdir()
    (beside / "hadoop-aws-3.4.1.jar").touch()
    monkeypatch.setenv("ONLYONCE_DATA", "s3://bucket/lake")
    assert "SharedArchiveFile" not in spark_options.options("local[2]")[JAVA]
    (jars / "spark-s3.jsa").touch()
    assert f"SharedArchiveFile={jars / 'spark-s3.jsa'} " in spark_options.options("local[2]")[JAVA]


@pytest.mark.parametrize("master", ["k8s://https://host:6443", "sc://host:15002", "mesos://host:5050", "yarn-cluster"])
def test_a_master_that_cannot_work_is_refused_by_its_name(jars: Path, master: str) -> None:
    """Before a JVM is started, with those that are taken."""
    with pytest.raises(Refused, match=master) as refused:
        spark_options.options(master)

    assert "spark://host:port" in refused.value.hint


@pytest.mark.parametrize("master", ["local[abc]", "local[0]", "local[", "local4"])
def test_local_master_without_a_number_is_refused(master: str) -> None:
    """Spark would say so by an error of its JVM. It is named as it was written, without our retries."""
    with pytest.raises(Refused, match=rf"master {re.escape(master)}(:| is) "):
        refuse_master(with_retries(master))
    for right in ("local", "local[*]", "local[2]", "local[2,4]", "local[*, 4]"):
        refuse_master(right)


@pytest.mark.parametrize("master", ["local", "local[4]", "spark://127.0.0.1:7077"])
def test_a_driver_in_the_cluster_is_refused_where_there_is_none(jars: Path, master: str) -> None:
    """A standalone master takes no Python driver; YARN and Kubernetes do."""
    spark_options.options(master)
    refuse_master(master, "client")
    refuse_master("yarn", "cluster")
    refuse_master("k8s://https://host:6443", "cluster")
    with pytest.raises(Refused, match="deploy mode cluster"):
        refuse_master(master, "cluster")


THEIRS = {
    "spark.driver.extraClassPath": "/opt/theirs/*",
    "spark.sql.extensions": "org.apache.iceberg.Extensions",
    "spark.driver.memory": "12g",
    "spark.sql.shuffle.partitions": "400",
    "spark.ui.enabled": "true",
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "Europe/Berlin",
}


def test_a_teams_settings_are_added_to_and_never_replaced(jars: Path) -> None:
    """Class path and extensions are both's; the time zone alone is ours, since it decides which rows are written."""
    found = spark_options.options("local[2]", THEIRS)

    assert not {"spark.driver.memory", "spark.sql.shuffle.partitions", "spark.ui.enabled", "spark.log.level"} & set(
        found
    )
    assert found["spark.driver.extraClassPath"] == f"/opt/theirs/*:{jars}/*"
    assert found["spark.sql.extensions"] == "org.apache.iceberg.Extensions,io.delta.sql.DeltaSparkSessionExtension"
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert spark_options.options("local[2]", THEIRS | found) == {}, "what is added once is not added again"


def test_a_cluster_keeps_its_own_sizes(jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The defaults for one machine are not for it; what somebody says by a variable of ours is."""
    monkeypatch.delenv("ONLYONCE_SHUFFLE_PARTITIONS", raising=False)
    of_one_machine = {"spark.driver.memory", "spark.sql.shuffle.partitions", "spark.ui.enabled", JAVA}
    for variable in ("ONLYONCE_DRIVER_MEMORY", "ONLYONCE_SPARK_UI", "ONLYONCE_SPARK_LOG"):
        monkeypatch.delenv(variable, raising=False)

    assert of_one_machine <= set(spark_options.options("local[2]"))
    assert not of_one_machine & set(spark_options.options("yarn"))
    monkeypatch.setenv("ONLYONCE_DRIVER_MEMORY", "3g")
    assert spark_options.options("yarn")["spark.driver.memory"] == "3g"


@pytest.mark.parametrize(("theirs", "cores"), [
    ({}, None), ({"spark.executor.instances": "4"}, 4), ({"spark.executor.instances": "4", "spark.executor.cores": "3"}, 12),
    ({"spark.cores.max": "16", "spark.executor.cores": "4"}, 16),
    ({"spark.dynamicAllocation.enabled": "true", "spark.executor.instances": "1"}, None),
    ({"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.maxExecutors": "10", "spark.executor.cores": "2"}, 20),
])  # fmt: skip
def test_state_has_as_many_partitions_as_the_cluster_is_asked_for_cores(
    jars: Path, monkeypatch: pytest.MonkeyPatch, theirs: dict[str, str], cores: int | None
) -> None:
    """Where nothing says how many Spark's own number stays; a setting of ours, or theirs, is the last word; one machine
    has two."""
    monkeypatch.delenv("ONLYONCE_SHUFFLE_PARTITIONS", raising=False)
    name = "spark.sql.shuffle.partitions"

    assert spark_options.options("yarn", theirs).get(name) == (cores and str(cores))
    assert spark_options.options("local[8]", theirs)[name] == "2"
    assert name not in spark_options.options("yarn", {**theirs, name: "7"})
    monkeypatch.setenv("ONLYONCE_SHUFFLE_PARTITIONS", "5")
    assert spark_options.options("yarn", theirs)[name] == "5"


@pytest.mark.parametrize(("master", "said", "unsaid"), [
    ("local[2]", None, False), ("yarn", None, True), ("spark://host:7077", None, True), ("spark://host:7077", "2", False),
])  # fmt: skip
def test_a_state_does_not_begin_on_a_cluster_in_a_number_that_nobody_has_said(
    master: str, said: str | None, unsaid: bool
) -> None:
    """Spark's own, 200, would be each batch's cost for the incarnation of the output."""
    assert state.is_unsaid(master, said) is unsaid
    assert "ONLYONCE_SHUFFLE_PARTITIONS" in state.unsaid("shop/per_shop").hint


@pytest.mark.parametrize(("master", "told", "attempts"), [
    ("yarn", {"spark.submit.deployMode": "cluster"}, "1"),
    ("yarn", {"spark.submit.deployMode": "cluster", "spark.yarn.maxAppAttempts": "3"}, None),
    ("k8s://https://host:6443", {"spark.submit.deployMode": "cluster"}, None),
    ("k8s://https://host:6443", {"spark.submit.deployMode": "client", "spark.kubernetes.submitInDriver": "true"}, None),
])  # fmt: skip
def test_a_driver_in_the_cluster_is_started_by_its_task_alone_and_has_nothing_of_the_machine_that_submits(
    jars: Path, master: str, told: dict[str, str], attempts: str | None
) -> None:
    """YARN would start one again that was refused, or superseded, beside the one that has superseded it.

    Kubernetes starts it in its pod as in client mode.
    """
    found = spark_options.options(master, told)

    assert found.get("spark.yarn.maxAppAttempts") == attempts
    assert not {"spark.driver.host", "spark.sql.warehouse.dir"} & set(found)
    assert spark_options.options("yarn")["spark.sql.warehouse.dir"].startswith("file:///")


def test_workers_begin_with_their_libraries_where_the_package_is_on_this_machine(
    jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not on a cluster, nor where tasks bring the package along as a zip: there Spark's daemon would not find ours."""
    assert spark_options.options("local[2]")[DAEMON] == "onlyonce.engine.worker_daemon"
    assert DAEMON not in spark_options.options("spark://host:7077")
    monkeypatch.setattr(spark_options, "PACKAGE", jars / "onlyonce.whl" / "onlyonce" / "engine" / "options.py")
    assert DAEMON not in spark_options.options("local[2]")


def test_what_spark_logs_is_errors_unless_the_team_has_said_it(
    jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a file of ours on one machine, by its level on a cluster; a team's file, or its option, is the only word."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))

    ours = spark_options.options("local[2]")
    assert "log4j2.configurationFile=file:" in ours[JAVA]
    assert "spark.log.level" not in ours
    theirs = {JAVA: "-Dlog4j2.configurationFile=file:/etc/ours.xml"}
    assert "onlyonce" not in spark_options.options("local[2]", theirs)[JAVA]
    on_cluster = spark_options.options("spark://host:7077")
    assert JAVA not in on_cluster
    assert on_cluster["spark.log.level"] == "ERROR"
    assert "spark.log.level" not in spark_options.options("spark://host:7077", theirs)
    (tmp_path / "log4j2.properties").touch()
    by_their_file = spark_options.options("local[2]")
    assert by_their_file[JAVA] == spark_options.END_WITHOUT_MEMORY
    assert "spark.log.level" not in by_their_file
    assert "spark.log.level" not in spark_options.options("local[2]", theirs)


@pytest.mark.parametrize("theirs", [None, "(?i)iban|card", "iban|(card|iban)"])
def test_variables_are_redacted_with_what_the_team_redacts(jars: Path, theirs: str | None) -> None:
    """A team's own pattern counts too, and is merged once however often ours is added."""
    given = {spark_options.SETTING: theirs} if theirs else {}

    pattern = spark_options.options("yarn", given)[spark_options.SETTING]

    hidden = [f"spark.{kind}.SHOP_DSN" for kind in ("yarn.appMasterEnv", "kubernetes.driverEnv", "executorEnv")]
    # Java takes a flag within a pattern, from there on.
    found = re.compile(pattern.replace("(?i)", ""), re.IGNORECASE)
    assert all(found.search(name) for name in [*hidden, "spark.authenticate.secret"])
    assert bool(found.search("spark.card")) is (theirs is not None)
    assert not found.search("spark.sql.shuffle.partitions")
    assert spark_options.merged_redaction(pattern) == pattern


def test_a_catalog_without_delta_is_refused(jars: Path) -> None:
    """The platform's tables could not be read by it."""
    with pytest.raises(Refused, match="SparkSessionCatalog"):
        spark_options.options(
            "yarn", {"spark.sql.catalog.spark_catalog": "org.apache.iceberg.spark.SparkSessionCatalog"}
        )


def test_their_defaults_are_read_where_spark_submit_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Java's properties; a file that is named stands in the place of it."""
    text = "# theirs\nspark.driver.memory  12g\nspark.ui.enabled=true\n\nspark.sql.extensions: a.B,c.D \nother 1\n"
    (tmp_path / "spark-defaults.conf").write_text(text)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "named.conf").write_text("spark.log.level WARN\n")

    assert spark_defaults() == {
        "spark.driver.memory": "12g", "spark.ui.enabled": "true", "spark.sql.extensions": "a.B,c.D"
    }  # fmt: skip
    assert spark_defaults(str(tmp_path / "named.conf")) == {"spark.log.level": "WARN"}


PROPERTIES = {
    "continued": ("spark.a -Da=b \\\n   -Dc=d\nspark.b 1\n", {"spark.a": "-Da=b -Dc=d", "spark.b": "1"}),
    "a comment does not continue": ("# a \\\nspark.b 1\n", {"spark.b": "1"}),
    "a sign of a comment in a continued line": ("spark.a x,\\\n#y\n", {"spark.a": "x,#y"}),
    "two backslashes are one": ("spark.a x\\\\\nspark.b 1\n", {"spark.a": "x\\", "spark.b": "1"}),
    "escapes": ("spark.a C\\:\\\\x\\u00e9\\ty\n", {"spark.a": "C:\\xé\ty"}),
    "an escape in a key": ("spark.a\\:b = c\n", {"spark.a:b": "c"}),
    "lines of Windows": ("spark.a 1\r\nspark.b 2\r\n", {"spark.a": "1", "spark.b": "2"}),
    "nothing after the last backslash": ("spark.a 1\\", {"spark.a": "1"}),
}


@pytest.mark.parametrize("case", PROPERTIES)
def test_properties_mean_what_they_mean_to_java(case: str) -> None:
    text, meant = PROPERTIES[case]

    assert spark_options.parsed(text) == meant


@pytest.mark.parametrize(("master", "host"), [
    ("local[2]", "127.0.0.1"), ("spark://127.0.0.1:7077", "127.0.0.1"), ("spark://127.0.0.2:7077,other:7077", None),
    ("spark://no-such-host.invalid:7077", None), ("yarn", None),
])  # fmt: skip
def test_the_drivers_address_is_one_that_its_executors_reach(
    jars: Path, monkeypatch: pytest.MonkeyPatch, master: str, host: str | None
) -> None:
    """The loopback for nobody but a local master, and one there; else on the way to the master, or Spark's own
    choice."""
    monkeypatch.delenv("ONLYONCE_DRIVER_HOST", raising=False)
    chosen = spark_options.options(master).get("spark.driver.host")
    assert chosen == host or (master.startswith("spark://127.0.0.2") and chosen in ("127.0.0.1", "127.0.0.2"))
    monkeypatch.setenv("ONLYONCE_DRIVER_HOST", "by-name")
    assert spark_options.options(master)["spark.driver.host"] == "by-name"


@pytest.mark.parametrize("theirs", [{}, {spark_options.COLUMNAR_INPUT: "true"}])
def test_python_functions_get_no_columnar_input(jars: Path, theirs: dict[str, str]) -> None:
    """With it they wait for ever on Spark 4.2.0, whoever has set it."""
    assert spark_options.options("local[2]", theirs)[spark_options.COLUMNAR_INPUT] == "false"
    assert spark_options.options("spark://host:7077", theirs)[spark_options.COLUMNAR_INPUT] == "false"
