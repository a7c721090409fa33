"""Locations: paths and URLs are joined, named and compared alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from onlyonce.core.errors import Refused
from onlyonce.core.locations import Url, location


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3a://bucket//a", "s3://bucket/a"),
        ("gs://bucket", "gs://bucket"),
        ("abfss://box@account.dfs.core.windows.net/a", "abfss://box@account.dfs.core.windows.net/a"),
        ("/a/b", "/a/b"),
    ],
)
def test_a_location_has_one_name(text: str, said: str) -> None:
    assert str(location(text)) == said


@pytest.mark.parametrize(
    "text",
    [
        "s3://key:secret@bucket/a",
        "s3://bucket/a?endpoint_override=x",
        "s3:/bucket",
        "hdfs://host/a",
        "s3://",
        "s3://bucket/../a",
        "file:///a",
        "abfss://container/a",
        " s3://bucket/a",
        "~nobody_has_this_name/a",
    ],
)
def test_a_url_of_another_kind_or_with_a_secret_is_refused_and_the_secret_not_told(text: str) -> None:
    with pytest.raises(Refused) as told:
        location(text)
    assert "secret" not in str(told.value)


def test_a_url_is_joined_and_taken_apart_as_a_path_is() -> None:
    for root in (location("s3://bucket/root"), Path("/bucket/root")):
        below = root / "a" / "b=1" / "c.parquet"
        assert str(below) == f"{root}/a/b=1/c.parquet"
        assert (below.name, below.parent.name) == ("c.parquet", "b=1")
        assert below.relative_to(root).parts == ("a", "b=1", "c.parquet")  # type: ignore[arg-type]
        assert str(below.with_name("d")) == f"{root}/a/b=1/d"
        assert root.joinpath("a", "b=1").name == "b=1"
        assert root.joinpath() == root / "." == root
    bucket = location("s3://bucket")
    assert bucket.joinpath() == bucket / "." == bucket
    with pytest.raises(ValueError, match="below"):
        location("s3://bucket/a").relative_to(Url("s3://other"))  # type: ignore[arg-type]
