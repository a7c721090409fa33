"""What a run refuses in three lines, before it has written or registered anything, where its data would be in a
store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from onlyonce import settings
from onlyonce.core.errors import OnlyonceError, Refused
from onlyonce.core.locations import location
from onlyonce.tables import claims, stores
from tests.support import s3
from tests.support.platform import Platform, free_port
from tests.support.s3 import S3

OTHERS = b'{"platform": "another"}'


@pytest.fixture
def bucket(platform: Platform, versitygw: S3, monkeypatch: pytest.MonkeyPatch) -> str:
    """A bucket of a real server, in which the platform's data is to be."""
    made = versitygw.bucket()
    platform.give(monkeypatch, **versitygw.environment, ONLYONCE_DATA=f"{made}/lake")
    return made


def told(platform: Platform) -> OnlyonceError:
    """What a run says; it registers nothing."""
    with pytest.raises(OnlyonceError) as error:
        platform.run("shop")
    assert len(str(error.value).splitlines()) == 3
    assert s3.SECRET not in str(error.value)
    if platform.sql("SELECT to_regclass('onlyonce_private.pipelines')::text AS name")["name"][0]:
        assert platform.sql("SELECT * FROM onlyonce_private.pipelines").empty
    return error.value


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"ONLYONCE_DATA": "s3://there-is-none/lake"}, "does not exist"),
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "does not let us in"),
        ({"AWS_ACCESS_KEY_ID": "wrong"}, "does not let us in"),
        ({"AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}"}, "does not answer"),
        ({"ONLYONCE_DATA": "hdfs://there/lake"}, "not s3://"),
    ],
    ids=["bucket", "secret", "key", "endpoint", "scheme"],
)
def test_a_store_that_is_not_there_or_does_not_let_us_in(
    platform: Platform, bucket: str, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], says: str
) -> None:
    platform.give(monkeypatch, **variables)
    assert says in str(told(platform))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (claims.CLAIM, OTHERS, "another platform"),
        (claims.CLAIM, b"{", "whose data"),
        ("data/shop/events/x", b"", "nothing says whose"),
    ],
)
def test_a_prefix_with_data_of_others(platform: Platform, bucket: str, name: str, content: bytes, says: str) -> None:
    at = settings.data_root() / name
    stores.of(at).put(at, content)
    assert says in str(told(platform))
    assert [entry.at for entry in stores.of(at).entries(settings.data_root())] == [at]


@pytest.fixture
def deaf(moto: S3) -> Iterator[S3]:
    """A store without conditional PUT."""
    moto.ill("deaf", every=1, method="PUT")
    yield moto
    moto.well()


def test_a_store_without_conditional_put_is_found_out_by_trying(
    platform: Platform, deaf: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = f"{deaf.bucket()}/lake"
    platform.give(monkeypatch, **deaf.environment, ONLYONCE_DATA=root)
    assert "no conditional PUT" in str(told(platform))
    assert [*stores.of(location(root)).entries(location(root))] == []


def test_a_claim_is_made_once_and_is_the_platforms_own(bucket: str) -> None:
    root = location(f"{bucket}/lake")
    for _ in range(2):
        claims.claim(root, "ours")
    assert [entry.at.name for entry in stores.of(root).entries(root)] == [claims.CLAIM]
    with pytest.raises(Refused, match="another platform"):
        claims.claim(root, "theirs")
