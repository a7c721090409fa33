"""`onlyonce init`: what it writes can be used as it is, and it takes nobody's file away."""

from __future__ import annotations

import ast
import errno
import gzip
import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet
from typer.testing import CliRunner

import onlyonce
from onlyonce import settings
from onlyonce.api import load
from onlyonce.api.pipeline import Files, Pipeline
from onlyonce.cli import app
from onlyonce.core.errors import Refused
from onlyonce.core.windows import Fixed
from onlyonce.scaffold import project
from onlyonce.sources import discovery, typed_files
from onlyonce.sources.listing import FileAt, new_files
from tests.compose import programs, rules

runner = CliRunner()
AT = [f"2026-03-01T{hour:02}:00:00Z" for hour in range(9, 18)]
ROWS = [{"order_id": f"o{n}", "cents": 10 * n, "at": at} for n, at in enumerate(AT)]
TYPED = [row | {"at": datetime.fromisoformat(str(row["at"])).astimezone(UTC)} for row in ROWS]


@pytest.fixture
def working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    # Where declarations are loaded their folders come before it: those of other tests are nobody's here.
    others = (tmp_path.parents[1], Path(__file__).parents[2])
    mine = [place for place in sys.path if not any(Path(place).is_relative_to(other) for other in others)]
    monkeypatch.setattr(sys, "path", mine)
    for module in ("mine", "shop"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    for name in ("ONLYONCE_PIPELINES", "MINE_INBOX", "SHOP_INBOX"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def declared(folder: Path, name: str) -> Pipeline:
    return load.one(name, [folder / name / name / "pipelines.py"])


def test_the_project_is_found_from_its_folder_and_runs_on_its_sample(
    working: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = runner.invoke(app, ["init", "shop"])
    assert result.exit_code == 0, result.output
    monkeypatch.chdir(working / "shop")

    pipeline = load.one("shop")

    assert settings.pipeline_files() == [working / "shop" / "shop" / "pipelines.py"]
    assert (pipeline.record_id, pipeline.event_time) == (("order_id",), "at")
    assert pipeline.source.inbox == str(working / "shop" / "inbox")
    assert [path.name for path in (working / "shop" / "inbox").iterdir()] == ["sales.jsonl"]
    transforms = ast.parse((working / "shop" / "shop" / "transforms.py").read_text())
    module, function = pipeline.outputs[0].transform.split(":")
    assert module == "shop.transforms"
    assert function in {node.name for node in transforms.body if isinstance(node, ast.FunctionDef)}


def test_every_file_is_whole(working: Path) -> None:
    """No placeholder is left, and each file is one of its kind."""
    for path in project.make("shop", working, None).files:
        text = path.read_text()
        assert "§" not in text, path
        if path.suffix == ".py":
            compile(text, path, "exec")
    dag = (working / "shop" / "dags" / "shop_dags.py").read_text().splitlines()
    assert [line for line in dag if line] == [
        "from onlyonce.airflow import dags",
        'globals().update(dags("shop.pipelines"))',
    ]


def test_readme_names_the_check_and_where_options_are_described(working: Path) -> None:
    """Both work in the new project: each class of `onlyonce` has its options in its documentation."""
    project.make("shop", working, None)
    text = (working / "shop" / "README.md").read_text()

    assert "\nonlyonce check " in text
    named = re.search(r"python -m pydoc onlyonce\.(\w+)", text)
    assert named is not None
    assert "record_id" in (getattr(onlyonce, named[1]).__doc__ or "")


SHIPPED = rules.RULES | programs.RULES
OF_A_PROJECT = ("nobody reads SHOP_INBOX", "shop:0.1.0 is not the one built here")
"""The declaration reads the variable, and the image is the project's own."""


@pytest.mark.parametrize("rule", SHIPPED)
def test_the_compose_file_keeps_the_rules_of_the_shipped_one(working: Path, rule: str) -> None:
    project.make("shop", working, None)
    compose = yaml.safe_load((working / "shop" / "docker-compose.yml").read_text())

    assert [wrong for wrong in SHIPPED[rule](compose) if not wrong.endswith(OF_A_PROJECT)] == []


def write_jsonl(path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS) + "half a line")


def write_packed(path: Path) -> None:
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in ROWS)


def write_csv(path: Path) -> None:
    path.write_text("order_id,cents,at\n" + "".join(f"{r['order_id']},{r['cents']},{r['at']}\n" for r in ROWS))


def write_semicolons(path: Path) -> None:
    write_csv(path)
    path.write_text(path.read_text().replace(",", ";"))


def write_tabs(path: Path) -> None:
    write_csv(path)
    path.write_text(path.read_text().replace(",", "\t"))


def write_bare_csv(path: Path) -> None:
    path.write_text("".join(f"{r['order_id']},{r['cents']},{r['at']}\n" for r in ROWS))


def write_excel_csv(path: Path) -> None:
    """Write as Excel does: a byte-order mark, carriage returns, names as people write them."""
    lines = [
        "Order ID,Total Amount (cents),1st time,Total: amount, cents ",
        *(f'{r["order_id"]},{r["cents"]},{r["at"]},"a, b",x' for r in ROWS),
    ]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join([*lines, ""]).encode())


def write_named_jsonl(path: Path) -> None:
    path.write_text(
        "".join(json.dumps({"Order ID": r["order_id"], "cents": r["cents"], "at=": r["at"]}) + "\n" for r in ROWS)
    )


def write_parquet(path: Path) -> None:
    parquet.write_table(pa.Table.from_pylist(TYPED), path)


def write_avro(path: Path) -> None:
    fields = [
        {"name": "order_id", "type": "string"},
        {"name": "cents", "type": ["null", "long"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ]
    with path.open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, TYPED)


NAMED = "order_id string, cents long, at timestamp"
CAMEL = ["PULocationID", "OrderID", "soldAt", "id", "ID"]
CAMEL_DECLARED = "pu_location_id long, order_id long, sold_at timestamp, id long, id_2 long"
CAMEL_ROWS: list[list[Any]] = [[n, 10 + n, f"2026-03-01T1{n}:00:00Z", 20 + n, 7] for n in range(3)]


def write_camel_csv(path: Path) -> None:
    """With names in mixed case, two of which differ in their case alone."""
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in [CAMEL, *CAMEL_ROWS]))


def write_camel_jsonl(path: Path) -> None:
    """The same in JSON lines."""
    path.write_text("".join(json.dumps(dict(zip(CAMEL, row, strict=True))) + "\n" for row in CAMEL_ROWS))


@pytest.mark.parametrize(
    "name, write, source, schema, names",
    [
        ("a.jsonl", write_jsonl, Files(), NAMED, None),
        ("a.json.gz", write_packed, Files(), NAMED, None),
        ("a.csv", write_csv, Files(format="csv", header=True), NAMED, None),
        ("b.csv", write_bare_csv, Files(format="csv"), "column_1 string, column_2 long, column_3 timestamp", None),
        ("s.csv", write_semicolons, Files(format="csv", header=True, delimiter=";"), NAMED, None),
        ("t.csv", write_tabs, Files(format="csv", header=True, delimiter="\t"), NAMED, None),
        ("a.parquet", write_parquet, Files(format="parquet"), NAMED, None),
        ("a.avro", write_avro, Files(format="avro"), NAMED, None),
        (
            "e.csv",
            write_excel_csv,
            Files(format="csv", header=True),
            "order_id string, total_amount_cents long, column_1st_time timestamp, total_amount string, cents string",
            ["Order ID", "Total Amount (cents)", "1st time", "Total: amount", "cents"],
        ),
        (
            "n.jsonl",
            write_named_jsonl,
            Files(),
            "order_id string, cents long, at timestamp",
            ["Order ID", "cents", "at="],
        ),
        ("m.csv", write_camel_csv, Files(format="csv", header=True), CAMEL_DECLARED, CAMEL),
        ("m.jsonl", write_camel_jsonl, Files(), CAMEL_DECLARED, CAMEL),
    ],
)
def test_a_sample_is_declared_as_it_is(
    working: Path, name: str, write: Callable[[Path], None], source: Files, schema: str, names: list[str] | None
) -> None:
    """By names in lower snake case, with aliases for others; the first run then takes the file."""
    write(working / name)

    result = runner.invoke(app, ["init", "mine", "--from", name])

    assert result.exit_code == 0, result.output
    made = declared(working, "mine")
    assert made.schema == schema
    assert list(made.named().values()) == (names or made.columns())
    [file] = new_files(working / "mine" / "inbox", {}, discovery.layout(made))
    assert file.refusal is None
    assert isinstance(made.source, Files)
    assert replace(made.source, inbox=None) == source
    assert len(made.record_id) == 1
    assert made.event_time == next(part.split()[0] for part in schema.split(", ") if part.endswith("timestamp"))
    inbox = working / "mine" / "inbox" / name
    assert inbox.read_bytes() == (working / name).read_bytes()
    if source.format in ("parquet", "avro"):
        assert typed_files.counter(made)(FileAt(str(inbox))) == len(ROWS)  # else it is damaged, or of other types


@pytest.mark.parametrize(("name", "lines", "kind", "form"), [
    ("a.csv", ["id,at", "1,1767225600000", "2,1767229200123"], "timestamp", "epoch_ms"), ("a.jsonl", ['{"id": 1, "created_ts": 1767225600}', '{"id": 2, "created_ts": 1767229200}'], "timestamp", "epoch_s"),
    ("a.csv", ["id,sold", "1,13.01.2026 09:30", "2,3.2.2026 10:00"], "timestamp", "%d.%m.%Y %H:%M"), ("a.csv", ["id,sold", "1,1/2/2026 9:30 AM", "2,1/31/2026 1:00 pm"], "timestamp", "%m/%d/%Y %I:%M %p"),
    ("a.csv", ["id,sold", "1,10/Oct/2026:13:55:36 -0700", "2,11/Oct/2026:13:55:36 -0700"], "timestamp", "%d/%b/%Y:%H:%M:%S %z"),
    ("a.csv", ["id,born,at", "1,13.01.1999,2026-01-01T00:00:00Z", "2,1.2.1999,2026-01-01T01:00:00Z"], "date", "%d.%m.%Y"),
    ("a.csv", ["id,born,at", "1,3.1.1999,2026-01-01T00:00:00Z", "2,1.2.1999,2026-01-01T01:00:00Z"], "date", "%d.%m.%Y"),
    ("a.csv", ["id,born,at", "1,3/1/1999,2026-01-01T00:00:00Z", "2,1/2/1999,2026-01-01T01:00:00Z"], "string", None),
    ("a.csv", ["id,barcode,at", "1,1767225600000,2026-01-01T00:00:00Z", "2,1767229200123,2026-01-01T01:00:00Z"], "long", None),
])  # fmt: skip
def test_form_of_a_time_is_proposed_if_it_is_certain(
    working: Path, name: str, lines: list[str], kind: str, form: str | None
) -> None:
    """A count since 1970 needs a name that says it is a time, a date a day that is no month.

    The first run reads the values so.
    """
    (working / name).write_text("".join(line + "\n" for line in lines))
    result = runner.invoke(app, ["init", "mine", "--from", name])
    assert result.exit_code == 0, result.output
    made = declared(working, "mine")
    column = made.columns()[1]
    assert made.schema.split(", ")[1] == f"{column} {kind}"
    assert dict(made.formats) == ({column: form} if form else {})


@pytest.mark.parametrize(
    "name, content, told",
    [
        ("a.txt", b"x", "a name that tells no known format"),
        ("a.xlsx", b"PK\x03\x04\x14\x00\x00\x00", "it is a workbook of Excel or a zip archive"),
        ("a.parquet.gz", b"x", "a name that tells no known format"),
        ("a.jsonl", b"", "has no records"),
        ("a.json", b'[\n{"at": "2026-03-01T10:00:00Z"}\n]\n', "one object on each line"),
        ("a.jsonl", b'{"id": 1}\n', "no column that holds a time"),
        ("a.csv", b"id;at\r\n1;3/1/2026\r\n2;3/2/2026 10:00\r\n", "column at has '3/1/2026', which no rule reads"),
        ("a.csv", b"id,at\n1,3/1/2026\n2,3/2/2026 10:00\n", "column at has '3/1/2026', which no rule reads"),
        ("a.csv", b"id,at\n1,3/1/2026 10:00\n2,3/2/2026 10:00\n", "is %d/%m/%Y %H:%M or %m/%d/%Y %H:%M"),
        ("a.jsonl", b"\xff\n", "it is not UTF-8; as windows-1252 (Western Europe, a guess) it begins 'ÿ'"),
        ("a.csv", b"PK\x03\x04...", "it is a workbook of Excel or a zip archive"),
        ("a.csv", b"id|x,at|y\n1|x,2026-03-01|z\n", "may be separated by ',' (2 columns) or by '|' (3 columns)"),
        ("a.csv", b"sep=,\r\nid,at\r\n1,2026-03-01T10:00:00Z\r\n", "its first line names the separator ','"),
        ("a.csv", b"id,at,at\n1,2026-03-01T10:00Z,2026-03-01T10:00Z\n", "two columns of its first line are named 'at'"),
        ("a.csv", b"id,at,\n1,2026-03-01T10:00Z,\n", "column 3 has no name"),
        ("a.csv", b"id,2026-01-01,at\n1,2026-03-01,2026-03-01T10:00Z\n", "nothing says whether its first line"),
        ("a.csv", b"Ride ID,Start Time\n1,soon\n2,later\n", "its columns are ride_id long, start_time string"),
        ("a.json.gz", b"no gzip", "cut short or damaged as json"),
        ("a.parquet", b"PAR1", "cut short or damaged as parquet"),
        ("a.avro", b"Obj\x01", "cut short or damaged as avro"),
        ("a.jsonl", b'{"oo_id": 1, "at": "2026-03-01T10:00:00Z"}\n', "the platform's prefix"),
    ],
)
def test_what_can_t_be_declared_is_refused_and_nothing_is_written(
    working: Path, name: str, content: bytes, told: str
) -> None:
    (working / name).write_bytes(content)

    result = runner.invoke(app, ["init", "mine", "--from", name])

    assert result.exit_code == Refused.exit_code, result.output
    assert told in result.stderr
    assert len(result.stderr.splitlines()) <= 3
    assert [path.name for path in working.iterdir()] == [name]


def test_folder_with_files_is_refused_with_their_names(working: Path) -> None:
    """Hidden files, like .git, may be there; one that init would write may not."""
    new = working / "shop"
    (new / ".git").mkdir(parents=True)
    for name in ("notes.txt", *(f"{number}.csv" for number in range(6))):
        (new / name).write_text("mine")

    full = runner.invoke(app, ["init", "shop"])

    assert full.exit_code == Refused.exit_code
    assert "shop is not empty: 0.csv, 1.csv, 2.csv, 3.csv, 4.csv and 2 more" in full.stderr
    for path in new.glob("*.*"):
        path.unlink(missing_ok=not path.is_dir()) if path.is_file() else None
    (new / ".gitignore").write_text("mine")
    ours = runner.invoke(app, ["init", "shop"])
    assert ours.exit_code == Refused.exit_code
    assert str(new / ".gitignore") in ours.stderr
    assert [path.read_text() for path in new.rglob("*") if path.is_file()] == ["mine"]
    (new / ".gitignore").unlink()
    assert runner.invoke(app, ["init", "shop"]).exit_code == 0


def test_folder_that_may_not_be_written_is_refused(working: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its path. No permission stops this user where tests run as root."""

    def refused(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(working / "shop"))

    monkeypatch.setattr(project, "_write", refused)

    result = runner.invoke(app, ["init", "shop"])

    assert result.exit_code == Refused.exit_code
    assert f"{working / 'shop'} can't be written: Permission denied" in result.stderr


def test_name_of_a_file_is_refused(working: Path) -> None:
    """No folder can be made there."""
    (working / "shop").write_text("mine")

    result = runner.invoke(app, ["init", "shop"])

    assert result.exit_code == Refused.exit_code
    assert "is not a folder" in result.stderr


def test_project_in_a_project_is_refused(working: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its folder and from each one below; next to it is fine."""
    project.make("shop", working, None)
    before = sorted(working.rglob("*"))
    for below in (working / "shop", working / "shop" / "shop", working / "shop" / "inbox"):
        monkeypatch.chdir(below)

        result = runner.invoke(app, ["init", "mine"])

        assert result.exit_code == Refused.exit_code
        assert f"{below} is in a project of onlyonce: {working / 'shop' / 'shop' / 'pipelines.py'}" in result.stderr
    assert sorted(working.rglob("*")) == before
    monkeypatch.chdir(working)
    assert runner.invoke(app, ["init", "mine"]).exit_code == 0


def test_few_records_of_another_kind_spoil_no_guess(working: Path) -> None:
    """A day that is none, a sum in the last line, an amount that is none, a number that is missing."""
    lines = [f"{number};03.11.2026 07:{number:02};{number * 7 % 3},50;a" for number in range(58)]
    lines[3] = lines[3].replace("03.11.", "31.02.")
    lines[5] = lines[5].replace(lines[5].split(";")[2], "k. A.")
    lines[7] = ";" + lines[7].partition(";")[2]
    (working / "a.csv").write_text(
        "\n".join(["Beleg-Nr;Verkauft am;Betrag;Filiale", *lines, "Summe;;12.345,67;"]) + "\n"
    )

    result = runner.invoke(app, ["init", "mine", "--from", "a.csv"])

    assert result.exit_code == 0, result.output
    made = declared(working, "mine")
    assert (made.event_time, made.formats, made.record_id) == (
        "verkauft_am",
        {"verkauft_am": "%d.%m.%Y %H:%M"},
        ("beleg_nr",),
    )
    assert "2 of 59 records of the sample have no time in verkauft_am" in result.output
    assert "betrag: its numbers have a decimal comma" in result.output


@pytest.mark.parametrize(("cells", "kind", "null"), [
    (["NULL", "7", "8"], "long", ("NULL",)),
    (["7.5", "\\N", "NA"], "double", ("\\N", "NA")),
    (["2026-03-01", "-", "2026-03-02"], "date", ("-",)),
    (["31.01.2026", "N/A", "2.1.2026"], "date", ("N/A",)),
    (["NULL", "red", "NA"], "string", ()),
    (["NULL", "NULL", "NULL"], "string", ()),
    (["7", "", "none"], "string", ()),
])  # fmt: skip
@pytest.mark.parametrize("header", ["id,cents,country,at", "Order No.,Cents (EUR),Country,Sold at", ""])
def test_word_for_null_among_numbers_or_times_is_declared(
    working: Path, cells: list[str], kind: str, null: tuple[str, ...], header: str
) -> None:
    """Not one among strings. A column of strings that has the word too is named."""
    rows = [f"o{n},{cell},{'NA' if n else 'DE'},{AT[n]}" for n, cell in enumerate(cells)]
    (working / "a.csv").write_text("".join(line + "\n" for line in [*filter(None, [header]), *rows]))

    result = runner.invoke(app, ["init", "mine", "--from", "a.csv"])

    assert result.exit_code == 0, result.output
    made = declared(working, "mine")
    assert (made.source.null, made.source.header) == (null, bool(header))
    assert made.schema.split(", ")[1].split()[1] == kind
    said = result.output.replace("\n", " ")
    assert ("null in this file" in said) == bool(null)
    assert ("in country too" in said) == ("NA" in null and bool(header))


def test_watermark_delay_follows_the_disorder_of_the_sample(working: Path) -> None:
    """In whole windows, at least one; a record that is delivered again does not count."""
    minutes = [0, 1, 2, 11, 2, 12, 30, 0]  # the last one is the first, delivered again
    lines = [f"{minute if at != 4 else 99},2026-03-01T10:{minute:02}:30Z" for at, minute in enumerate(minutes)]
    in_order = sorted(lines, key=lambda line: line[-20:])
    for name, written, minutes_behind in (
        ("late", lines, 9),
        ("early", in_order, 1),
        ("newest_first", in_order[::-1], 30),
    ):
        (working / "a.csv").write_text("\n".join(["id,at", *written, ""]))
        result = runner.invoke(app, ["init", name, "--from", "a.csv"])
        assert result.exit_code == 0
        assert declared(working, name).outputs[0].watermark_delay == timedelta(minutes=minutes_behind)
        assert ("no window of the sample closes by itself" in result.output) == (name == "newest_first")


def test_init_says_what_it_decided(working: Path) -> None:
    """The copy of the sample, names that differ, and columns that stay strings."""
    (working / "r.csv").write_text(
        'Ride ID,Größe,At\n1,"1.234,50",2026-03-01T10:00:00Z\n2,"7,25",2026-03-01T10:01:00Z\n'
    )

    result = runner.invoke(app, ["init", "mine", "--from", "r.csv"])

    assert "inbox/r.csv is a copy of the sample: the first run takes it in" in result.output
    assert (
        "declared under other names (aliases): 'Ride ID' as ride_id, 'Größe' as grosse, 'At' as at"
        in result.output.replace("\n", " ")
    )
    assert "grosse: its numbers have a decimal comma and stay strings" in result.output
    assert "# grosse: its numbers have a decimal comma" in (working / "mine" / "mine" / "pipelines.py").read_text()
    assert declared(working, "mine").schema == "ride_id long, grosse string, at timestamp"


@pytest.mark.parametrize("name", ["json", "class", "onlyonce", "tests", "Shop", "a-b"])
def test_a_name_that_python_could_not_import_is_refused(working: Path, name: str) -> None:
    assert runner.invoke(app, ["init", name]).exit_code == Refused.exit_code
    assert list(working.iterdir()) == []


def test_of_two_packages_with_pipelines_none_is_chosen(working: Path) -> None:
    for name in ("shop", "mine"):
        (working / name).mkdir()
        (working / name / "pipelines.py").write_text("")

    assert settings.pipeline_files() == [settings.ROOT / "jobs" / "pipelines.py"]

    (working / "pipelines.py").write_text("")
    assert settings.pipeline_files() == [working / "pipelines.py"]


@pytest.mark.parametrize(
    ("days", "formats"),
    [
        (["2026-03-01", "2026-03-02", "2026-03-09"], {}),
        (["01.03.2026", "02.03.2026", "29.03.2026"], {"day": "%d.%m.%Y"}),
    ],
)
def test_a_file_with_days_only_is_declared_with_each_as_its_midnight(
    working: Path, days: list[str], formats: dict[str, str]
) -> None:
    """A project of such a file can be checked and run: its rows have an event time."""
    lines = [f"{number},{day}" for number, day in enumerate(days)]
    (working / "d.csv").write_text("\n".join(["order_id,day", *lines, ""]))

    assert runner.invoke(app, ["init", "mine", "--from", "d.csv"]).exit_code == 0

    made = declared(working, "mine")
    assert (made.schema, made.event_time, made.formats) == ("order_id long, day timestamp", "day", formats)
    assert made.outputs[0].window == Fixed(timedelta(days=1))
    assert (
        "# A guess: the only column that is read as a time in every record; it has days only"
        in (working / "mine" / "mine" / "pipelines.py").read_text()
    )


def test_init_takes_codes_for_no_numbers_and_a_day_that_is_none_for_no_time(working: Path) -> None:
    """A postcode would lose its zero; the run finds the record invalid."""
    lines = [
        f"a{number},2026-02-{27 + number}T10:00:00Z,{code}"
        for number, code in enumerate(["01067", "10115", "20095", "2", "80331"])
    ]
    (working / "p.csv").write_text("\n".join(["id,at,postcode", *lines, ""]))

    result = runner.invoke(app, ["init", "mine", "--from", "p.csv"])

    assert result.exit_code == 0
    assert "no numbers" not in result.output
    assert declared(working, "mine").schema == "id string, at timestamp, postcode string"


def test_init_says_why_a_column_of_numbers_stays_a_string(working: Path) -> None:
    """With the first value that is none."""
    cents = ["1", "2.5", "zwei", "4", "1,005.50"]
    lines = [f'a{number},2026-03-01T10:0{number}:00Z,"{one}"' for number, one in enumerate(cents)]
    (working / "n.csv").write_text("\n".join(["id,at,cents", *lines, ""]))

    result = runner.invoke(app, ["init", "mine", "--from", "n.csv"])

    told = "cents: 2 of 5 values of the sample are no numbers, the first 'zwei': it stays a string."
    assert told in " ".join(result.output.split())
    assert f"# {told}" in (working / "mine" / "mine" / "pipelines.py").read_text()
