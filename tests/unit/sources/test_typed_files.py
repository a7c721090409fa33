"""Parquet and Avro files: what is read of each, by which numbers; whatever is wrong with one is told before it is
read."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyarrow import parquet

from onlyonce.api.pipeline import Files, Pipeline
from onlyonce.core.errors import Refused
from onlyonce.core.records import Damaged
from onlyonce.sources import avro_files, typed_files
from onlyonce.sources.listing import FileAt, InputFile, new_files
from onlyonce.sources.message_formats import Wanted
from onlyonce.sources.typed_files import Part
from onlyonce.sources.values import coercion
from tests.support.shop import SHOP

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
AVRO = {
    "type": "record", "name": "sale", "fields": [
        {"name": "id", "type": ["null", "string"]}, {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "cents", "type": "int"}, {"name": "more", "type": ["null", "string"]},
    ],
}  # fmt: skip


def of(form: str, schema: str = SHOP.schema) -> Pipeline:
    """The test pipeline over such files."""
    return replace(SHOP, source=Files(format=form), schema=schema)  # type: ignore[arg-type]


def sales(count: int) -> list[dict[str, Any]]:
    """Some records, in the columns of both formats."""
    return [{"id": f"s{n}", "at": NOON + timedelta(seconds=n), "cents": n, "more": "x"} for n in range(count)]


def put_avro(path: Path, records: list[dict[str, Any]], **options: Any) -> None:
    """With many blocks."""
    with path.open("wb") as file:
        fastavro.writer(file, AVRO, records, sync_interval=400, **options)


def put_parquet(path: Path, records: list[dict[str, Any]], **options: Any) -> None:
    """With many groups of rows."""
    parquet.write_table(pa.Table.from_pylist(records), path, row_group_size=50, **options)


PUT: dict[str, Callable[..., None]] = {"avro": put_avro, "parquet": put_parquet}


@pytest.mark.parametrize("form", PUT)
def test_rows_have_their_numbers_however_a_file_is_cut(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row once, with the number that it has in the file, declared columns by name, and the names of the others."""
    monkeypatch.setattr(typed_files, "ROWS_AT_ONCE", 7)
    path, pipeline = tmp_path / "file", of(form)
    PUT[form](path, sales(220))
    read = typed_files._reader(pipeline)
    for size in (1, 1 << 30):
        monkeypatch.setattr(typed_files, "PART", size)
        parts = list(typed_files._parts(InputFile(str(path), path.stat().st_size, 0, 220, None), pipeline))
        rows = [row for part in parts for batch in read(part) for row in batch.to_pylist()]
        assert [row["oo_position"] for row in rows] == list(range(220))
        assert [row["id"] for row in rows] == [f"s{n}" for n in range(220)]
        assert rows[3]["at"] == NOON + timedelta(seconds=3)
        assert {row["oo_rest"] for row in rows} == {"more"}
        assert {row["shop"] for row in rows} == {None}
        assert (len(parts) > 1) == (size == 1 and form == "parquet")
    assert typed_files.counter(pipeline)(FileAt(str(path))) == 220


@pytest.mark.parametrize("form", PUT)
def test_a_file_that_is_cut_or_damaged_anywhere_is_refused_whole(form: str, tmp_path: Path) -> None:
    """Cut at any place, or with bytes changed: refused with the reason, or (where no byte of a row was hit) read
    whole."""
    path, pipeline = tmp_path / "good", of(form)
    options = {} if form == "avro" else {"write_page_checksum": True}
    PUT[form](path, sales(220), **options)
    content, chance = path.read_bytes(), random.Random(2)
    count, refused = typed_files.counter(pipeline), 0
    for number in range(40):
        at, bad = chance.randrange(len(content)), tmp_path / f"bad{number}"
        if number % 2:
            bad.write_bytes(content[:at])
        else:
            bad.write_bytes(content[:at] + bytes(b ^ 0x55 for b in content[at : at + 8]) + content[at + 8 :])
        with suppress(Damaged):
            assert count(FileAt(str(bad))) <= 220
            continue
        refused += 1
    assert refused >= 20
    for empty in (b"", b"PAR1", b"Obj\x01"):
        path.write_bytes(empty)
        with pytest.raises(Damaged, match="cut short or damaged"):
            count(FileAt(str(path)))


EPOCH, JUST_BEFORE = datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999)
FITS: dict[str, tuple[Any, str, Any]] = {
    # what the file has → declared type, what it becomes
    "int8": (pa.array([7], pa.int8()), "long", 7), "uint32": (pa.array([7], pa.uint32()), "long", 7),
    "small long": (pa.array([7], pa.int64()), "int", 7), "long for double": (pa.array([7]), "double", 7.0),
    "long for decimal": (pa.array([7]), "decimal(22,2)", Decimal("7.00")), "float": (pa.array([0.5], pa.float32()), "double", 0.5),
    "large text": (pa.array(["x"], pa.large_string()), "string", "x"), "dictionary": (pa.array(["x"]).dictionary_encode(), "string", "x"),
    "nothing": (pa.nulls(1), "long", None), "nothing for a list": (pa.nulls(1), "array<int>", None), "nothing in a list for a map": (pa.array([[None]]), "array<map<string,int>>", [None]), "seconds": (pa.array([5], pa.timestamp("s", "UTC")), "timestamp", datetime.fromtimestamp(5, UTC)),
    "no zone": (pa.array([5], pa.timestamp("ms")), "timestamp", datetime.fromtimestamp(0.005, UTC)),
    "another zone": (pa.array([5], pa.timestamp("us", "Europe/Berlin")), "timestamp", datetime.fromtimestamp(0.000005, UTC)),
    "nanoseconds": (pa.array([1999], pa.timestamp("ns", "UTC")), "timestamp", datetime.fromtimestamp(0.000001, UTC)),
    "nanoseconds before 1970": (pa.array([-1], pa.timestamp("ns", "UTC")), "timestamp", datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)),
    "nanoseconds in a list": (pa.array([None, [7, -1]], pa.list_(pa.timestamp("ns")))[1:], "array<timestamp_ntz>", [EPOCH, JUST_BEFORE]),
    "nanoseconds in a map": (pa.array([[("x", -1)]], pa.map_(pa.string(), pa.timestamp("ns"))), "map<string, timestamp_ntz>", [("x", JUST_BEFORE)]),
    "nanoseconds in a struct": (pa.array([{"a": -1}], pa.struct({"a": pa.timestamp("ns")})), "struct<a: timestamp_ntz>", {"a": JUST_BEFORE}),
    "list": (pa.array([[1, 2]], pa.list_(pa.int32())), "array<bigint>", [1, 2]),
    "struct": (pa.array([{"a": 1}]), "struct<a: bigint>", {"a": 1}),
}  # fmt: skip
WRONG: dict[str, tuple[Any, str]] = {
    "text for number": (pa.array(["7"]), "long"),
    "float for long": (pa.array([7.0]), "long"), "text for time": (pa.array(["2026-01-01"]), "timestamp"),
    "bytes for text": (pa.array([b"x"]), "string"), "number for text": (pa.array([7]), "string"), "date for time": (pa.array([NOON.date()]), "timestamp"),
    "bool": (pa.array([True]), "long"), "zoned": (pa.array([5], pa.timestamp("us", "UTC")), "timestamp_ntz"),
}  # fmt: skip


UNHELD: dict[str, tuple[Any, Any, str, str]] = {
    # a value that the type can't hold, one that it holds, the declared type, what the reason has
    "too large": (pa.array([1 << 40, 7]), 7, "int", "1099511627776"), "unsigned": (pa.array([1 << 63, 7], pa.uint64()), 7, "long", "9223372036854775808"),
    "infinite": (pa.array([1e300, 0.5]), 0.5, "float", "1e+300 (it is out of range)"), "integer for float": (pa.array([16777217, 7]), 7.0, "float", "16777217"),
    "integer for double": (pa.array([9007199254740993, 7]), 7.0, "double", "9007199254740993"), "digits behind": (pa.array([Decimal("1.239"), Decimal("1.500")]), Decimal("1.50"), "decimal(12,2)", "1.239"),
    "digits before": (pa.array([Decimal("12345.0"), Decimal("7.0")]), Decimal("7.0"), "decimal(4,1)", "12345.0"), "integer for decimal": (pa.array([10**6, 7]), Decimal("7.0"), "decimal(4,1)", "1000000"),
    "integer in a struct for decimal": (pa.array([{"a": 10**6}, {"a": 7}]), {"a": Decimal("7.0")}, "struct<a: decimal(4,1)>", "1000000"),
    "no UTF-8": (pa.array([b"\xff", b"a"]).view(pa.string()), "a", "string", "\ufffd"), "infinite in a list": (pa.array([[1e300], [0.5]]), [0.5], "array<float>", "1e+300"),
    "too large in a struct": (pa.array([{"a": 1 << 40}, {"a": 7}]), {"a": 7}, "struct<a: int>", "1099511627776"), "NUL in a map": (pa.array([[("a", "x\0")], []], pa.map_(pa.string(), pa.string())), [], "map<string,string>", "NUL"),
    "year": (pa.array([253402300800, 5], pa.timestamp("s", "UTC")), datetime.fromtimestamp(5, UTC), "timestamp", "253402300800"),
    "year of a date": (pa.array([2932897, 0], pa.int32()).cast(pa.date32()), EPOCH.date(), "date", "its year is not in 1 to 9999"),
    "year in a list": (pa.array([[253402300800], [5]], pa.list_(pa.timestamp("s", "UTC"))), [datetime.fromtimestamp(5, UTC)], "array<timestamp>", "its year is not in 1 to 9999"),
    "year in a struct": (pa.array([{"a": 253402300800}, {"a": 0}], pa.struct([("a", pa.timestamp("s"))])), {"a": EPOCH}, "struct<a: timestamp_ntz>", "its year is not in 1 to 9999"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNHELD)
def test_a_value_that_its_type_cannot_hold_makes_its_record_invalid(name: str, tmp_path: Path) -> None:
    """At any depth; its neighbours are kept, and the reason names the column and the value."""
    array, held, declared, said = UNHELD[name]
    pipeline = of("parquet", f"id string, at timestamp, value {declared}")
    parquet.write_table(pa.table({"id": ["a", "b"], "at": [NOON, NOON], "value": array}), tmp_path / "file")
    assert typed_files.counter(pipeline)(FileAt(str(tmp_path / "file"))) == 2
    [batch] = typed_files._reader(pipeline)(Part(FileAt(str(tmp_path / "file")), 1, None, 0, 0))
    assert batch.column("value").to_pylist() == [None, held]
    [reason, kept] = batch.column("oo_refused").to_pylist()
    assert reason.startswith("column value is no ")
    assert said in reason
    assert kept is None
    assert json.loads(batch.column("oo_line")[0].as_py())["id"] == "a"


@pytest.mark.parametrize("name", [*FITS, *WRONG])
def test_types_fit_without_loss_or_the_file_is_refused(name: str, tmp_path: Path) -> None:
    """Wider numbers and other units of time fit; a text is never read as something else, and no value is changed."""
    array, declared, *value = FITS.get(name) or WRONG[name]
    pipeline = of("parquet", f"id string, at timestamp, value {declared}")
    parquet.write_table(pa.table({"id": ["a"], "at": [NOON], "value": array}), tmp_path / "file")
    if name in WRONG:
        with pytest.raises(Damaged, match="column value"):
            typed_files.counter(pipeline)(FileAt(str(tmp_path / "file")))
        return
    [batch] = typed_files._reader(pipeline)(Part(FileAt(str(tmp_path / "file")), 1, None, 0, 0))
    assert batch.column("value").to_pylist() == value


@pytest.mark.parametrize("shared", [(), (("shop", "Berlin", "string"),)], ids=["a file", "a file of a table"])
@pytest.mark.parametrize("year", [1, 1676, 1969, 2263, 9999])
def test_int96_times_keep_their_date(year: int, shared: Any, tmp_path: Path) -> None:
    """Spark, Hive and Impala write times as INT96, which nanoseconds in 64 bits cannot hold outside 1677 to 2262."""
    time = datetime(year, 12, 31, 23, 59, 59, 999999, UTC)
    pipeline = of("parquet", "id string, at timestamp, shop string, ends timestamp, parts struct<ends: timestamp>")
    rows = pa.table({"id": ["a"], "at": [time], "ends": [time], "parts": [{"ends": time}]})
    parquet.write_table(rows, tmp_path / "file", use_deprecated_int96_timestamps=True)
    assert parquet.ParquetFile(tmp_path / "file").schema.column(1).physical_type == "INT96"
    [batch] = typed_files._reader(pipeline)(Part(FileAt(str(tmp_path / "file")), 1, None, 0, 0, shared))
    assert [batch.column(name)[0].as_py() for name in ("at", "ends", "parts")] == [time, time, {"ends": time}]


@pytest.mark.parametrize("names", [[f"undeclared_{n}" for n in range(3000)], ["x" * (1 << 20)]], ids=["many", "long"])
def test_undeclared_names_take_bounded_memory(names: list[str], tmp_path: Path) -> None:
    """Each row has the names of the undeclared columns: only some names, and how many others there are, for files and
    messages alike."""
    pipeline = of("parquet", "id string, at timestamp")
    parquet.write_table(
        pa.table({"id": ["a"] * 2000, "at": [NOON] * 2000, **{name: pa.nulls(2000) for name in names}}),
        tmp_path / "file",
    )
    [batch] = typed_files._reader(pipeline)(Part(FileAt(str(tmp_path / "file")), 1, None, 0, 0))
    wanted = Wanted(tuple(batch.schema)[-2:], ("id",))
    message = wanted.fitted({"id": batch.column("id"), "at": batch.column("at")}, 2000, ["id", "at", *names])
    for rest in (batch.column("oo_rest")[0].as_py(), message.rest):
        told = str(rest).split(", ")
        assert told[:-1] == names[: len(told) - 1]
        assert told[-1] == f"{len(names) - len(told) + 1} others"
        assert len(str(rest)) < 1100


@pytest.mark.skipif(find_spec("cramjam") is not None, reason="the codec is installed")
@pytest.mark.parametrize("read", [avro_files.check, avro_files.columns], ids=["at registration", "in init and tasks"])
def test_a_missing_codec_refuses_the_run_and_not_the_file(read: Callable[[FileAt], Any], tmp_path: Path) -> None:
    """The refusal says what to install, and passes through the counter, which gives verdicts on files."""
    put_avro(tmp_path / "plain", sales(3))
    (tmp_path / "file").write_bytes(
        (tmp_path / "plain").read_bytes().replace(b"avro.codec\x08null", b"avro.codec\x0csnappy")
    )
    for reading in (read, typed_files.counter(of("avro"))):
        with pytest.raises(Refused, match="snappy") as refused:
            reading(FileAt(str(tmp_path / "file")))
        assert "pip install cramjam" in refused.value.hint


def test_a_listing_refuses_one_file_and_counts_the_others(tmp_path: Path) -> None:
    """Without the column that knows a record or its time, cut short, or of another format: each with its reason, no
    lines."""
    put_parquet(tmp_path / "a.parquet", sales(120))
    put_parquet(tmp_path / "b.parquet", [{"id": "a", "cents": 1}])
    put_parquet(tmp_path / "c.parquet", [{"at": NOON}])
    put_avro(tmp_path / "d.avro", sales(5))
    (tmp_path / "e.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-9])
    (tmp_path / "f.parquet").write_bytes(b"")

    found = {Path(one.path).name: one for one in new_files(tmp_path, {}, typed_files.counter(of("parquet")))}

    assert {name: one.lines for name, one in found.items()} == dict.fromkeys(found, 0) | {"a.parquet": 120}
    said = {name: str(one.refusal) for name, one in found.items()}
    assert said.pop("a.parquet") == "None"
    assert "no column at" in said["b.parquet"]
    assert "no column id" in said["c.parquet"]
    assert all("cut short or damaged" in said[name] for name in ("d.avro", "e.parquet", "f.parquet"))


@pytest.mark.parametrize("form", PUT)
@pytest.mark.parametrize("codec", ["plain", "packed"])
def test_a_row_that_is_too_large_is_told_and_the_others_are_read(form: str, codec: str, tmp_path: Path) -> None:
    """With its number, its size and how it begins; also where many rows share the large value."""
    path = tmp_path / "file"
    records = sales(220)
    for number in (3, 4, 117):
        records[number] |= {"id": "é" * 1000}
    PUT[form](path, records, **({} if codec == "plain" else PACKED[form]))
    pipeline = replace(of(form), source=replace(of(form).source, max_record_bytes=1500))  # type: ignore[arg-type, type-var]

    found = [
        row
        for batch in typed_files._reader(pipeline)(Part(FileAt(str(path)), 1, None, 0, 0))
        for row in batch.to_pylist()
    ]

    assert typed_files.counter(pipeline)(FileAt(str(path))) == 220
    assert [row["oo_position"] for row in found] == list(range(220))
    bad = {row["oo_position"]: row for row in found if row["oo_refused"]}
    assert sorted(bad) == [3, 4, 117]
    assert {(row["id"], row["at"], row["cents"]) for row in bad.values()} == {(None, None, None)}
    assert re.fullmatch(
        rf"row 117 of {path} has 20\d\d bytes, and max_record_bytes is 1500; kept is how it begins",
        bad[117]["oo_refused"],
    )
    assert bad[3]["oo_line"].startswith('{"id": "é')
    assert len(bad[3]["oo_line"].encode()) <= 1024
    assert [row["id"] for row in found if not row["oo_refused"]] == [
        r["id"] for n, r in enumerate(records) if n not in bad
    ]


PACKED: dict[str, dict[str, Any]] = {"avro": {"codec": "deflate"}, "parquet": {"compression": "zstd"}}


def test_rows_that_share_a_large_value_are_written_out_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two kilobytes of Parquet would else be gigabytes at once."""
    for module in (coercion, typed_files):
        monkeypatch.setattr(module, "AT_ONCE", 1 << 20)
    path = tmp_path / "file"
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), ["x" * (1 << 18)])
    parquet.write_table(pa.table({"id": [f"{n}" for n in range(5000)], "at": [NOON] * 5000, "shop": shared}), path)
    assert path.stat().st_size < 1 << 20

    largest, count = 0, 0
    for batch in typed_files._reader(of("parquet"))(Part(FileAt(str(path)), 1, None, 0, 0)):
        largest, count = max(largest, batch.nbytes), count + batch.num_rows

    assert count == 5000
    assert largest < 1 << 21


NESTED: Any = {"type": "record", "name": "node", "fields": [{"name": "next", "type": ["null", "node"]}]}
DEEP: Any = "long"
for _ in range(100):
    DEEP = {"type": "array", "items": DEEP}
DOUBLED: Any = "long"  # a schema of two kilobytes, and a billion types
for _level in range(30):
    DOUBLED = {
        "type": "record",
        "name": f"level{_level}",
        "fields": [{"name": "a", "type": DOUBLED}, {"name": "b", "type": f"level{_level - 1}" if _level else "long"}],
    }


@pytest.mark.parametrize(("kind", "said"), [
    (NESTED, "values of its own type inside"), (DEEP, "deep inside each other"),
    ({"type": "array", "items": "null"}, "take no bytes"), (DOUBLED, "more than 100,000 types"),
])  # fmt: skip
@pytest.mark.timeout(60)
def test_types_that_a_reader_would_not_survive_are_refused(kind: Any, said: str, tmp_path: Path) -> None:
    """Five thousand records inside each other are five kilobytes, and the end of the process; a list of nothings has
    any length."""
    schema = {
        "type": "record",
        "name": "sale",
        "namespace": "com.shop",
        "fields": [*AVRO["fields"], {"name": "x", "type": kind}],
    }
    path = tmp_path / "file"
    with path.open("wb") as file:
        fastavro.writer(file, schema, [])

    with pytest.raises(Damaged, match=said):
        typed_files.counter(of("avro"))(FileAt(str(path)))


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz", "null"])
def test_a_block_that_unpacks_to_very_much_is_refused_before_it_is_unpacked(
    codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of other blocks is read."""
    monkeypatch.setattr(avro_files, "BLOCK", 1 << 20)
    good, bomb = tmp_path / "good", tmp_path / "bomb"
    for path, size in ((good, 1 << 19), (bomb, 1 << 21)):
        with path.open("wb") as file:
            fastavro.writer(file, AVRO, [*sales(1), sales(1)[0] | {"more": "x" * size}], codec=codec, sync_interval=1)

    assert typed_files.counter(of("avro"))(FileAt(str(good))) == 2
    with pytest.raises(Damaged, match="a block of it"):
        typed_files.counter(of("avro"))(FileAt(str(bomb)))


def test_a_column_that_unpacks_to_a_thousand_times_its_size_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it is unpacked."""
    monkeypatch.setattr(typed_files, "LARGE", 1 << 20)
    path = tmp_path / "file"
    table = pa.table({"id": ["x" * (1 << 24)], "at": [NOON]})
    parquet.write_table(table, path, compression="zstd", use_dictionary=False, write_statistics=False)

    with pytest.raises(Damaged, match="bytes of its column id unpack to"):
        typed_files.counter(of("parquet"))(FileAt(str(path)))
