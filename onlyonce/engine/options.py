"""The options that onlyonce adds to a Spark session.

`options`, in the last part, puts them together from the parts before it:

1. Redaction: the settings whose values Spark shows on no page and writes to no event log.
2. The team's own `spark-defaults.conf`, to which our options are added.
3. The jars of Delta, Kafka and S3, from a folder or by their coordinates.
4. The masters that are accepted, and the address of the driver.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from onlyonce import settings
from onlyonce.core.errors import Refused
from onlyonce.core.locations import Location, Url, is_s3
from onlyonce.engine import state
from onlyonce.environment import variable
from onlyonce.tables import stores

SETTING = "spark.redaction.regex"
OURS = (
    r"(?i)secret|password|token|access[._]?key|database_url"
    r"|^spark\.(yarn\.appMasterEnv|kubernetes\.driverEnv|executorEnv)\."
)
"""Every variable of a driver or an executor is hidden: a declaration may name any of them."""


def merged_redaction(theirs: str | None) -> str:
    """Return a pattern that hides what the team's own pattern hides, and what ours does."""
    return OURS if not theirs or theirs == OURS else theirs if theirs.endswith(f"|{OURS}") else f"(?:{theirs})|{OURS}"


# Reads the team's own `spark-defaults.conf`, from where spark-submit reads it. Our options are added to it.


_LOGGING = ("log4j2.properties", "log4j2.xml", "log4j2.yaml", "log4j2.json")
_BLANK = " \t\f"
_PAIR = re.compile(rf"((?:[^{_BLANK}=:\\]|\\.)+)[{_BLANK}]*[=:{_BLANK}][{_BLANK}]*(.*)")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def spark_defaults(properties_file: str | None = None) -> dict[str, str]:
    """Return the settings of a named properties file, or of spark-submit's own file; none if it does not exist."""
    if properties_file:
        return parsed(Path(properties_file).read_text())
    found = next((path for folder in _folders() if (path := folder / "spark-defaults.conf").is_file()), None)
    return parsed(found.read_text()) if found else {}


def has_logging() -> bool:
    """Return whether the team has configured what Spark logs, by a file next to its settings."""
    return any((folder / name).is_file() for folder in _folders() for name in _LOGGING)


def parsed(text: str) -> dict[str, str]:
    """Parse Java properties of Spark: a key, then white space, `=` or `:`, then the value. Pure.

    A line that ends with a backslash continues with the next one. A backslash also stands before a character of a key
    or value that would mean something else.
    """
    lines, continues = [""], False
    for line in (one.lstrip(_BLANK) for one in re.split(r"\r\n?|\n", text)):
        if not continues and line[:1] in ("", "#", "!"):
            continue
        lines[-1] += line
        continues = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        if continues:
            lines[-1] = lines[-1][:-1]
        else:
            lines.append("")
    pairs = [(_unescaped(pair[1]), _unescaped(pair[2]).strip(" \t")) for line in lines if (pair := _PAIR.match(line))]
    return {key: value for key, value in pairs if key.startswith("spark.")}


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda it: chr(int(it[1], 16)) if it[1] else _ESCAPED.get(it[2], it[2]), text)


def _folders() -> Iterator[Path]:
    """Yield the folders in which spark-submit looks, in its order. A folder that a variable names is the only one."""
    if named := variable("SPARK_CONF_DIR"):
        yield Path(named)
        return
    if home := variable("SPARK_HOME"):
        yield Path(home) / "conf"
        return
    if binary := shutil.which("spark-submit"):
        yield Path(binary).resolve().parent.parent / "conf"
    if (spec := importlib.util.find_spec("pyspark")) and spec.origin:
        yield Path(spec.origin).parent / "conf"


# Where Spark gets the jars of Delta and Kafka from: a folder, or their coordinates.
#
# A checkout has a folder that `make env` fills. An image has the folder that ONLYONCE_JARS names. Without a folder
# Spark itself fetches them once (`spark.jars.packages`), in the versions of the installed packages pyspark and
# delta-spark.


SCALA = "2.13"
SDK = "2.35.4"
"""The version of the parts of Amazon's SDK that S3A uses, as in docker/s3.xml."""
CLOUD = "4.1.2"
"""The newest existing spark-hadoop-cloud, as in docker/s3.xml. Only its writer of checkpoints is used."""
CLIENTS = {"gs": ("gcs-connector", "hadoop-gcp"), "abfss": ("hadoop-azure",)}
"""Hadoop's clients of stores for which we bring no jars: the beginnings of their file names."""
WITHOUT = (
    "software.amazon.awssdk:bundle",
    "org.apache.hadoop:hadoop-cloud-storage",
    "org.apache.hadoop:hadoop-azure",
    "org.apache.hadoop:hadoop-huaweicloud",
    "org.apache.hadoop:hadoop-client-runtime",
    "com.google.cloud.bigdataoss:gcs-connector",
    "com.squareup.okhttp3:okhttp",
    "com.squareup.okio:okio",
    "org.eclipse.jetty:jetty-util",
    "org.eclipse.jetty:jetty-util-ajax",
    "joda-time:joda-time",
    "com.fasterxml.jackson.core:jackson-databind",
    "com.fasterxml.jackson.core:jackson-annotations",
    "com.fasterxml.jackson.dataformat:jackson-dataformat-cbor",
    "org.apache.httpcomponents:httpclient",
    "org.apache.httpcomponents:httpcore",
)
"""Jars that would come with them: all of the SDK in 690 MB, every other cloud, and what pyspark has."""


def jars_of_session(folder: Path, *, s3: bool = False) -> dict[str, str]:
    """Return the settings that bring the jars to the driver and to executors.

    S3's jars come only if data is there, since each jar makes a start slower. Raise Refused for a folder without Delta.
    """
    if has_delta(folder):
        there = f"{folder}/*:{_of_s3(folder)}/*" if s3 else f"{folder}/*"
        return {"spark.driver.extraClassPath": there, "spark.executor.extraClassPath": there}
    if folder.exists() or settings.jars():
        raise _without_delta(folder)
    if s3:
        return {
            "spark.jars.packages": ",".join([*coordinates(), *coordinates_of_s3()]),
            "spark.jars.excludes": ",".join(WITHOUT),
        }
    return {"spark.jars.packages": ",".join(coordinates())}


def has_delta(folder: Path) -> bool:
    """Return whether a folder has Delta's jar."""
    return any(folder.glob("delta-spark_*.jar"))


def _without_delta(folder: Path) -> Refused:
    wanted = " and ".join(coordinates())
    if settings.jars() is None:
        return Refused(
            f"the folder of jars {folder} has no jar of Delta",
            data="nothing was started",
            hint=f"fill it: in a checkout `make env`; or remove it, and Spark fetches {wanted}",
        )
    return Refused(
        f"ONLYONCE_JARS is {folder}, "
        + ("which has no jar of Delta" if folder.is_dir() else "and there is no such folder"),
        data="nothing was started",
        hint=f"unset ONLYONCE_JARS: Spark then fetches {wanted} by itself. Or set it to a folder with these, and with "
        "the jars that they need and pyspark does not have",
    )


def refuse_without_client(at: Location, folder: Path, named: Iterable[str]) -> None:
    """Raise Refused if data is in GCS or ADLS, and neither the folder nor a setting (`named`) has the jar of Spark's
    client.
    """
    clients = CLIENTS.get(at.scheme, ()) if isinstance(at, Url) else ()
    if not clients or any(
        client in text for client in clients for text in [*named, *(jar.name for jar in folder.glob("*.jar"))]
    ):
        return
    raise Refused(
        f"the data is in {at}, and Spark has no client of such a store: there is no jar {' or '.join(clients)}",
        data="nothing was started",
        hint=f"put it and what it needs into {folder}, or name it in spark.jars.packages; "
        "docs/how-to/object-store.md says what was run there and what was not",
    )


KAFKA = "spark-sql-kafka-0-10"
"""Spark's package for Kafka: the beginning of its file's name."""
_SETTINGS_OF_JARS = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")


def refuse_without_kafka(at: str, theirs: Mapping[str, str]) -> None:
    """Raise Refused if a session started here would read no topic: no jar of Spark's package for Kafka comes to it.

    `at`: the place of the declaration that reads one, as 'file:line: '. `theirs`: the team's own settings.
    """
    named = ",".join(theirs.get(key, "") for key in _SETTINGS_OF_JARS)
    folder, by_them = jar_folder(), "delta-spark" in named
    if KAFKA in named or not (has_delta(folder) or by_them):  # without a jar of Delta Spark fetches both, or is refused
        return
    spark = find_spec("pyspark")
    folders = [folder, *([Path(spark.origin).parent / "jars"] if spark and spark.origin else [])]
    folders += [Path(one).parent for one in re.split("[,:]", named) if one.endswith(("*", "*.jar"))]
    if not any(jar for one in folders for jar in one.glob(f"{KAFKA}_*.jar")):
        raise without_kafka(at)


def without_kafka(at: str) -> Refused:
    """Return the refusal of a session without Spark's package for Kafka. `at`: as in `refuse_without_kafka`."""
    package, folder = f"org.apache.spark:{KAFKA}_{SCALA}:{metadata.version('pyspark')}", jar_folder()
    return Refused(
        f"{at}Spark lacks its package for Kafka, {KAFKA}",
        data="nothing was read or written",
        hint=f"add {package} to spark.jars.packages in spark-defaults.conf, and Spark fetches it with the jars that it "
        "needs" + (f"; or put these jars into {folder}, next to that of Delta" if has_delta(folder) else ""),
    )


def _of_s3(folder: Path) -> Path:
    beside = folder.with_name(f"{folder.name}-s3")
    if not list(beside.glob("hadoop-aws-*.jar")):
        raise Refused(
            f"the jars with which Spark reaches S3 are not in {beside}",
            data="nothing was started",
            hint="`make .venv/.made/s3` in a checkout brings them (12 MB); in an image put them next to the folder "
            "of ONLYONCE_JARS",
        )
    return beside


def coordinates() -> list[str]:
    """Return the jars in Maven's coordinates, for the installed pyspark and delta-spark. Raise Refused if one is
    missing.
    """
    try:
        spark, delta = metadata.version("pyspark"), metadata.version("delta-spark")
    except metadata.PackageNotFoundError as error:
        raise Refused(
            f"there is no folder of jars, and the package {error.name} is not installed, whose version says which "
            "ones to fetch",
            data="nothing was started",
            hint="pip install 'onlyonce-pipelines[spark]', or name a folder with the jars: ONLYONCE_JARS",
        ) from None
    minor = ".".join(spark.split(".")[:2])
    return [
        f"io.delta:delta-spark_{minor}_{SCALA}:{delta}",
        f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:{spark}",
    ]


def coordinates_of_s3() -> list[str]:
    """Return the coordinates of S3's jars, for the Hadoop that the installed pyspark brings."""
    spec = find_spec("pyspark")
    found = [*Path(spec.origin).parent.glob("jars/hadoop-client-api-*.jar")] if spec and spec.origin else []
    if not found:
        raise Refused(
            "which Hadoop the installed pyspark brings can't be told: it has no jar hadoop-client-api",
            data="nothing was started",
            hint="name a folder with the jars: ONLYONCE_JARS, and next to it one with those of S3",
        )
    hadoop = found[0].stem.rpartition("-")[2]
    parts = [f"software.amazon.awssdk:{part}:{SDK}" for part in ("s3", "s3-transfer-manager", "sts")]
    return [f"org.apache.hadoop:hadoop-aws:{hadoop}", f"org.apache.spark:spark-hadoop-cloud_{SCALA}:{CLOUD}", *parts]


# Which masters of Spark are accepted, and the address by which executors reach the driver.
#
# In deploy mode client the driver runs where it is started, so its jars, files and secrets are there. In deploy mode
# cluster they must come in an image, in an archive, or by `--py-files`.


LOOPBACK = "127.0.0.1"
TAKEN = (
    "local[N], spark://host:port, or yarn, with the driver here (deploy mode client); yarn or k8s:// with it "
    "in the cluster"
)


LOCAL = re.compile(r"local(\[(\*|[1-9]\d*)(, *[1-9]\d*)?\])?")


def refuse_master(master: str, deploy_mode: str | None = None) -> None:
    """Raise Refused, by name, for a master or a deploy mode that is not supported."""
    kind = master.partition("://")[0].partition("[")[0]
    if kind == "local" and not LOCAL.fullmatch(master):
        raise Refused(
            f"Spark has no master {master}: local takes a number of threads",
            data="nothing was started",
            hint="write local[4] for four threads, or local[*] for one for each core",
        )
    if deploy_mode == "cluster" and kind in ("yarn", "k8s"):
        return
    if (deploy_mode or "client") != "client":
        raise Refused(
            f"Spark's deploy mode {deploy_mode} is not supported with the master {master}",
            data="nothing was started",
            hint=f"a standalone cluster takes no Python driver, a local master is not a cluster. Supported: {TAKEN}",
        )
    if kind not in ("local", "spark", "yarn"):
        raise Refused(
            f"Spark's master {master} is not supported",
            data="nothing was started",
            hint="Spark Connect is not supported, and Kubernetes only with the driver in the cluster. Supported: "
            f"{TAKEN}",
        )


def driver_host(master: str) -> str | None:
    """Return the address at which executors find the driver.

    It is ONLYONCE_DRIVER_HOST if set. With a local master it is the loopback, with spark:// this machine's address on
    the way to the master. None: Spark chooses, by this machine's name.
    """
    if named := settings.spark().driver_host:
        return named
    if master.startswith("local"):
        return LOOPBACK
    found = re.match(r"spark://(\[[^]]+\]|[^:,/]+):(\d+)", master)
    return _on_the_way_to(found[1].strip("[]"), int(found[2])) if found else None


def _on_the_way_to(host: str, port: int) -> str | None:
    try:
        [(family, kind, _, _, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        with socket.socket(family, kind) as way:
            way.connect(address)  # a datagram socket: nothing is sent
            return str(way.getsockname()[0])
    except OSError:
        return None  # the master's name is not known here: Spark reports that itself


# The options that every Spark session of ours adds to the team's own settings.
#
# The JVM needs most of them before it starts, so `spark-submit` gets them as --conf.


PACKAGE = Path(__file__)
JAVA = "spark.driver.extraJavaOptions"
_CATALOG = "spark.sql.catalog.spark_catalog"
COLUMNAR_INPUT = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"
_ALWAYS = frozenset({"spark.sql.session.timeZone", "spark.sql.parquet.outputTimestampType", COLUMNAR_INPUT, SETTING})
"""Options that the team's settings don't override. Time zone and type decide what is written, in our own session only.
The redaction includes the team's own. With columnar input a Python function hangs (`_ours`).
"""
_MERGED = {
    "spark.sql.extensions": ",",
    "spark.jars.packages": ",",
    "spark.driver.extraClassPath": ":",
    "spark.executor.extraClassPath": ":",
    JAVA: " ",
}
QUIETLY = "-Xlog:cds=off -Xlog:cds+dynamic=off"
END_WITHOUT_MEMORY = "-XX:+ExitOnOutOfMemoryError"
"""A JVM without memory ends immediately, like a killed one. Otherwise Spark's own threads end one by one, and the
driver gets errors that don't mention memory.
"""
LOGGING = "-Dlog4j2.configurationFile="
"""Log4j's own name for its configuration file."""


def options(master: str, theirs: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what is added to a session's own settings (`theirs`), for spark-submit's --conf or a session made here.

    Raise Refused for a master or folder of jars that can't work.

    Nothing of theirs is replaced, except settings that decide which rows are written (`_ALWAYS`). Class path and
    extensions are merged.
    """
    theirs = theirs or {}
    # Kubernetes starts a driver in its pod as one in client mode; this setting says that it is in the cluster.
    in_pod = theirs.get("spark.kubernetes.submitInDriver") == "true"
    mode = "cluster" if in_pod else theirs.get("spark.submit.deployMode", "client")
    refuse_master(master, mode)
    return added(_ours(master, mode, theirs) | _jars(theirs), theirs)


def jar_folder() -> Path:
    """Return the folder of the jars of Delta, Kafka and S3. It may not exist."""
    return settings.jars() or Path(sys.prefix) / "jars"


def classes() -> Path:
    """Return the archive of Spark's classes that the JVM maps (`onlyonce.engine.class_archive`).

    Without the file, or with the file of another JVM or class path, the JVM loads the classes.
    """
    return jar_folder() / ("spark-s3.jsa" if is_s3(settings.data_root()) else "spark.jsa")


def added(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, str]:
    """Return our options without those that the team has set, and with those that are merged.

    Raise Refused for a catalog that has no Delta tables. Pure.
    """
    found = {key: value for key, value in ours.items() if key in _ALWAYS or key not in theirs}
    for key, between in _MERGED.items():
        if key in ours and key in theirs:
            parts = [part for part in theirs[key].split(between) if part]
            found[key] = between.join(dict.fromkeys([*parts, *ours[key].split(between)]))
    catalog = theirs.get(_CATALOG, ours.get(_CATALOG))
    if catalog != ours.get(_CATALOG):
        raise Refused(
            f"{_CATALOG} is {catalog}",
            data="nothing was started",
            hint="the platform's tables are Delta's and need Delta's catalog; give the other one a name of its own",
        )
    return {key: value for key, value in found.items() if theirs.get(key) != value}


def _ours(master: str, mode: str, theirs: Mapping[str, str]) -> dict[str, str]:
    found = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        _CATALOG: "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        SETTING: merged_redaction(theirs.get(SETTING)),
        # As in Delta's log and pyarrow. Spark's own default is older, and has no statistics of smallest and largest
        # values.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        # Spark 4.2.0 has it on, and then a Python function that reads a Parquet file's columns waits for ever for bytes
        # that Spark has sent in another place (SPARK-58241, fixed after 4.2.0).
        COLUMNAR_INPUT: "false",
        # A row may be a block of a few thousand records.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(1 << 26),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        # Otherwise each expression of a plan sends its line to the JVM: twice as many calls, in each batch.
        "spark.python.sql.dataFrameDebugging.enabled": str(settings.spark().spark_lines).lower(),
        **state.options(master, theirs),
        **stores.options_of_spark(settings.data_root()),
        **_said(),
    }
    if not master.startswith("local") and not _has_said_what_is_logged(theirs):
        found.setdefault("spark.log.level", "ERROR")  # otherwise the task's log has the progress of each batch
    if mode == "cluster":
        return found | ({"spark.yarn.maxAppAttempts": "1"} if master.startswith("yarn") else {})
    # With its scheme: a path without one is in the cluster's default file system.
    found["spark.sql.warehouse.dir"] = (settings.home() / "spark-warehouse").as_uri()
    if host := driver_host(master):
        found["spark.driver.host"] = host
    return {**_of_local(theirs), **found} if master.startswith("local") else found


def _of_local(theirs: Mapping[str, str]) -> dict[str, str]:
    """Return the options for a single machine. A cluster has its own."""
    found = {
        "spark.driver.bindAddress": "127.0.0.1",
        # The driver's port deserialises what it receives. With a local master Spark generates the secret itself.
        "spark.authenticate": "true",
        "spark.driver.memory": "2g",
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    from onlyonce import configuration  # imports pydantic, which executors do without

    if configuration.others_may_write(Path.cwd()):
        found["spark.executorEnv.PYTHONSAFEPATH"] = "1"  # Spark starts its workers by `python -m`, in this folder
    java = [END_WITHOUT_MEMORY, *([f"-XX:SharedArchiveFile={classes()} {QUIETLY}"] if classes().exists() else [])]
    if not _has_said_what_is_logged(theirs):
        if PACKAGE.is_file():
            java.append(LOGGING + PACKAGE.with_name("log4j2.properties").as_uri())
        else:
            found["spark.log.level"] = "ERROR"
    if PACKAGE.is_file():  # otherwise a task brings the package as a zip, which Spark's daemon does not have
        found["spark.python.daemon.module"] = "onlyonce.engine.worker_daemon"
    return found | {JAVA: " ".join(java)}


def _has_said_what_is_logged(theirs: Mapping[str, str]) -> bool:
    """Return whether the team has a configuration of log4j."""
    return "log4j" in theirs.get(JAVA, "") or has_logging()


def _jars(theirs: Mapping[str, str]) -> dict[str, str]:
    folder = jar_folder()
    named = [theirs.get(key, "") for key in ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")]
    refuse_without_client(settings.data_root(), folder, named)
    if any("delta-spark" in jars for jars in named) and not has_delta(folder):
        return {}
    return jars_of_session(folder, s3=is_s3(settings.data_root()))


def _said() -> dict[str, str]:
    """Return the options that the user has set by a variable of ours. They hold for each master."""
    asked = settings.spark()
    found = {
        "spark.driver.memory": asked.driver_memory,
        "spark.executor.memory": asked.executor_memory,
        "spark.sql.shuffle.partitions": asked.shuffle_partitions,
        "spark.ui.enabled": asked.spark_ui,
        "spark.log.level": asked.spark_log,
    }
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in found.items()
        if value is not None
    }


def with_retries(master: str) -> str:
    """Return the master with task retries: `local[N]` fails at the first failed task, `local[N,4]` retries as a cluster
    does. A master that `refuse_master` refuses stays as it was written.
    """
    if "," in master or not LOCAL.fullmatch(master):
        return master
    return "local[1,4]" if master == "local" else master[:-1] + ",4]"
