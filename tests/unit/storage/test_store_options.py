"""What Spark and delta-rs are told of a store: all that they need, nothing where data is on a disk, and never a
secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from onlyonce.core.errors import Refused
from onlyonce.core.locations import location
from onlyonce.engine import options
from onlyonce.tables import stores

SECRETS = {"AWS_ACCESS_KEY_ID": "an-id", "AWS_SECRET_ACCESS_KEY": "a-secret", "AWS_SESSION_TOKEN": "a-token"}


@pytest.fixture(params=["http://127.0.0.1:9000", "https://s3.example.org", None])
def endpoint(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Amazon's own store, or another one."""
    for name in (*SECRETS, *stores.ENDPOINTS, *stores.REGIONS):
        monkeypatch.delenv(name, raising=False)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    given: str | None = request.param
    if given:
        monkeypatch.setenv("AWS_ENDPOINT_URL", given)
    return given


def test_no_secret_is_told_and_plain_http_only_where_the_endpoint_speaks_it(endpoint: str | None) -> None:
    at = location("s3://bucket/lake")
    spark, delta = stores.options_of_spark(at), stores.options_of_delta(at)
    assert delta is not None
    assert not {*SECRETS.values()} & {*spark.values(), *delta.values()}
    assert ("allow_http" in delta) == bool(endpoint and endpoint.startswith("http://"))
    assert spark.get("spark.hadoop.fs.s3a.endpoint") == delta.get("aws_endpoint_url") == endpoint


def test_of_a_disk_spark_is_told_how_to_write_checkpoints_and_delta_rs_nothing(endpoint: str | None) -> None:
    assert stores.options_of_spark(location("/lake")) == {stores.CHECKPOINTS: stores.ON_DISK}
    assert stores.options_of_delta(location("/lake")) is None


def test_the_jars_of_s3_are_on_the_class_path_only_where_data_is_there(tmp_path: Path) -> None:
    folder, beside = tmp_path / "jars", tmp_path / "jars-s3"
    folder.mkdir()
    (folder / "delta-spark_4.2_2.13-4.4.0.jar").touch()
    path = "spark.driver.extraClassPath"
    assert options.jars_of_session(folder)[path] == f"{folder}/*"
    with pytest.raises(Refused, match="jars with which Spark reaches S3"):
        options.jars_of_session(folder, s3=True)
    beside.mkdir()
    (beside / "hadoop-aws-3.5.0.jar").touch()
    assert options.jars_of_session(folder, s3=True)[path] == f"{folder}/*:{beside}/*"


@pytest.mark.parametrize(
    ("url", "client"), [("gs://lake", "gcs-connector"), ("abfss://lake@there.dfs.core.windows.net", "hadoop-azure")]
)
def test_a_store_that_spark_has_no_client_of_is_refused_before_it_starts(tmp_path: Path, url: str, client: str) -> None:
    """Unless somebody has brought it."""
    with pytest.raises(Refused, match=f"no jar {client}"):
        options.refuse_without_client(location(url), tmp_path, ["", "io.delta:delta-spark_2.13:4.0.0"])
    options.refuse_without_client(location(url), tmp_path, [f"x:{client}:3.1"])
    options.refuse_without_client(location("s3://lake"), tmp_path, [])
    options.refuse_without_client(tmp_path, tmp_path, [])
    (tmp_path / f"{client}-3.jar").touch()
    options.refuse_without_client(location(url), tmp_path, [])
