"""Files with declarations: what they may be, and the fingerprint of what decides a query's results."""

from __future__ import annotations

import importlib
import itertools
import linecache
import os
import py_compile
import re
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onlyonce import settings
from onlyonce.api import load as declarations
from onlyonce.api.pipeline import Delta, Files, Output, Pipeline
from onlyonce.api.resolve import check_written
from onlyonce.core.errors import Refused
from onlyonce.core.windows import Fixed

HEAD = "from onlyonce.api.pipeline import Delta, Files, Output, Pipeline\n"
SHOP = """
Pipeline(name={name!r}, source=Files(), schema="id string, at timestamp", record_id=("id",), event_time="at",
         outputs=(Output(name="raw", transform="shop_rows:raw", sink=Delta()),))
"""
numbers = itertools.count()


@pytest.fixture(autouse=True)
def clean_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a file with declarations adds to the path goes with the test."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("ONLYONCE_PIPELINES", raising=False)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file with declarations of pipelines of these names."""

    def make(*names: str, file: str = "mine.py", text: str | None = None) -> Path:
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        made = ", ".join(SHOP.format(name=name).strip() for name in names)
        path.write_text(HEAD + (f"PIPELINES = [{made}]\n" if text is None else text))
        return path

    return make


def test_the_pipelines_that_ship_are_loaded_by_default() -> None:
    """Without a setting."""
    assert list(declarations.load()) == ["flights", "user_counts"]


def test_pipelines_of_several_files_are_loaded_together(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the order of the files, named by the environment or by the caller; one by its name too."""
    files = [write("b", "a"), write("c", file="other/mine.py")]
    monkeypatch.setenv("ONLYONCE_PIPELINES", ":".join(map(str, files)))

    assert list(declarations.load()) == list(declarations.load(files)) == ["b", "a", "c"]
    assert declarations.one("c") == declarations.load([files[1]])["c"]


def test_declarations_of_a_tuple_are_declarations(write: Callable[..., Path]) -> None:
    """A list is no must."""
    path = write(text=f"PIPELINES = ({SHOP.format(name='t').strip()},)\n")

    assert list(declarations.load([path])) == ["t"]


def test_a_folder_without_a_project_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And no path among the installed packages."""
    monkeypatch.setattr(settings, "ROOT", tmp_path / "site-packages")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")

    with pytest.raises(Refused, match=r"neither .*/empty nor one of its folders has a file pipelines\.py") as refused:
        declarations.load()

    assert "run the command in the project's folder" in refused.value.hint
    assert "site-packages" not in str(refused.value)
    for name in ("a", "b"):
        (tmp_path / "empty" / name).mkdir()
        (tmp_path / "empty" / name / "pipelines.py").touch()
    with pytest.raises(Refused, match=r"several files pipelines\.py: a/pipelines\.py, b/pipelines\.py"):
        declarations.load()


def test_the_project_above_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As for a command in one of its other folders."""
    monkeypatch.setattr(settings, "ROOT", tmp_path / "site-packages")
    for folder in ("my shop/shop", "my shop/dags/more"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "my shop" / "shop" / "pipelines.py").touch()

    for folder in ("dags", "dags/more"):
        monkeypatch.chdir(tmp_path / "my shop" / folder)
        with pytest.raises(Refused) as refused:
            declarations.load()
        assert f"in the project's folder (cd '{tmp_path / 'my shop'}')" in refused.value.hint


def test_projects_farther_below_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two folders below, and no deeper; none in folders of libraries."""
    monkeypatch.setattr(settings, "ROOT", tmp_path / "site-packages")
    for folder in ("work/my shop/shop", "work/.venv/lib", "work/node_modules/x", "work/a/b/c"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "pipelines.py").touch()
    monkeypatch.chdir(tmp_path / "work")

    with pytest.raises(Refused, match=r"farther below there is my shop/shop/pipelines\.py\n") as refused:
        declarations.load()

    assert "cd 'my shop'; or name the file: --pipelines 'my shop/shop/pipelines.py'" in refused.value.hint


def test_empty_list_of_pipelines_is_named_at_its_line(write: Callable[..., Path]) -> None:
    """Loading it is no mistake: the last pipeline may have been removed."""
    path = write(text="PIPELINES: list[object] = []\n")

    assert declarations.load([path]) == {}
    with pytest.raises(Refused, match=r"mine\.py:2: no pipeline 'shop': the list PIPELINES is empty") as refused:
        declarations.one("shop", [path])
    assert "PIPELINES = [Pipeline(" in refused.value.hint


@pytest.mark.parametrize("name", ["builtins:len", "os.path:join"])
def test_import_path_of_python_itself_is_refused(write: Callable[..., Path], name: str) -> None:
    path = write(text="")
    path.write_text(LINES.replace("m:f", name))
    [output] = declarations.load([path])["p"].outputs

    with pytest.raises(Refused, match=f":16: output all: the transform '{name}' is part of Python's own library"):
        declarations.transform(output)


SCHEMAS = {
    "one string": ('"id string, at date_time"', 7),
    "the second string": ('"id string, "\n            "at date_time"', 8),
    "a type behind its name": ('"id string, at "\n            "date_time"', 7),
    "in brackets": ('(\n            "id string, "\n            # the time\n            "at date_time"\n        )', 10),
    "three quotes": ('"""\n            id string,\n            at date_time\n        """', 9),
    "three quotes with an escape": ('"""id string,\\\n   at date_time"""', 7),
    "an expression": ('"id string, " + f"at date_time"', 7),
    "an umlaut before": ('"id string, größe long, " "at date_time"', 7),
    "a name twice": ('"id string, at timestamp, "\n            "ID string"', 8),
    "a comma missing between two": ('"id string, "\n            "at timestamp"\n            "cents long"', 8),
    "a comma too many": ('("id string, "\n            "shop string, ",\n            "at timestamp")', 8),
    "a name that no table has": ('"id string, at timestamp, "\n            "`x y` string"', 8),
}


@pytest.mark.parametrize("schema, line", SCHEMAS.values(), ids=SCHEMAS)
def test_error_of_a_schema_names_the_line_of_the_column(write: Callable[..., Path], schema: str, line: int) -> None:
    """Of several strings that Python joins the one that has it."""
    path = write(text="")
    path.write_text(re.sub(r"schema=\(.*?\n        \)", lambda _: f"schema={schema}", LINES, flags=re.DOTALL))

    with pytest.raises(Refused) as refused:
        declarations.load([path])

    assert refused.value.what.startswith(f"{path}:{line}: ")


def test_classes_may_stand_in_a_file_with_declarations(write: Callable[..., Path]) -> None:
    """Also a dataclass, which asks for its module while it is made.

    Afterwards nobody finds the module by its name: what is in it goes to executors by value."""
    path = write("a")
    shop = "from dataclasses import dataclass\n@dataclass\nclass Shop:\n    name: str\n"
    path.write_text(f"from __future__ import annotations\n{shop}{path.read_text()}")
    before = set(sys.modules)

    assert list(declarations.load([path])) == ["a"]
    assert not [name for name in set(sys.modules) - before if name.startswith("onlyonce_pipelines")]


def test_two_pipelines_of_one_name_are_refused(write: Callable[..., Path]) -> None:
    """In one file or in two; the message names the file with the second."""
    for files in ([write("a", "a", file="one.py")], [write("a", file="x.py"), write("a", file="y.py")]):
        with pytest.raises(Refused, match="a second pipeline is named 'a'") as refusal:
            declarations.load(files)
        assert str(files[-1]) in refusal.value.what
        assert "rename" in refusal.value.hint


def test_an_unknown_pipeline_is_answered_with_the_nearest(write: Callable[..., Path]) -> None:
    """By name."""
    with pytest.raises(Refused, match="no pipeline 'flihgts'") as refusal:
        declarations.one("flihgts", [write("flights", "shop")])

    assert "did you mean 'flights'?" in refusal.value.hint


def test_pipeline_of_another_project_is_refused_as_one_of_the_log(write: Callable[..., Path]) -> None:
    """Its file is what is missing, not its name."""
    with pytest.raises(
        Refused, match=r"the log has the pipeline 'shop', and no file that was read declares it"
    ) as refusal:
        declarations.pick(declarations.load([write("flights")]), "shop", logged=["shop"])

    assert refusal.value.hint == "name its file: --pipelines FILE. The declared pipelines are flights"


@pytest.mark.parametrize(
    "text, what, hint",
    [
        ("", "has no list PIPELINES", "PIPELINES = ["),
        ("PIPELINES = 3\n", r":2: PIPELINES is 3, and not a list of pipelines", "PIPELINES = ["),
        ("PIPELINES = ['shop']\n", r":2: PIPELINES has 'shop' in it, which is no Pipeline", "PIPELINES = ["),
        (
            f"SALES = {SHOP.format(name='t').strip()}\nPIPELINE = [SALES]\n",
            r":\d+: PIPELINE in place of PIPELINES",
            "PIPELINES = [SALES]",
        ),
        (
            f"SALES = {SHOP.format(name='t').strip()}\nPIPELINE = SALES\n",
            r":\d+: PIPELINE in place of PIPELINES",
            r"PIPELINES = [SALES]",
        ),
        (
            "PIPELINES = [\n",
            "can't be loaded: SyntaxError: .*was never closed\n",
            "close the bracket of line 2: PIPELINES = [",
        ),
        ("import not_there_at_all\n", "can't be loaded: ModuleNotFoundError: .*not_there_at_all", "correct the import"),
        ("1 / 0\n", "can't be loaded: ZeroDivisionError", "correct the file"),
        (
            "from onlyonce import Fixed\nFixed(1, zone='x')\n",
            r":3: Fixed: unknown option 'zone'",
            "did you mean 'timezone'",
        ),
        ("from onlyonce import Session\nSession()\n", r":3: Session lacks `gap`", "for example gap=timedelta(hours=1)"),
        ("import nunpy\n", r":2: .*No module named 'nunpy'", "did you mean 'numpy'?"),
        ("import sqlalchemy.ormm\n", r":2: .*No module named", "did you mean 'sqlalchemy.orm'?"),
        ("import onlyone\n", r":2: .*No module named 'onlyone'", "did you mean 'onlyonce'?"),
        (
            f"SALES = {SHOP.format(name='t').strip()}\nPIPELINES = [SALES, SALES]\n",
            r": the pipeline 't' is in PIPELINES twice",
            "take one of them out",
        ),
        ("import os\nos.environ['NOT_SET']\n", r":3: .*KeyError: 'NOT_SET'", "set the environment variable NOT_SET"),
        ("{}['at']\n", r":2: .*KeyError: 'at'", "correct the file"),
        ("from datetime import timedelta\ntimedelta(hour=1)\n", r":3: .*'hour'", "did you mean 'hours'?"),
        ("def f(rows): ...\nf()\n", r":3: .*missing 1 required", "a function is given without parentheses: f."),
        ("def f(a): ...\nf(b=1)\n", "can't be loaded: TypeError", "correct the file"),
        ("Session(gap=1)\n", "can't be loaded: NameError", "from onlyonce import Session"),
        ("timedelta(hours=1)\n", "can't be loaded: NameError", "add the import: from datetime import timedelta"),
        ("SHOP = 1\nPIPELINES = [SHOPP]\n", "can't be loaded: NameError", "did you mean 'SHOP'?"),
        ("from onlyonce import Postgress\n", "can't be loaded: ImportError", "did you mean 'Postgres'?"),
        ("Delta(wirte='upsert')\n", r"mine.py:\d+: Delta: unknown option 'wirte'", "did you mean 'write'?"),
        ("Delta(write='upsert')\n", r"mine.py:\d+: Delta: write='upsert' needs keys", r"keys=(…,)"),
    ],
    ids=[
        "nothing",
        "a number",
        "texts",
        "another name",
        "one pipeline under another name",
        "syntax",
        "import",
        "any error",
        "unknown option of a window",
        "missing option of a window",
        "a misspelt module that is installed",
        "a misspelt module of a package",
        "a misspelt module",
        "one pipeline twice",
        "a variable that is not set",
        "a key that is not there",
        "misspelt option of a timedelta",
        "a function that is called",
        "wrong call of their own",
        "a class that is not imported",
        "a class of Python that is not imported",
        "another name of their own",
        "a misspelt import",
        "unknown option",
        "wrong value",
    ],
)
def test_a_file_that_cannot_be_loaded_is_refused_with_the_cause(
    write: Callable[..., Path], text: str, what: str, hint: str
) -> None:
    """The file is named, the cause, and what to do."""
    path = write(text=text)
    with pytest.raises(Refused, match=what) as refusal:
        declarations.load([path])

    assert str(path) in refusal.value.what
    assert hint in refusal.value.hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("PIPELINES = [per_day]\n", "give its path, 'functions_here:per_day'; or import it"),
        ("from functions_here import per_dya\n", "did you mean 'per_day'? correct the import"),
    ],
)
def test_a_function_of_a_module_beside_the_declarations_is_found_by_its_name(
    write: Callable[..., Path], tmp_path: Path, text: str, hint: str
) -> None:
    """Or by a similar one."""
    path = write(text=text)
    (path.parent / "functions_here.py").write_text("def per_day(rows):\n    return rows\n")

    with pytest.raises(Refused) as refusal:
        declarations.load([path])

    assert hint in refusal.value.hint


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """With the two ways to name another; a folder is no file."""
    for path in (tmp_path / "nothing.py", tmp_path):
        with pytest.raises(Refused, match="no file with declarations") as refusal:
            declarations.load([path])
        assert "ONLYONCE_PIPELINES or --pipelines" in refusal.value.hint


def test_a_file_that_is_no_python_is_refused(write: Callable[..., Path]) -> None:
    """By its name."""
    with pytest.raises(Refused, match="is not a Python file"):
        declarations.load([write("a", file="mine.yaml")])


def test_transforms_lie_beside_their_declarations(write: Callable[..., Path]) -> None:
    """And are found from any folder; loading the declarations does not import them."""
    module = f"beside_{next(numbers)}"
    path = write(
        "a",
        file="own/mine.py",
        text=HEAD + f"PIPELINES = [{SHOP.format(name='a').strip()}]\n".replace("shop_rows", module),
    )
    (path.parent / f"{module}.py").write_text("def raw(rows):\n    return rows\n")
    declared = declarations.load([path])["a"]
    before = module in sys.modules
    found = declarations.transform(declared.output("raw"))

    assert not before
    assert found("rows") == "rows"


@pytest.mark.parametrize(
    ("transform", "proposed"),
    [
        ("not_there_at_all:raw", None),
        ("json:not_there_at_all", None),
        ("onlyonce.conosle:raw", "onlyonce.console"),
        ("onlyonec.console:raw", "onlyonce.console"),
    ],
)
def test_a_transform_that_is_not_there_is_refused(transform: str, proposed: str | None) -> None:
    """The message names output and function, and the module that is spelt alike."""
    output = Output(name="raw", transform=transform, sink=Delta())
    with pytest.raises(Refused, match=r"output raw: the transform .* does not exist") as refusal:
        declarations.transform(output)

    assert "'module:function'" in refusal.value.hint
    assert re.findall(r"did you mean '(.*)'\?", refusal.value.hint) == ([proposed] if proposed else [])


WRITTEN = (
    "import pyspark_is_not_here\ntry:\n    from x import rew\nexcept ImportError:\n    rew = None\ndef "
    "raw(rows):\n    return rows\n"
)


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("raw", None), ("rew", None), ("rawr", r"did you mean 'shop_\d+:raw'\?"), ("nothing_like_it", "has no 'nothing_like_it'"),
    ],
)  # fmt: skip
def test_whether_a_function_is_written_is_told_without_importing_its_module(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, named: str, told: str | None
) -> None:
    """A DAG file asks, where Spark is not installed."""
    module = f"shop_{next(numbers)}"
    made = SHOP.format(name="a").strip().replace("shop_rows:raw", f"{module}:{named}")
    path = write("a", file="own/mine.py", text=HEAD + f"PIPELINES = [{made}]\n")
    (path.parent / f"{module}.py").write_text(WRITTEN)
    monkeypatch.setenv("ONLYONCE_PIPELINES", str(path))

    if told is None:
        declarations.check_loaded()
    else:
        with pytest.raises(Refused, match=r"output raw: the transform .* does not exist") as refusal:
            declarations.check_loaded()
        assert re.search(told, str(refusal.value))
    assert module not in sys.modules


IS_THERE: dict[str, tuple[bytes, str]] = {
    "in another encoding": ("# -*- coding: latin-1 -*-\n# é\ndef f(rows): ...\n".encode("latin-1"), "f"),
    "a capture": (b"match len('a'):\n    case f: pass\n", "f"),
    "a star": (b"match [1]:\n    case [*f]: pass\n", "f"),
    "the rest": (b"match {1: 2}:\n    case {**f}: pass\n", "f"),
}


@pytest.mark.parametrize("case", IS_THERE)
def test_a_name_that_python_would_find_is_found(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In each encoding of a module's text, and however the text binds the name."""
    text, name = IS_THERE[case]
    module = f"there_{next(numbers)}"
    (tmp_path / f"{module}.py").write_bytes(text)
    monkeypatch.syspath_prepend(str(tmp_path))

    check_written(f"{module}:{name}", "the transform", data="nothing", hint="it is")


@pytest.mark.parametrize(
    ("init", "told"),
    [
        ("x = {}['k']\n", "KeyError: 'k'"),
        ("import not_there_at_all\n", "ModuleNotFoundError: No module named 'not_there_at_all'"),
    ],
)
def test_a_package_that_fails_is_named_by_its_line(
    init: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package above is imported to find the module in it: the module is not said to be missing."""
    package = f"pack_{next(numbers)}"
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text(init)
    (tmp_path / package / "f.py").write_text("def g(rows): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(Refused) as refused:
        check_written(f"{package}.f:g", "the transform", data="nothing", hint="it is")

    assert refused.value.what == f"{tmp_path}/{package}/__init__.py:1: the transform can't be imported: {told}"


def test_the_shipped_declarations_need_no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's scheduler reads them where Spark is not installed."""
    for name in [n for n in sys.modules if n.split(".")[0] == "pyspark"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)  # importing it raises ImportError

    assert list(declarations.load([settings.ROOT / "jobs" / "pipelines.py"])) == ["flights", "user_counts"]


# --- fingerprints
# ------------------------------------------------------------------------------------------------------

CODE = (
    "def totals(rows):\n    return rows\n\n\ndef of_totals(rows):\n    return rows\n\n\ndef other(rows):\n   "
    " return rows\n"
)


@pytest.fixture
def module(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Writes the transforms' module anew, as an edited file would be loaded; gives its name."""
    name = f"transforms_{next(numbers)}"
    sys.path.insert(0, str(tmp_path))

    def write(code: str) -> str:
        (tmp_path / f"{name}.py").write_text(code)
        sys.modules.pop(name, None)
        importlib.invalidate_caches()
        linecache.clearcache()
        sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
        importlib.import_module(name)
        sys.dont_write_bytecode = before
        return name

    yield write
    sys.modules.pop(name, None)


def shop(module: str, **changed: Any) -> Pipeline:
    """A pipeline with an output, one made from it, and one of its own."""
    outputs = (
        Output(name="totals", transform=f"{module}:totals", sink=Delta(), window=Fixed(timedelta(hours=1))),
        Output(name="of_totals", transform=f"{module}:of_totals", sink=Delta(), from_output="totals"),
        Output(name="other", transform=f"{module}:other", sink=Delta()),
    )
    plain: dict[str, Any] = {
        "name": "shop", "source": Files(), "schema": "id string, at timestamp", "record_id": ("id",), "event_time": "at",
        "outputs": outputs,
    }  # fmt: skip
    return Pipeline(**plain | changed)


def prints(pipeline: Pipeline) -> dict[str, str]:
    """The fingerprint of each of its queries."""
    return {query: declarations.fingerprint(pipeline, query) for query in ("receive", "totals", "other")}


def differing(one: dict[str, str], other: dict[str, str]) -> set[str]:
    """The queries whose fingerprints differ."""
    return {query for query in one if one[query] != other[query]}


def test_a_fingerprint_stays_while_nothing_has_changed(module: Callable[[str], str]) -> None:
    """Loaded again, from a file that was written again."""
    first = prints(shop(module(CODE)))

    assert prints(shop(module(CODE))) == first
    assert len(set(first.values())) == 3
    assert {len(value) for value in first.values()} == {16}


@pytest.mark.parametrize(
    "edited, changed",
    [
        (
            CODE.replace("def totals(rows):\n    return rows", "def totals(rows):\n    return rows.filter('x')"),
            {"totals"},
        ),
        (
            CODE.replace("def of_totals(rows):\n    return rows", "def of_totals(rows):\n    return rows * 2"),
            {"totals"},
        ),
        (CODE.replace("def other(rows):\n    return rows", "def other(rows):\n    return None"), {"other"}),
        ("import json\n\n" + CODE + "\n\ndef unused():\n    pass\n", set()),
    ],
    ids=["its function", "the function made from it", "another output's function", "the rest of the file"],
)
def test_a_fingerprint_follows_the_source_of_its_functions(
    module: Callable[[str], str], edited: str, changed: set[str]
) -> None:
    """Of the output and of those made from it, and of nothing else."""
    before = prints(shop(module(CODE)))

    assert differing(before, prints(shop(module(edited)))) == changed


def test_a_fingerprint_follows_what_decides_the_results(module: Callable[[str], str]) -> None:
    """Each option to the queries that it concerns; what only says how, where or when, to none."""
    name = module(CODE)
    plain = shop(name)
    totals, of_totals, other = plain.outputs
    longer = Output(
        name="totals",
        transform=totals.transform,
        sink=Delta(),
        window=totals.window,
        watermark_delay=timedelta(minutes=1),
    )
    elsewhere = Output(name="other", transform=other.transform, sink=Delta(path="x/y"))
    changes: list[tuple[dict[str, Any], set[str]]] = [
        ({"schema": "id string, at timestamp, n long"}, {"receive", "totals", "other"}),
        ({"record_id": ("id", "at")}, {"receive"}),
        ({"max_ahead": timedelta(hours=1)}, {"receive"}),
        ({"outputs": (longer, of_totals, other)}, {"totals"}),
        ({"outputs": (totals, of_totals, elsewhere)}, {"other"}),
        ({"outputs": (other, totals, of_totals)}, set()),
        ({"idle_after": timedelta(minutes=1)}, set()),
        ({"partitions": 9}, set()),
    ]

    assert [differing(prints(plain), prints(shop(name, **c))) for c, _ in changes] == [wanted for _, wanted in changes]


def test_a_declaration_against_the_old_names_is_told_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "old.py"
    path.write_text("from jobs.model.declare import Pipeline\n")

    with pytest.raises(Refused, match="from onlyonce import Pipeline"):
        declarations.load([path])


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        (b"x = '\xe9'\n", "mine.py:1: mine.py can't be loaded: SyntaxError: .*'utf-8' codec can't decode", "save the file in UTF-8"),
        (b"exec('a b')\n", "mine.py can't be loaded: SyntaxError: invalid syntax", "correct the file"),
    ],
    ids=["another encoding", "code in a string"],
)  # fmt: skip
def test_a_syntax_error_whose_text_cannot_be_read_is_refused(
    write: Callable[..., Path], text: bytes, what: str, hint: str
) -> None:
    """With the message of Python."""
    path = write(text="")
    path.write_bytes(text)

    with pytest.raises(Refused, match=what) as refused:
        declarations.load([path])

    assert refused.value.hint == hint


MODULE = "from onlyonce import Refused\nimport {imported}\ndef f(rows): return rows\n"


@pytest.mark.parametrize(
    "text, what, hint",
    [
        (MODULE.format(imported="pandsa"), "{module}:2: {it} can't be imported: ModuleNotFoundError: No module named 'pandsa'",
         "did you mean 'pandas'? correct the import; or install what brings pandsa wherever onlyonce and Airflow run"),
        ("def f(rows):\nreturn rows\n", "{module}:2: {it} can't be imported: IndentationError: expected an indented block after "
         "function definition on line 1", "indent the line below line 1"),
        ("def per_huor(rows): ...\n", "{file}: {it} does not exist: module '{name}' has no attribute 'per_hour'",
         "did you mean '{name}:per_huor'? it is"),
    ],
    ids=["its import", "its syntax", "no function"],
)  # fmt: skip
def test_a_module_that_fails_is_named_by_its_own_line(
    write: Callable[..., Path], tmp_path: Path, text: str, what: str, hint: str
) -> None:
    """One line, with what is wrong there, and not the line that names the module; that one if the name is wrong."""
    name = f"mine_{abs(hash(text))}"
    module = tmp_path / f"{name}.py"
    module.write_text(text)
    path = write(text="")
    path.write_text(DECLARED.format(module=name))
    [output] = declarations.load([path])["p"].outputs

    with pytest.raises(Refused) as refused:
        declarations.transform(output)

    words = {"module": module, "it": f"output all: the transform '{name}:per_hour'", "name": name, "file": f"{path}:4"}
    assert refused.value.what == what.format(**words)
    assert refused.value.hint.startswith(hint.format(**words))


DECLARED = """from onlyonce import Delta, Files, Output, Pipeline

PIPELINES = [Pipeline(name="p", source=Files(), schema="id string, at timestamp", record_id="id", event_time="at", outputs=[
    Output(name="all", transform="{module}:per_hour", sink=Delta())])]
"""


LINES = """from datetime import timedelta
from onlyonce import Delta, Files, Fixed, Output, Pipeline
PIPELINES = [
    Pipeline(
        name="p",
        source=Files(),
        schema=(
            "id string, "
            "at timestamp"
        ),
        record_id="id",
        event_time="at",
        outputs=[
            Output(
                name="all",
                transform="m:f",
                window=Fixed(timedelta(hours=1)),
                watermark_delay=timedelta(0),
                sink=Delta(),
            )
        ],
    )
]
"""


@pytest.mark.parametrize(
    "right, wrong, line",
    [
        ('"at timestamp"', '"at date_time"', 9),
        ('record_id="id"', 'record_id="it"', 11),
        ('event_time="at"', 'event_time="id_"', 12),
        ('event_time="at"', "event_tme='at'", 12),
        ('transform="m:f"', 'transform="f"', 16),
        ("watermark_delay=timedelta(0)", "watermark_delay=600", 18),
        ("sink=Delta()", 'sink="delta"', 19),
        ("sink=Delta()", 'sink=Delta(write="upsrt")', 19),
        ("watermark_delay=timedelta(0)", "watermark_delay=-timedelta(1)", 18),
        ('name="all"', 'name="All!"', 15),
        ('event_time="at",', 'event_time="at", formats={"id": "%q"},', 12),
        ("outputs=[", "outputs=[] and [", 13),
        ("        )\n        ],", "        ),\nOutput(\nname='all', transform='m:f', sink=Delta())],", 22),
    ],
    ids=[
        "type",
        "record_id",
        "event_time",
        "unknown",
        "transform",
        "length",
        "sink",
        "option of the sink",
        "negative",
        "name",
        "formats",
        "none",
        "twice",
    ],
)
def test_error_names_the_line_of_the_option(write: Callable[..., Path], right: str, wrong: str, line: int) -> None:
    """Not the line on which a long declaration begins."""
    path = write(text="")
    path.write_text(LINES.replace(right, wrong))
    assert path.read_text() != LINES

    with pytest.raises(Refused) as refused:
        declarations.load([path])

    assert refused.value.what.startswith(f"{path}:{line}: ")


def test_declaration_is_compiled_from_its_source(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit within the second, with as many characters, is seen, though there is bytecode of the text before."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = write(text="")
    for name in ("per_hour", "per_shop"):
        path.write_text(LINES.replace('name="all"', f'name="{name}"'))
        os.utime(path, (1_700_000_000,) * 2)
        assert [output.name for output in declarations.load([path])["p"].outputs] == [name]
        py_compile.compile(str(path))


@pytest.mark.parametrize(
    "broken",
    ["        window=Fixed(timedelta(hours=1),", '    schema=(\n        "id string"', '    record_id=("id",'],
    ids=["call", "lines", "tuple"],
)
def test_an_open_bracket_is_named_by_its_own_line(write: Callable[..., Path], broken: str) -> None:
    """Python names the outermost one, which a reader sees closed."""
    inner = broken if broken.startswith("        window") else "        window=Fixed(timedelta(hours=1)),"
    outer = '    name="p",' if inner == broken else broken
    text = (
        f'\nSHOP = Pipeline(\n{outer}\n    outputs=Output(\n{inner}\n        name="o",\n    ),\n)\nPIPELINES = [SHOP]\n'
    )
    path = write(text=text)
    with pytest.raises(Refused, match="was never closed") as refusal:
        declarations.load([path])

    number = path.read_text().splitlines().index(broken.splitlines()[0]) + 1
    assert refusal.value.hint == f"close the bracket of line {number}: {broken.splitlines()[0].strip()}"
