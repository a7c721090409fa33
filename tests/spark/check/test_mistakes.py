"""Ten mistakes that users make: each is told in three lines, at the user's own line, before data is touched where that
can be known."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from onlyonce import check, settings
from onlyonce.api import load
from onlyonce.cli import app
from onlyonce.core.errors import FunctionFails
from onlyonce.core.unrepeatable import COSTS
from tests.support.platform import Platform

pytestmark = pytest.mark.spark

FUNCTION = """from pyspark.sql import functions as F


@F.udf("long")
def share(cents):
    return 100 // cents


def per_shop(sales):
    return sales.groupBy("oo_window", "shop").agg(
        F.sum("cents").alias("cents")
    )


def each(sales):
    return sales.select("id", share("cents").alias("share"))
"""
DECLARATION = """from datetime import timedelta
from onlyonce import Delta, Files, Fixed, Kafka, Output, Pipeline, Postgres

PIPELINES = [Pipeline(
    name="shop", source=Files(),
    schema="id string, shop string, at timestamp, cents long",
    record_id="id", event_time="at",
    outputs=Output(
        name="per_shop", transform="FUNCTIONS:per_shop",
        window=Fixed(timedelta(minutes=1)),
        sink=Delta(write="upsert", keys=("shop", "window_start")),
    ),
)]
"""
NUMBERS = count()
runner = CliRunner()


@dataclass(frozen=True)
class Mistake:
    """What is written instead of what, in the declaration or the function, and what is told: place, problem, way
    out."""

    old: str
    new: str
    place: str
    what: str
    hint: str


D, T = "mine.py", "functions"
MISTAKES: dict[str, Mistake] = {
    "misspelled column": Mistake('"cents").al', '"cent").al', f"{T}:11", "asks for the column 'cent'", "did you mean 'cents'? choose one of: "),
    "a column that was renamed": Mistake(
        'sales.groupBy', 'sales.withColumnRenamed("cents", "amount").groupBy', f"{T}:10", "which line 10 renames to 'amount'", "write 'amount' in its place"),
    "a column that is not grouped": Mistake(
        'F.sum("cents")', 'F.col("shop").alias("s"), F.col("cents")', f"{T}:11", "'cents' among its aggregates", "groupBy(…, 'cents')"),
    "misspelt function of Spark": Mistake('F.sum("cents")', 'F.smu("cents")', f"{T}:11", "has no attribute 'smu'", "did you mean 'sum'?"),
    "a string with a length": Mistake("shop string", "shop varchar", f"{D}:6", "type 'varchar', and the strings of records have no length", "did you mean 'string'?"),
    "wrong type": Mistake("cents long", "cents itn", f"{D}:6", "type 'itn', which Spark does not have", "did you mean 'int'?"),
    "missing comma": Mistake("shop string, at", "shop string at", f"{D}:6", "column shop is followed by 'at timestamp' without a comma", "put a comma before 'at'"),
    "a schema that only Spark can judge": Mistake("cents long", "cents long, size string COLLATE NOPE", f"{D}:6", "Spark can't read the schema", "correct the schema"),
    "a name that Delta can't have": Mistake('.alias("cents")', '.alias("cents (sum)")', f"{D}:11", "can't have the character ' '", ".alias('records')"),
    "missing window": Mistake(
        '        window=Fixed(timedelta(minutes=1)),\n        sink=Delta(write="upsert", keys=("shop", "window_start"))', "        sink=Delta()",
        f"{T}:10", "asks for the column 'oo_window'", "choose one of: "),
    "no window in the result": Mistake(
        '"oo_window", "shop"', '"shop"', f"{T}:10", "has no column oo_window; it has: shop, cents", "group by oo_window (and your keys)"),
    "a window of their own": Mistake(
        '"oo_window", "shop"', 'F.window("at", "1 minute")', f"{T}:10", "it has: window, cents",
        "oo_window takes the place of F.window(…): group by oo_window"),
    "non-deterministic aggregate": Mistake(
        'F.sum("cents")', "F.max(F.rand())", f"{T}:10", "uses max(rand()), whose value differs at each run", "(stable_input)"),
    "an aggregate of the clock": Mistake(
        'F.sum("cents")', "F.max(F.current_timestamp())", f"{T}:11", "uses max(current_timestamp()): an aggregate of the clock", "oo_ingestion_time"),
    "wrong sink keys": Mistake('("shop", "win', '("shopp", "win', f"{D}:11", "the key 'shopp' is not a column", "did you mean 'shop'?"),
    "unreadable file": Mistake("PIPELINES = [", "PIPELINES = [[", f"{D}:4", "can't be loaded: SyntaxError", "close the bracket of line 4: PIPELINES = [[Pipeline("),
    "wrong path": Mistake("Files()", 'Files(inbox="/not/there")', f"{D}:5", "/not/there", "mkdir -p /not/there"),
    "import error": Mistake("import functions", "import functionz", f"{T}:1", "cannot import name 'functionz'", "module"),
    "a function of Python's own": Mistake("FUNCTIONS:per_shop", "builtins:len", f"{D}:9", "is part of Python's own library", "write your own"),
    "wrong function": Mistake("FUNCTIONS:per_shop", "FUNCTIONS:per_shp", f"{D}:9", "'per_shp'", "did you mean"),
    "a type that the table has not": Mistake("", "", f"{D}:11", "column cents is bigint, but in ", "let the function give the table's type"),
}  # fmt: skip


def write(folder: Path, old: str = "", new: str = "") -> tuple[Path, str]:
    """A declaration and its functions, changed; gives the file and the name of the functions' module."""
    folder.mkdir(parents=True, exist_ok=True)
    module = f"functions_{next(NUMBERS)}"
    assert old in DECLARATION + FUNCTION
    (folder / f"{module}.py").write_text(FUNCTION.replace(old, new) if old else FUNCTION)
    file = folder / "mine.py"
    file.write_text((DECLARATION.replace(old, new) if old else DECLARATION).replace("FUNCTIONS", module))
    return file, module


def told(result: Any) -> list[str]:
    """The three lines of an error, which come first: what is before them are remarks on how the work goes."""
    lines = result.stderr.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("  data: ")) - 1
    assert not any("Traceback" in line or line.startswith("\tat ") for line in lines), result.stderr
    return list(lines[first : first + 3])


def run(file: Path) -> Any:
    return runner.invoke(app, ["run", "shop", "--master", "local[2]", "--pipelines", str(file)])


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_at_its_line_before_data_is_touched(
    platform: Platform, spark: Any, tmp_path: Path, name: str
) -> None:
    """By `run`, with exit code 64: nothing is registered, and the file in the inbox is as it was."""
    mistake = MISTAKES[name]
    file, module = write(tmp_path / "mine", mistake.old, mistake.new)
    platform.put("shop", "a.jsonl", [{"id": "1", "shop": "x", "at": "2026-01-01T00:00:00Z", "cents": 1}])
    if not mistake.old:
        table = settings.tables_dir() / "shop" / "per_shop"
        spark.createDataFrame([], "shop string, cents int").write.format("delta").save(str(table))

    result = run(file)

    assert result.exit_code == 64, result.stderr
    what, data, hint = told(result)
    assert what.startswith(f"{file.parent}/{mistake.place.replace(T, f'{module}.py')}:"), what
    assert mistake.what in what
    assert data.startswith("  data: nothing")
    assert "until the function works" not in data, "nothing was read so far"
    assert hint.startswith("  next: ")
    assert mistake.hint in hint
    assert not list((settings.data_dir("shop") / "events").rglob("*.parquet"))


def test_header_that_is_read_as_a_record_is_told_by_run_and_invalid(platform: Platform, tmp_path: Path) -> None:
    """Only the first line of the file is invalid, and the run says why."""
    file, _ = write(tmp_path / "mine", "Files()", 'Files(format="csv")')
    platform.put("shop", "a.csv", ["id,shop,at,cents", "1,x,2026-01-01T00:00:00Z,1"])

    shown = run(file), runner.invoke(app, ["invalid", "shop", "--pipelines", str(file)])

    for result in shown:
        said = " ".join((result.stdout + result.stderr).split())
        assert "the line 'id,shop,at,cents' looks like the header of its file: header=True" in said.replace(
            "The", "the"
        )


EACH = (
    '        name="per_shop", transform="FUNCTIONS:per_shop",\n        window=Fixed(timedelta(minutes=1)),\n      '
    '  sink=Delta(write="upsert", keys=("shop", "window_start")),',
    '        name="each", transform="FUNCTIONS:each", sink=Delta(),',
)
SALES = [{"id": str(n), "shop": "x", "at": "2026-01-01T00:00:00Z", "cents": n - 7} for n in range(10)]
"""The one of id 7 can't be divided by."""


def test_a_value_that_an_expression_cannot_take_is_told_with_its_line_and_the_record(
    platform: Platform, spark: Any, tmp_path: Path
) -> None:
    """A cast, in a query's own thread: an error of Spark without the user's line is none of the function's."""
    file, module = write(tmp_path / "mine", 'F.sum("cents")', 'F.sum(F.col("shop").cast("int"))')
    functions = (file.parent / f"{module}.py").read_text().splitlines()
    [line] = [number for number, text in enumerate(functions, 1) if 'cast("int")' in text]
    path = platform.put("shop", "a.jsonl", [sale | {"shop": "3" if sale["id"] != "7" else "x"} for sale in SALES])

    result = run(file)

    assert result.exit_code == FunctionFails.exit_code, result.stderr
    what, _, hint = told(result)
    assert what.startswith(
        f"{file.parent}/{module}.py:{line}: output per_shop of shop: {module}:per_shop fails on its rows: "
    ), what
    assert "The value 'x' of the type \"STRING\" cannot be cast" in what
    byte = path.read_bytes().index(b'{"id":"7"')
    assert f"with the record id=7 alone, of batch shop/receive/1/0, read at {path}, byte {byte}" in what
    assert "reject=" in hint


@pytest.mark.slow
def test_what_a_record_brings_is_told_with_the_line_the_record_and_the_command_that_shows_it(
    platform: Platform, spark: Any, tmp_path: Path
) -> None:
    """A Python function that divides by zero, on one of many: its line, its id, its place.

    `replay` shows the same, and writes nothing; then the rows of the mended one."""
    file, module = write(tmp_path / "mine", *EACH)
    path = platform.put("shop", "a.jsonl", SALES)

    result = run(file)

    assert result.exit_code == FunctionFails.exit_code == 64, result.stderr
    what, data, hint = told(result)
    place, function = f"{file.parent}/{module}.py:6", f"output each of shop: {module}:each"
    assert what.startswith(f"{place}: {function} fails on its rows: ZeroDivisionError"), what
    byte = path.read_bytes().index(b'{"id":"7"')
    assert f"with the record id=7 alone, of batch shop/receive/1/0, read at {path}, byte {byte}" in what
    assert "this batch is not committed; its records stay in the table `events`" in data
    assert "onlyonce plan shop --yes" in hint
    assert "onlyonce trace shop 7 tells" in hint
    assert "onlyonce replay shop 0 --output each" in hint
    shown = runner.invoke(app, ["replay", "shop", "0", "--output", "each", "--pipelines", str(file)])
    assert shown.exit_code == 64
    assert f"{module}.py:6: {function} fails" in shown.stderr
    assert "  data: nothing was written" in shown.stderr
    mended = file.parent / f"{module}.py"
    mended.write_text(mended.read_text().replace("100 // cents", "100 - cents").replace("share", "rest"))
    mended.rename(file.parent / f"{module}_b.py")
    file.write_text(file.read_text().replace(module, f"{module}_b"))
    shown = runner.invoke(app, ["replay", "shop", "0", "--limit", "100", "--json", "--pipelines", str(file)])
    assert shown.exit_code == 0, shown.stderr
    assert len(re.findall('"rest":', shown.stdout)) == len(SALES)
    assert platform.table("shop/each").empty


@pytest.mark.slow
def test_after_a_failure_on_rows_the_named_commands_continue_with_the_corrected_function(
    platform: Platform, spark: Any, tmp_path: Path
) -> None:
    """The output keeps state of windows, so a run alone is refused; it has committed nothing before."""
    file, module = write(tmp_path / "mine", 'F.sum("cents")', 'F.sum(share("cents"))')
    platform.put("shop", "a.jsonl", SALES)
    assert "onlyonce plan shop --yes" in told(run(file))[2]
    corrected = (file.parent / f"{module}.py").read_text().replace('F.sum(share("cents"))', 'F.sum("cents")')
    (file.parent / f"{module}_b.py").write_text(corrected)
    file.write_text(file.read_text().replace(module, f"{module}_b"))

    assert "onlyonce plan shop" in told(run(file))[2]
    planned = runner.invoke(app, ["plan", "shop", "--yes", "--master", "local[2]", "--pipelines", str(file)])
    assert planned.exit_code == 0, planned.stderr
    closed = runner.invoke(app, ["run", "shop", "--close", "--master", "local[2]", "--pipelines", str(file)])
    assert closed.exit_code == 0, closed.stderr
    assert platform.table("shop/per_shop")["cents"].tolist() == [sum(n - 7 for n in range(10))]


@pytest.mark.slow
def test_a_bounded_run_and_a_backfill_name_the_record_as_a_stream_does(
    platform: Platform, spark: Any, tmp_path: Path
) -> None:
    """The same line of the function, the same record: whatever reads it."""
    file, module = write(tmp_path / "mine")
    platform.put("shop", "a.jsonl", SALES)
    arguments = ["--master", "local[2]", "--pipelines", str(file)]
    assert runner.invoke(app, ["run", "shop", "--close", *arguments]).exit_code == 0
    functions = (file.parent / f"{module}.py").read_text()
    (file.parent / f"{module}_b.py").write_text(functions.replace('F.sum("cents")', 'F.sum(share("cents"))'))
    file.write_text(file.read_text().replace(module, f"{module}_b"))

    span = ["--from", "2026-01-01T00:00Z", "--to", "2026-01-01T00:01Z"]
    for asked in (["run", "shop", "--bounded"], ["backfill", "shop", *span]):
        result = runner.invoke(app, [*asked, *arguments])
        assert result.exit_code == 64, result.stderr
        what, _, _ = told(result)
        assert f"{module}_b.py:6: output per_shop of shop: {module}_b:per_shop fails on its rows: ZeroDiv" in what
        assert "with the record id=7 alone" in what


@pytest.mark.slow
@pytest.mark.parametrize("of_topic", [False, True], ids=["file", "topic"])
def test_a_record_known_by_its_place_is_told_by_it_and_found_by_the_command(
    platform: Platform, spark: Any, request: pytest.FixtureRequest, tmp_path: Path, of_topic: bool
) -> None:
    """File and byte, or partition and offset: `trace` finds by them the one record that the function fails at."""
    file, _ = write(tmp_path / "mine", *EACH)
    text = file.read_text().replace('record_id="id"', "record_id=()")
    if of_topic:
        broker = request.getfixturevalue("broker")
        topic = broker.topic()
        broker.produce(topic, *[json.dumps(sale) for sale in SALES])
        text = text.replace("Files()", f'Kafka(topic="{topic}", servers="{broker.servers}")')
        where, asked = f"topic {topic}, partition 0, offset 7", f"{topic}/0 7"
    else:
        path = platform.put("shop", "a.jsonl", SALES)
        byte = path.read_bytes().index(b'{"id":"7"')
        where, asked = f"{path}, byte {byte}", f"{path} {byte}"
    file.write_text(text)

    what, _, hint = told(run(file))

    assert f"read at {where}" in what
    assert f"onlyonce trace shop {asked} tells" in hint
    found = runner.invoke(app, ["trace", "shop", *asked.split(), "--json", "--pipelines", str(file)])
    assert found.exit_code == 0, found.stderr
    [fate] = json.loads(found.stdout)["tables"]["fates"]
    assert (fate["fate"], fate["batch"]) == ("kept", "shop/receive/1/0")


def test_a_check_of_what_is_unchanged_asks_no_spark(platform: Platform, spark: Any, tmp_path: Path) -> None:
    """The first look asks it, the second does not; one after a change of a helper beside the functions does again."""
    file, module = write(tmp_path / "mine")
    pipeline = load.one("shop", [file])

    def never() -> Any:
        raise AssertionError("asked Spark")

    assert check.check_pipeline(pipeline, lambda: spark).asked_spark
    assert not check.check_pipeline(pipeline, never).asked_spark
    functions = file.parent / f"{module}.py"
    functions.write_text(functions.read_text() + "# changed\n")
    with pytest.raises(AssertionError, match="asked Spark"):
        check.check_pipeline(pipeline, never)


def test_what_is_staged_is_said_with_its_reason(platform: Platform, tmp_path: Path) -> None:
    """By `check`, and by `plan` also if nothing has changed. With the option False the function is refused."""
    drawn = ("sales.groupBy", "sales.filter(F.rand() > 0.5).groupBy")
    file, module = write(tmp_path / "mine", *drawn)

    for command in ("check", "check", "plan"):
        result = runner.invoke(app, [command, "shop", "--json", "--pipelines", str(file)])
        assert result.exit_code == 0, result.stderr
        [row] = json.loads(result.stdout)["tables"]["staged before they are written"]
        reason = ["rand() draws a new value at each run", COSTS, "use a hash of the record's id (xxhash64)"]
        assert list(row.values()) == ["shop", "per_shop", f"{file.parent / module}.py:10", *reason]

    file.write_text(file.read_text().replace("window=Fixed", "stable_input=False, window=Fixed"))
    what, _, hint = told(runner.invoke(app, ["check", "shop", "--pipelines", str(file)]))
    assert f"{module}.py:9: output per_shop: {module}:per_shop is not deterministic (rand() draws" in what
    assert "take stable_input out" in hint


SECOND = (
    "    ),\n)]",
    '    ), Output(name="each", transform="FUNCTIONS:rows", sink=Delta())),\n)]',
)
NOT_TAKEN = {
    "catalog": (["catalogManaged", "inCommitTimestamp"], ["catalogManaged"], "commits that its catalog makes"),
    "clustered": (["clustering", "domainMetadata"], [], "clustering"),
    "unknown": (["ofTomorrow"], ["ofTomorrow"], "ofTomorrow"),
}


@pytest.mark.parametrize("kind", NOT_TAKEN)
def test_a_table_that_cannot_take_rows_stops_its_output_only(
    platform: Platform, spark: Any, tmp_path: Path, kind: str
) -> None:
    """`check` and the doctor name the feature; receive and the other output write all."""
    writer, reader, words = NOT_TAKEN[kind]
    file, module = write(tmp_path / "mine", *SECOND)
    file.write_text(file.read_text().replace("outputs=Output(", "outputs=(Output("))
    functions = file.parent / f"{module}.py"
    functions.write_text(functions.read_text() + '\n\ndef rows(sales):\n    return sales.select("id", "cents")\n')
    table = settings.tables_dir() / "shop" / "each"
    spark.createDataFrame([], "id string, cents long").write.format("delta").save(str(table))
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": reader, "writerFeatures": writer}
    (table / "_delta_log" / f"{1:020}.json").write_text(json.dumps({"protocol": protocol}) + "\n")
    platform.put("shop", "a.jsonl", SALES)
    asked = ["--pipelines", str(file)]

    checked = runner.invoke(app, ["check", "shop", "--master", "local[2]", *asked])
    result = runner.invoke(app, ["run", "shop", "--close", "--master", "local[2]", *asked])
    doctor = runner.invoke(app, ["doctor", "--json", *asked])

    for refused in (checked, result):
        assert refused.exit_code == 64, refused.stderr
        assert f"{file}:" in told(refused)[0]
        assert f"output each: {table} has {words}" in told(refused)[0]
    [found] = json.loads(doctor.stdout)["tables"]["findings"]
    assert (found["finding"], found["where"], words in found["what"]) == ("refused table", "shop/each", True)
    assert platform.table("shop/per_shop")["cents"].tolist() == [sum(int(str(sale["cents"])) for sale in SALES)]


def test_a_column_that_a_table_requires_is_told_before_any_row(platform: Platform, spark: Any, tmp_path: Path) -> None:
    """By `check`, at the sink's line. An upsert may change only rows that have it."""
    file, module = write(tmp_path / "mine", *SECOND)
    file.write_text(file.read_text().replace("outputs=Output(", "outputs=(Output("))
    functions = file.parent / f"{module}.py"
    functions.write_text(functions.read_text() + '\n\ndef rows(sales):\n    return sales.select("id", "cents")\n')
    table = settings.tables_dir() / "shop" / "each"
    spark.sql(f"CREATE TABLE delta.`{table}` (id string, cents long, till string NOT NULL) USING delta")

    checked = runner.invoke(app, ["check", "shop", "--pipelines", str(file)])
    file.write_text(file.read_text().replace("sink=Delta())),", 'sink=Delta(write="upsert", keys="id"))),'))
    changed = runner.invoke(app, ["check", "shop", "--pipelines", str(file)])

    assert checked.exit_code == 64, checked.stderr
    what = told(checked)[0]
    assert f"{file}:" in what
    assert f"output each: {table} requires the column till (NOT NULL), which the rows do not have" in what
    assert changed.exit_code == 0, changed.stderr


def test_a_topic_that_is_not_there_is_told_at_the_source(
    platform: Platform, spark: Any, broker: Any, tmp_path: Path
) -> None:
    """With the command that makes it."""
    file, _ = write(tmp_path / "mine", "Files()", f'Kafka(topic="nothing", servers="{broker.servers}")')

    result = run(file)

    assert result.exit_code == 64, result.stderr
    what, _, hint = told(result)
    assert what.startswith(f"{file}:5: there is no topic 'nothing'")
    assert "--create --topic nothing" in hint


def test_a_wrong_password_is_refused_at_once(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No patience changes it, and no output has it: by a check too, before Spark. The password is in no line."""
    file, _ = write(tmp_path / "mine")
    right = platform.environment["ONLYONCE_DATABASE_URL"]
    wrong = re.sub(r"://(\w+):[^@]+@", r"://\1:not-it@", right)
    monkeypatch.setenv("ONLYONCE_DATABASE_URL", wrong)

    for result in (run(file), runner.invoke(app, ["check", "shop", "--pipelines", str(file)])):
        assert result.exit_code == 64, result.stderr
        what, _, hint = told(result)
        assert re.match(r"PostgreSQL at \S+ does not let onlyonce_writer in: password authentication failed", what)
        assert hint == (
            "  next: correct the URL in ONLYONCE_DATABASE_URL, or the password of that role: ALTER ROLE onlyonce_writer "
            "PASSWORD …"
        )
        assert "not-it" not in result.stderr
        assert "starts Spark" not in result.stderr


def test_a_wrong_password_of_a_sink_is_told_at_the_sink_before_data_is_touched(
    platform: Platform, spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The line that names the variable; and so is a variable that is not set."""
    sink = 'Delta(write="upsert", keys=("shop", "window_start"))'
    file, _ = write(tmp_path / "mine", sink, 'Postgres(table="results.mine", connection="MINE_DATABASE")')
    platform.put("shop", "a.jsonl", [{"id": "1", "shop": "x", "at": "2026-01-01T00:00:00Z", "cents": 1}])

    unset = run(file)
    right = platform.environment["ONLYONCE_DATABASE_URL"]
    monkeypatch.setenv("MINE_DATABASE", re.sub(r"://(\w+):[^@]+@", r"://\1:not-it@", right))
    wrong = run(file)

    for result, problem in (
        (unset, "MINE_DATABASE of a sink's database is not set"),
        (wrong, "password authentication"),
    ):
        assert result.exit_code == 64, result.stderr
        what, data, _ = told(result)
        assert what.startswith(f"{file}:11: ")
        assert problem in what
        assert data == "  data: nothing was read or written"
    assert "not-it" not in wrong.stderr
    assert not list((settings.data_dir("shop") / "events").rglob("*.parquet"))
