"""Folders that people name: a URL never becomes a local folder, and an inbox is there and the same for everybody, or
the run is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onlyonce import settings
from onlyonce.api.pipeline import Delta, Files, FileSink, Growing, PubSub
from onlyonce.core.errors import Refused, Retryable
from onlyonce.sources import source_files
from onlyonce.sources.discovery import Inbox, Registered, look_for_folder
from onlyonce.sources.listing import InputFile
from tests.support.shop import SHOP

URLS = ["s3://landing/orders", "s3a:/lake/all", "gs://b/c", "file:///data/in", "hdfs://n:9000/x"]
TAKES: dict[str, Callable[[str], Any]] = {
    "Files": lambda path: Files(inbox=path), "Growing": lambda path: Growing(inbox=path),
    "PubSub": lambda path: PubSub(subscription="projects/p/subscriptions/s", inbox=path),
}  # fmt: skip


@pytest.mark.parametrize(
    ("where", "why"), [("Growing", "no object is appended to"), ("PubSub", "it would become a local folder")]
)
@pytest.mark.parametrize("url", URLS)
def test_a_url_is_no_folder_of_a_declaration(where: str, why: str, url: str) -> None:
    """It is refused when the declaration is made, and not written to as a folder of that name."""
    with pytest.raises(Refused, match=f"a URL: {why}"):
        TAKES[where](url)
    TAKES[where]("/data/in")


@pytest.mark.parametrize("url", ["s3a:/lake/all", "file:///data/in", "s3://key:secret@bucket/in", "s3://bucket/a/../b"])
def test_an_inbox_is_a_prefix_of_an_object_store_or_no_url(url: str) -> None:
    """One that is no prefix is refused, and so is what can't be read from there."""
    with pytest.raises(Refused, match="Files: inbox is"):
        Files(inbox=url)
    Files(inbox="s3://bucket/in")
    with pytest.raises(Refused, match="of s3://bucket/in"):
        Files(inbox="s3://bucket/in", links=True)


@pytest.mark.parametrize("url", ["s3a:/lake/all", "file:///data/in", "hdfs://n:9000/x", "s3://key:secret@bucket/in"])
def test_a_delta_table_is_a_folder_or_in_a_store_of_the_kind_that_has_the_data(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session has the jars of that store alone."""
    with pytest.raises(Refused, match="Delta: path is"):
        Delta(path=url)
    Delta(path="s3://bucket/table")
    with pytest.raises(Refused, match="the platform's data is in"):
        settings.table_location("s3://bucket/table")
    monkeypatch.setenv("ONLYONCE_DATA", "s3://lake")
    assert str(settings.table_location("s3://bucket/table")) == "s3://bucket/table"
    with pytest.raises(Refused, match="the platform's data is in"):
        settings.table_location("gs://bucket/table")


@pytest.mark.parametrize("path", ["s3:/bucket/folder", "file:///data/out", "FILE:///data/out"])
def test_a_file_sink_takes_urls_of_object_stores_only(path: str) -> None:
    """A slash that is missing makes no local folder."""
    with pytest.raises(Refused, match="a URL"):
        FileSink(path=path)
    FileSink(path="s3://bucket/folder")


@pytest.mark.parametrize("sink", [FileSink, Delta])
def test_a_folder_of_results_is_the_same_for_whoever_runs_it(sink: Callable[..., Any]) -> None:
    """One of a user's home would be another for Airflow's."""
    with pytest.raises(Refused, match="another folder for each user"):
        sink(path="~/out")


def test_a_url_is_no_folder_of_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever asks for it is refused."""
    monkeypatch.setenv("ONLYONCE_HOME", "s3a://lake/home")
    with pytest.raises(Refused, match="ONLYONCE_HOME is 's3a://lake/home', a URL"):
        settings.home()


@pytest.mark.parametrize("where", ["Files", "Growing", "PubSub"])
@pytest.mark.parametrize("path", ["in", "./in", "~/in", ""])
def test_an_inbox_is_the_same_for_whoever_runs_it(where: str, path: str) -> None:
    """A relative one would be another for a DAG than for a person."""
    with pytest.raises(Refused, match="is another folder if it runs elsewhere"):
        TAKES[where](path)


def inbox(folder: Path, source: Any) -> Inbox:
    """The inbox of a pipeline with that source."""
    return Inbox("shop", folder, folder / "none", 10, replace(SHOP, source=source))


def test_an_inbox_that_is_not_there_is_refused_by_the_run_and_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    """With the command that makes it. One in the home is made by the first run; later it must be there too."""
    missing, read = tmp_path / "a" / "in", Registered({"x": (1, 1)}, {}, 1, None, empty=False)
    for source, there in (
        (Files(inbox=str(missing)), Registered({}, {})),
        (Growing(inbox=str(missing)), Registered({}, {})),
        (Files(), read),
    ):
        with pytest.raises(Refused, match="is not a folder") as refused:
            look_for_folder(inbox(missing, source), there)
        assert f"mkdir -p {missing}" in refused.value.hint
    assert not missing.exists()

    look_for_folder(inbox(missing, Files()), Registered({}, {}))
    look_for_folder(inbox(missing, Files(inbox=str(missing))), read)

    assert missing.is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match="is not a folder"):
        look_for_folder(inbox(tmp_path / "file", Files()), Registered({}, {}))


@pytest.mark.parametrize("source", [Files(), Growing()], ids=["files", "growing"])
def test_an_inbox_that_is_gone_loses_no_file_of_a_batch(tmp_path: Path, source: Any) -> None:
    """The batch waits for it. A file that is gone from an inbox is a reason, as before."""
    folder = tmp_path / "in"
    (folder / "sub").mkdir(parents=True)
    pipeline = replace(SHOP, source=source)
    listed = [
        InputFile(str(folder / "a.jsonl"), 1, 1, 1, None, mark="m" if source.in_ranges else "", identity="i"),
        InputFile(
            str(folder / "sub" / "b.jsonl"), 1, 1, 1, None, root=str(folder), mark="m" if source.in_ranges else ""
        ),
    ]
    assert source_files.unreadable(pipeline, listed[1:]).keys() == {listed[1].path}
    (folder / "sub").rmdir()
    folder.rmdir()

    for file in listed[1:]:
        with pytest.raises(Retryable, match=f"the inbox {folder} is no folder any more"):
            source_files.unreadable(pipeline, [file])
