"""Declarations: what can't work is refused when it is made, by a message that names the cause and the way out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from onlyonce.api.pipeline import (
    BigQueryStream,
    Delta,
    DeltaSource,
    Files,
    Growing,
    Iceberg,
    Kafka,
    KafkaSink,
    MySQL,
    Output,
    Pipeline,
    Postgres,
    Webhook,
    split_ddl,
    target,
    unknown,
)
from onlyonce.api.sources import Source
from onlyonce.core.durations import in_words, stored_in_words
from onlyonce.core.errors import Refused
from onlyonce.core.windows import Fixed, Session, Sliding

HOUR = Fixed(timedelta(hours=1))
# Without types, so that wrong options can be given.
delta: Any = Delta
postgres: Any = Postgres
mysql: Any = MySQL
iceberg: Any = Iceberg
files: Any = Files
bare_pipeline: Any = Pipeline
UPSERT = Delta(write="upsert", keys=("window_start", "shop"))


def output(name: str = "per_shop", **changed: Any) -> Output:
    """An output that is right but for what is changed."""
    plain: dict[str, Any] = {"name": name, "transform": "shop:per_shop", "sink": Delta(), "window": HOUR}
    return Output(**plain | changed)


def made(name: str = "total", **changed: Any) -> Output:
    """An output made from `per_shop`."""
    return output(name, window=None, **{"from_output": "per_shop"} | changed)


def pipeline(**changed: Any) -> Pipeline:
    """A pipeline that is right but for what is changed."""
    plain: dict[str, Any] = {
        "name": "shop", "source": Files(), "schema": "id string, at timestamp, cents long", "record_id": ("id",),
        "event_time": "at", "outputs": (output(),),
    }  # fmt: skip
    return Pipeline(**plain | changed)


def test_what_is_right_passes() -> None:
    """Every option at once."""
    declared = pipeline(
        source=Files(inbox="/data/in", max_files_a_batch=3),
        outputs=(
            output(watermark_delay=timedelta(hours=2), stable_input=True),
            made(sink=Postgres(table="results.total", write="upsert", keys=("window_start",), connection="URL")),
            output("now", window=Sliding(timedelta(hours=2), timedelta(hours=1)), panes="early", sink=UPSERT),
            output("visits", window=Session(timedelta(minutes=5))),
            output("raw", window=None, sink=Postgres(table="results.raw")),
            output("sums", window=None, sink=Postgres(table="results.sums", write="increment", keys=("shop",))),
        ),
        idle_after=timedelta(minutes=1),
        max_ahead=timedelta(hours=1),
        partitions=7,
    )

    assert [o.name for o in declared.roots()] == ["per_shop", "now", "visits", "raw", "sums"]
    assert [o.name for o in declared.made_from(declared.output("per_shop"))] == ["total"]


REFUSALS: dict[str, tuple[Callable[[], Any], str, str]] = {
    # what is declared, what the message says, what the hint says
    "an unknown option of a pipeline": (
        lambda: pipeline(max_ahed=1), "Pipeline: unknown option 'max_ahed'", "did you mean 'max_ahead'?"),
    "an unknown option of an output": (
        lambda: output(watermark_dely=1), "Output: unknown option 'watermark_dely'", "did you mean 'watermark_delay'?"),
    "an unknown option of Files": (
        lambda: files(max_file_a_batch=1), "Files: unknown option", "did you mean 'max_files_a_batch'?"),
    "an unknown option of Delta": (lambda: delta(key=("a",)), "Delta: unknown option 'key'", "did you mean 'keys'?"),
    "an unknown option of Postgres": (
        lambda: postgres(table="a.b", tabel="c.d"), "Postgres: unknown option 'tabel'", "did you mean 'table'?"),
    "two unknown options": (lambda: files(sep=";", compresion="gz"), "Files: unknown options 'sep', 'compresion'", "sep: did you mean 'delimiter'? compresion: "),
    "an option of another library": (lambda: files(sep=";"), "Files: unknown option 'sep'", "did you mean 'delimiter'?"),
    "Spark's mode of a sink": (lambda: postgres(mode="append"), "Postgres: unknown option 'mode'", "did you mean 'write'?"),
    "Spark's mode of an output": (lambda: output(outputMode="update"), "Output: unknown option", "did you mean 'panes'?"),
    "a primary key": (lambda: pipeline(primary_key="id"), "Pipeline: unknown option 'primary_key'", "did you mean 'record_id'?"),
    "a primary key of a sink": (lambda: delta(primary_key="id"), "Delta: unknown option", "did you mean 'keys'?"),
    "a watermark of a pipeline": (
        lambda: pipeline(watermark=1), "Pipeline: unknown option 'watermark'", "'watermark_delay' is an option of Output: give"),
    "an output's option of a pipeline": (lambda: pipeline(window=HOUR), "Pipeline: unknown option", "'window' is an option of Output: give"),
    "a comma behind the last column": (lambda: pipeline(schema="id string, at timestamp, "), "the schema has a comma too many behind 'at timestamp'", "take out that comma"),
    "a colon before a type": (lambda: pipeline(schema="id string, at: timestamp"), "column at has a colon before its type", "take out the colon: 'at timestamp'"),
    "two commas": (lambda: pipeline(schema="id string,, at timestamp"), "a comma too many behind 'id string'", "take out that comma"),
    "a bracket of digits": (lambda: pipeline(schema="id string, n decimal(10,2, at timestamp"), "column n has the type 'decimal.10,2', whose bracket is not closed", "did you mean 'decimal(10,2)'?"),
    "a bracket of a list": (lambda: pipeline(schema="id string, at timestamp, n array<int"), "column n has the type 'array<int', whose bracket is not closed", "did you mean 'array<int>'?"),
    "a bracket of a struct": (lambda: pipeline(schema="id string, at timestamp, n struct<a: int, b: string, c long"), "column n has the type 'struct<a: int, b: string', whose bracket", "did you mean 'struct<a: int, b: string>'?"),
    "a bracket too many": (lambda: pipeline(schema="id string, n array<int>>, at timestamp"), "column n has the type 'array<int>>', which has '>' once too often", "did you mean 'array<int>'?"),
    "a semicolon": (lambda: pipeline(schema="id string; at timestamp"), "column id is followed by ';'", "put ',' between the columns"),
    "two columns of the record id": (lambda: pipeline(record_id=("idat",)), "'idat' is not a declared column", "a comma is missing between 'id' and 'at'"),
    "a source's option of a sink": (lambda: KafkaSink(topic="t", servers="a:1"), "KafkaSink: unknown option 'servers'", "did you mean 'connection'? It names the environment variable"),  # type: ignore[call-arg]
    "an option of another library that is near one of ours": (lambda: Delta(partition_by="shop"), "Delta: unknown option 'partition_by'", "leave it out: rows of windows are partitioned by their date"),  # type: ignore[call-arg]
    "a dotted transform": (lambda: output(transform="shop.transforms.per_hour"), "is not of the form", "did you mean 'shop.transforms:per_hour'?"),
    "a misspelt option of another class": (lambda: pipeline(watermark_dely=1), "Pipeline: unknown option", "'watermark_delay' is an option of Output: give"),
    "keys of an output": (lambda: output(keys="id"), "Output: unknown option", "'keys' is an option of CustomSink, Delta, FileSink, Iceberg and others: give"),
    "a trigger": (lambda: pipeline(trigger=1), "Pipeline: unknown option", "leave it out: `onlyonce run`"),
    "a checkpoint": (lambda: output(checkpointLocation="a"), "Output: unknown option", "leave it out: the checkpoints are in"),
    "an unknown option like nothing": (lambda: delta(zzz=1), "Delta: unknown option 'zzz'", "choose one of: path, write, keys"),
    "a missing option": (lambda: postgres(), "Postgres lacks `table`", "add table='results.name_of_the_table'"),
    "a missing option of a pipeline": (lambda: bare_pipeline(name="shop"), "Pipeline 'shop' lacks `schema` and .*`outputs`", "add schema='id string"),
    "an unknown write": (lambda: delta(write="upset", keys=("a",)), "Delta: write='upset'", "did you mean 'upsert'?"),
    "increment into Delta": (
        lambda: delta(write="increment", keys=("a",)), "Delta: write='increment'", "choose one of: 'append', 'upsert'"),
    "an unknown write of Postgres": (lambda: postgres(table="a.b", write="add"), "Postgres: write='add'", "increment"),
    "an upsert without keys": (lambda: Delta(write="upsert"), "write='upsert' needs keys", "identify a row of the table"),
    "an increment without keys": (
        lambda: Postgres(table="a.b", write="increment"), "write='increment' needs keys", "keys=(…,)"),
    "an append with keys": (lambda: Delta(keys=("a",)), "write='append' with keys=", "leave out keys"),
    "no file a batch": (lambda: Files(max_files_a_batch=0), "at least 1", "1000"),
    "MySQL that adds up": (
        lambda: mysql(table="a", connection="C", write="increment", keys="k"), "MySQL: write='increment'", "upsert"),
    "MySQL with a database": (lambda: MySQL(table="a.b", connection="C"), "MySQL: table 'a.b'", "the URL names the database"),
    "MySQL by its URL": (lambda: MySQL(table="a", connection="mysql://u:p@h/d"), "connection is a URL", "environment variable"),
    "Postgres by its URL": (lambda: Postgres(table="a.b", connection="postgresql://u:p@h/d"), "connection is a URL", "environment variable"),
    "Kafka by its settings": (lambda: KafkaSink(topic="a", connection="h:9092"), "connection is not the name", "connection='SHOP_CONNECTION'"),
    "a token in place of its variable": (
        lambda: Webhook(url="https://h", keys="k", authorization="Bearer x"), "authorization is not the name", "SHOP_AUTHORIZATION"),
    "a secret in place of its variable": (
        lambda: Webhook(url="https://h", keys="k", secret="whsec_eA=="), "secret is not the name", "SHOP_SECRET"),
    "MySQL over our own": (lambda: MySQL(table="OnlyOnce_units", connection="C"), "platform's own tables", "another name"),
    "MySQL over a temporary table of a unit": (lambda: MySQL(table="oo_arriving", connection="C"), "platform's own tables", "another name"),
    "a schema of PostgreSQL": (lambda: postgres(table="a", schema="results"), "unknown option 'schema'", "table='schema.table'"),
    "an upsert of MySQL without keys": (lambda: MySQL(table="a", connection="C", write="upsert"), "needs keys", "keys=(…,)"),
    "an upsert of Iceberg": (lambda: iceberg(table="a.b", write="upsert", keys="k"), "write='upsert' is not possible so far", "Delta"),
    "Iceberg with keys": (lambda: Iceberg(table="a.b", keys="k"), "with keys=", "leave out keys"),
    "Iceberg without a namespace": (lambda: Iceberg(table="per_shop"), "Iceberg: table 'per_shop'", "namespace.table"),
    "Iceberg by its URL": (lambda: Iceberg(table="a.b", catalog="postgresql://u:p@h/d"), "is not a name", "its address is there"),
    "early panes into Iceberg": (lambda: output(sink=Iceberg(table="a.b"), panes="early"), "append would add up", "upsert"),
    "a write stream without a dataset": (lambda: BigQueryStream(table="t"), "BigQueryStream: table 't'", "project.dataset.table"),
    "a table without schema": (lambda: Postgres(table="total"), "'total' has no schema", "'schema.table'"),
    "a table with two dots": (lambda: Postgres(table="a.b.c"), "'a.b.c' has no schema", "'schema.table'"),
    "a table with an empty name": (lambda: Postgres(table="public. "), "an empty name in it", "'schema.table'"),
    "a table in quotes": (lambda: Postgres(table='"My"."Shop"'), "a quote", "quotes them itself: 'My.Shop'"),
    "a table in the platform's schema": (
        lambda: Postgres(table="onlyonce.mine"), "platform's own schema", "another schema"),
    "a table in the private schema": (
        lambda: Postgres(table="onlyonce_private.units"), "platform's own schema", "another schema"),
    "a name in capitals": (lambda: output("PerShop"), "output name 'PerShop'", "lower case"),
    "a name with a slash": (lambda: output("per/shop"), "output name 'per/shop'", "letters, digits, _"),
    "a name that begins with a digit": (lambda: output("1st"), "output name '1st'", "a letter first"),
    "no name": (lambda: output(""), "output name ''", "a letter first"),
    "a long name": (lambda: output("a" * 42), "output name", "at most 41"),
    "a name with a newline": (lambda: output("a\n"), "output name", "lower case"),
    "a pipeline's name with an @": (lambda: pipeline(name="shop@3"), "pipeline name 'shop@3'", "lower case"),
    "a transform without a function": (lambda: output(transform="shop"), "'shop' is not of the form 'module:function'", ""),
    "a transform that is a path": (lambda: output(transform="a/shop.py:f"), "is not of the form 'module:function'", ""),
    "a negative watermark_delay": (lambda: output(watermark_delay=timedelta(-1)), "watermark_delay .* is negative", "0 waits for nothing"),
    "a watermark delay that is a number": (lambda: output(watermark_delay=5), r"Output\(watermark_delay=5\)", "watermark_delay=timedelta("),
    "a watermark delay finer than the watermark": (
        lambda: output(watermark_delay=timedelta(microseconds=1500)), "parts of a millisecond", "round it"),
    "watermark_delay without a window": (
        lambda: output(window=None, watermark_delay=timedelta(1)), "watermark_delay without a window", "nothing is late"),
    "unknown panes": (lambda: output(panes="late"), "panes='late' is not a value", "choose one of: 'on_time', 'at_close', 'early', AfterRecords"),
    "unknown late": (lambda: output(late="drop"), "late='drop' is not a value", "choose one of: 'keep', 'backfill', AfterRecords(…), AfterTime(…), or both"),
    "early panes that are appended": (
        lambda: output(panes="early"), "early panes give the same window again", "write='upsert'"),
    "early panes that are added up": (
        lambda: output(panes="early", sink=Postgres(table="a.b", write="increment", keys=("a",))), "would add up", "upsert"),
    "early panes of sessions": (
        lambda: output(panes="early", sink=Delta(write="upsert", keys="shop"), window=Session(timedelta(1))), "early panes of sessions", "window_start"),
    "no outputs": (lambda: pipeline(outputs=()), "no outputs", "at least one Output"),
    "two columns without a comma": (
        lambda: pipeline(schema="id string, at timestampcents long"),
        "pipeline shop: a comma is missing between 'at timestamp' and 'cents long'", "put a comma behind 'at timestamp': at the end"),
    "two columns without a comma, the second nested": (
        lambda: pipeline(schema="id string, at Timestamp_NTZitems array<string>"),
        "between 'at Timestamp_NTZ' and 'items array<string>'", "put a comma behind"),
    "a type that begins as another": (lambda: pipeline(schema="id string, at datetimes"), "has the type 'datetimes'", "did you mean"),
    "an unknown mode": (
        lambda: pipeline(mode="at_least_one"), "pipeline shop: mode='at_least_one'", "did you mean 'at_least_once'?"),
    "a mode that is no word": (lambda: pipeline(mode=None), r"Pipeline\(mode=None\): must be 'exactly_once' or 'at_least_once'", "give mode as"),
    "an increment at least once": (
        lambda: pipeline(mode="at_least_once", outputs=(
            output(), output("sums", window=None, sink=Postgres(table="a.b", write="increment", keys=("shop",))))),
        "output sums increments: a batch that is written twice would be added twice", "mode='exactly_once'"),
    "two outputs of one name": (
        lambda: pipeline(outputs=(output(), output("b"), output())), "two outputs are named 'per_shop'", "rename"),
    "an output named receive": (lambda: pipeline(outputs=(output("receive"),)), "'receive' and 'marker'", "rename"),
    "an output named marker": (lambda: pipeline(outputs=(output("marker"),)), "'receive' and 'marker'", "rename"),
    "a record id that is not declared": (
        lambda: pipeline(record_id=("id", "uid")), "'uid' is not a declared column", "choose one of: id, at, cents"),
    "an event time that is not declared": (
        lambda: pipeline(event_time="time"), "event_time='time' is not a declared column", "at"),
    "a dedup horizon of places": (
        lambda: pipeline(record_id=(), dedup_horizon=timedelta(2)), "a dedup_horizon without record_id", "leave dedup_horizon"),
    "an unknown delimiter": (lambda: files(format="csv", delimiter=":"), "Files: delimiter=':'", "',', ';', '\\t', '|'"),
    "an encoding that is cut by bytes": (lambda: files(format="csv", encoding="utf-16"), "Files: encoding='utf-16'", "iconv -f NAME -t UTF-8"),
    "an encoding of JSON": (lambda: files(encoding="windows-1252"), "Files: encoding='windows-1252' is for CSV, and format is 'json'", "leave encoding out"),
    "a growing delimiter of JSON": (lambda: Growing(delimiter=";"), "Growing: delimiter=';' is for CSV, and format is 'json' .the default.", "leave delimiter out, or say format='csv'"),
    "a delimiter of JSON": (lambda: files(delimiter=";"), "Files: delimiter=';' is for CSV, and format is 'json' .the default.", "leave delimiter out, or say format='csv'"),
    "a null of JSON": (lambda: files(null="NULL"), "Files: null=.'NULL',. is for CSV, and format is 'json'", "leave null out"),
    "a null with the delimiter": (lambda: Growing(format="csv", null=("NULL", "a,b")), "Growing: null has 'a,b'", "such as null='NULL'"),
    "an empty null": (lambda: files(format="csv", null=""), "Files: null has ''", "nothing between delimiters is null without it"),
    "a null of another library": (lambda: files(nullValue="NA"), "Files: unknown option 'nullValue'", "did you mean 'null'?"),
    "an unknown format": (lambda: files(format="cvs"), "Files: format='cvs'", "did you mean 'csv'?"),
    "a header of JSON": (lambda: Files(header=True), "header=True is for CSV, and format is 'json' .the default.", "leave header out, or say format='csv'"),
    "nested columns in CSV": (
        lambda: pipeline(source=Files(format="csv"), schema="id string, at timestamp, x array<long>"),
        "CSV has no nested columns: x array<long>", "as a string"),
    "no dedup horizon": (
        lambda: pipeline(dedup_horizon=timedelta(0)), "dedup_horizon 0 seconds recognises no", "timedelta"),
    "no partitions": (lambda: pipeline(partitions=0), "partitions must be at least 1", ""),
    "the platform's prefix": (
        lambda: pipeline(schema="id string, at timestamp, oo_window long"), "oo_window: 'oo_' is the platform's prefix", ""),
    "the platform's prefix in capitals": (
        lambda: pipeline(schema="id string, at timestamp, OO_Window long"), "'oo_' is the platform's prefix", ""),
    "the platform's prefix, quoted": (
        lambda: pipeline(schema="id string, at timestamp, `oo_x` long"), "'oo_' is the platform's prefix", ""),
    "a column twice": (
        lambda: pipeline(schema="id string, at timestamp, ID long"), "'ID' is declared twice", "rename"),
    "made from an output that is not there": (
        lambda: pipeline(outputs=(output(), made(from_output="per_shp"))), "no output 'per_shp'", "did you mean 'per_shop'?"),
    "made from one that is itself made": (
        lambda: pipeline(outputs=(output(), made(), made("b", from_output="total"))), "itself made from per_shop", "that one"),
    "made from itself": (
        lambda: pipeline(outputs=(output(), made(from_output="total"))), "in a circle: total from total", "from_output out"),
    "made from early panes": (
        lambda: pipeline(outputs=(output(panes="early", sink=UPSERT), made())), "early panes change", "on_time"),
    "early panes made from others": (
        lambda: pipeline(outputs=(output(), made(panes="early", sink=UPSERT))), "early panes change", "on_time"),
    "made from sessions": (
        lambda: pipeline(outputs=(output(window=Session(timedelta(1))), made())), "closed panes", "an output of its own"),
    "made from no windows": (
        lambda: pipeline(outputs=(output(window=None), made())), "closed panes", "an output of its own"),
    "made with a watermark delay of its own": (
        lambda: pipeline(outputs=(output(), output("b", from_output="per_shop", watermark_delay=timedelta(1)))),
        "has the watermark delay of per_shop", "leave it out"),
    "neither a transform nor an output whose result it is": (
        lambda: output(transform=""), "output per_shop has no transform", "from_output names that output"),
    "a result of early panes": (
        lambda: pipeline(outputs=(output(panes="early", sink=UPSERT), made(transform=""))), "early panes change", "on_time"),
    "a result without windows that a backfill corrects": (
        lambda: pipeline(outputs=(output(window=None), made(
            transform="", on_backfill="correct", sink=Postgres(table="a.b", write="increment", keys=("shop",))))),
        "per_shop has no windows", "leave on_backfill out"),
    "one Delta folder twice": (
        lambda: pipeline(outputs=(output(), output("b", sink=Delta(path="shop/per_shop")))),
        "two outputs write to delta:shop/per_shop", "its own target"),
    "one table twice": (
        lambda: pipeline(outputs=tuple(output(n, sink=Postgres(table="results.total")) for n in ("a", "b"))),
        "two outputs write to postgres::results.total", "its own target"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_work_is_refused_with_the_way_out(case: str) -> None:
    """Message and hint name the option, and the nearest that would do."""
    declare, what, hint = REFUSALS[case]
    with pytest.raises(Refused, match=what) as refusal:
        declare()

    assert hint in refusal.value.hint


def test_every_other_sink_may_be_at_least_once() -> None:
    """Only an increment can't bear a row twice by its meaning; exactly once is what nobody need ask for."""
    sinks = (Delta(), UPSERT, Postgres(table="a.b"), Postgres(table="a.c", write="upsert", keys=("window_start",)))
    outputs = tuple(output(f"o{n}", sink=sink) for n, sink in enumerate(sinks))

    assert pipeline(mode="at_least_once", outputs=outputs).mode == "at_least_once"
    assert pipeline().mode == "exactly_once"


def test_one_table_in_two_databases_is_two_targets() -> None:
    """The connection is part of where rows go."""
    sinks = [Postgres(table="results.total"), Postgres(table="results.total", connection="OTHER_URL")]
    declared = pipeline(outputs=tuple(output(n, sink=s) for n, s in zip("ab", sinks, strict=True)))

    assert len({target(declared, o) for o in declared.outputs}) == 2


def test_the_same_windows_may_be_written_out_for_an_output_made_from_another() -> None:
    """Equal windows are the same windows."""
    again = output("total", window=Fixed(timedelta(minutes=60)), from_output="per_shop")

    assert pipeline(outputs=(output(), again)).made_from(output()) == [again]


@pytest.mark.parametrize(
    "schema, columns",
    [
        ("id string, at timestamp", ["id", "at"]),
        ("id string,at timestamp,cents decimal(10,2)", ["id", "at", "cents"]),
        ("id string, at timestamp, place struct<lat: double, lon: double>", ["id", "at", "place"]),
        (
            "id string, tags array<struct<k: string, v: map<string, decimal(38, 18)>>>, at timestamp",
            ["id", "tags", "at"],
        ),
        ("  id   STRING NOT NULL ,\n at\tTIMESTAMP ", ["id", "at"]),
        ("`id` string, `at` timestamp", ["id", "at"]),
    ],
)
def test_columns_are_read_from_the_schema(schema: str, columns: list[str]) -> None:
    """Commas inside of types separate nothing; quotes and blanks are no part of a name."""
    assert pipeline(schema=schema).columns() == columns
    assert len(split_ddl(schema)) == len(columns)


@pytest.mark.parametrize(
    ("source", "columns"),
    [
        (Files(format="csv"), "x string COMMENT 'a<b>'"),
        (Kafka(topic="t", servers="s:1", key="key"), "`key` string"),
        (Kafka(topic="t", servers="s:1", headers=("h",)), "h string NOT NULL COMMENT 'a, b'"),
        (DeltaSource(path="/t", changes=True), "_change_type string, _commit_version long COMMENT 'of the change'"),
    ],
    ids=["a comment", "a quoted name", "a comment of a header", "a comment of a change"],
)
def test_a_source_takes_a_column_by_its_name_and_type_alone(source: Source, columns: str) -> None:
    """A comment and quotes are part of neither."""
    own = ("_change_type", "_commit_version") if isinstance(source, DeltaSource) else ()
    declared = pipeline(source=source, schema=f"id string, at timestamp, {columns}", record_id=("id", *own))
    assert declared.source == source


def test_a_declaration_can_not_be_changed_afterwards() -> None:
    """What was checked stays what it was."""
    declared: Any = pipeline()
    for thing, option in ((declared, "name"), (declared.outputs[0], "watermark_delay"), (declared.source, "inbox")):
        with pytest.raises(AttributeError):
            setattr(thing, option, None)


def test_equal_declarations_are_equal_and_look_alike() -> None:
    """Their text is what the fingerprint is made of."""
    assert pipeline() == pipeline()
    assert repr(pipeline()) == repr(pipeline())
    assert repr(pipeline()) != repr(pipeline(partitions=3))


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    """Or with all there are."""
    assert "did you mean 'flights'?" in unknown("pipeline", "flihgts", ["flights", "shop"]).hint
    assert unknown("pipeline", "x", []).hint == "no pipeline is declared"
    with pytest.raises(Refused, match="no output 'x'"):
        pipeline().output("x")


@pytest.mark.parametrize("length, words", [
    (timedelta(hours=1, minutes=30), "1 hour 30 minutes"), (timedelta(days=2), "2 days"), (timedelta(0), "0 seconds"),
    (timedelta(seconds=1.5), "1 second 500 milliseconds"), (timedelta(microseconds=1), "1 microsecond"),
    (timedelta(days=1, seconds=1), "1 day 1 second"), (-timedelta(hours=1), "-1 hour"),
])  # fmt: skip
def test_length_of_time_is_written_in_words(length: timedelta, words: str) -> None:
    """From the declaration, and from its form in a stored identity."""
    assert (in_words(length), stored_in_words(str(length))) == (words, words)
    assert stored_in_words("shop, day") == "shop, day"


def test_a_sink_that_only_appends_is_told_of_no_other_write() -> None:
    """The error of `keys` names an upsert only where one is possible."""
    with pytest.raises(Refused) as of_iceberg:
        Iceberg(table="a.b", keys="k")
    with pytest.raises(Refused) as of_delta:
        Delta(keys=("k",))

    assert ("upsert" in of_iceberg.value.hint, "upsert" in of_delta.value.hint) == (False, True)
