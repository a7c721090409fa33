"""What a schema registry answers, and what that means: only its own word makes an id unknown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from onlyonce.api.messages import Avro, Kafka, Protobuf
from onlyonce.core.errors import OnlyonceError, Refused, Retryable
from onlyonce.sources import kafka_messages
from onlyonce.sources import schema_registry as asking
from tests.support import schema_registry
from tests.support.framed_messages import SALE
from tests.support.schema_registry import Registry


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry over HTTP. A follower's lag, and a client's patience, are short here."""
    monkeypatch.setattr(asking, "LAG_SECONDS", 0.0)
    monkeypatch.setattr(asking, "TRIES", 1)
    with schema_registry.running() as running:
        yield running


NOT_FOUND = (404, '{"error_code": 40403, "message": "Schema not found"}')


@pytest.mark.parametrize(
    ("answer", "wanted", "said"),
    [
        ((500, '{"error_code": 50001, "message": "Error in the backend"}'), Retryable, "does not answer"),
        ((503, "no leader"), Retryable, "does not answer"),
        ((429, "slow down"), Retryable, "does not answer"),
        ((200, "<html>a proxy's login</html>"), Retryable, "does not answer"),
        ((404, "<html>no such page</html>"), Refused, "is not a schema registry"),
        ((404, '{"error_code": 404, "message": "HTTP 404 Not Found"}'), Refused, "is not a schema registry"),
        ((401, '{"error_code": 40101, "message": "Unauthorized"}'), Refused, "refuses"),
    ],
)
def test_no_answer_but_the_registrys_own_makes_an_id_unknown(
    registry: Registry, answer: tuple[int, str], wanted: type[OnlyonceError], said: str
) -> None:
    """Whatever it is, a record does not become invalid by it."""
    number = registry.put("sales-value", SALE)
    registry.always = answer
    with pytest.raises(wanted, match=said):
        asking.find(Avro(registry=registry.url), number)
    registry.always = None
    assert asking.find(Avro(registry=registry.url), number) == asking.Schema("AVRO", json.dumps(SALE))


def test_an_id_is_unknown_when_the_registry_has_said_so_twice(registry: Registry) -> None:
    """A follower that lags behind its leader is asked again; nobody there at all is no answer, and told without the
    password in the URL."""
    number = registry.put("sales-value", SALE)
    assert asking.find(Avro(registry=registry.url), number + 1) is None
    registry.answers = [NOT_FOUND]
    assert asking.find(Avro(registry=registry.url), number) is not None

    with pytest.raises(Retryable, match=r"http://127.0.0.1:1 does not answer") as told:
        asking.find(Avro(registry="http://127.0.0.1:1"), number)
    assert "no record became invalid" in str(told.value.data)
    assert asking.shown("https://me:secret@a:1,https://b:2") == "https://a:1,https://b:2"


def test_who_asks_is_known_by_what_the_environment_holds(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """URL and login by variables; one that is not set is named.

    What a schema imports comes with it, in the order in which it is needed.
    """
    registry.login = "Basic bWU6c2VjcmV0"
    of = Protobuf(registry="env:SALES_REGISTRY", options={"basic.auth.user.info": "env:SALES_LOGIN"})
    monkeypatch.setenv("SALES_REGISTRY", registry.url)
    with pytest.raises(Refused, match="SALES_LOGIN of the option"):
        asking.find(of, 1)
    monkeypatch.setenv("SALES_LOGIN", "me:secret")
    registry.put("deep", "ZGVlcA==", "PROTOBUF")
    registry.put("middle", "bWlkZGxl", "PROTOBUF", [{"name": "deep.proto", "subject": "deep", "version": 1}])
    number = registry.put(
        "sales-value", "c2FsZQ==", "PROTOBUF", [{"name": "middle.proto", "subject": "middle", "version": 1}]
    )

    found = asking.find(of, number)

    assert found == asking.Schema("PROTOBUF", "c2FsZQ==", (("deep.proto", "ZGVlcA=="), ("middle.proto", "bWlkZGxl")))
    registry.subjects["middle"] = []
    asking._client.cache_clear()
    with pytest.raises(Refused, match=f"has schema {number}, and not all that it imports"):
        asking.find(of, number)
    assert any("format=serialized" in path for path in registry.asked)


def test_a_batch_may_name_any_number_of_schemas_that_the_registry_knows(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that it does not know it is asked once more for all of them together; a topic that names very many is no
    topic of framed messages."""
    monkeypatch.setattr(kafka_messages, "MOST_UNKNOWN", 3)
    known = [registry.put(f"sales-{number}-value", SALE | {"name": f"Sale{number}"}) for number in range(20)]
    last = max(known)
    source = Kafka(topic="sales", servers="kafka-1:9093", value=Avro(registry=registry.url))
    waited: list[float] = []
    monkeypatch.setattr(asking, "time", SimpleNamespace(sleep=waited.append))

    assert kafka_messages.unknown_schemas(source, {"value": known}) == {}
    assert waited == []
    facts = kafka_messages.unknown_schemas(source, {"value": [*known, last + 1, last + 2, last + 3]})
    assert [fact["schema"] for fact in facts.values()] == [last + 1, last + 2, last + 3]
    assert waited == [asking.LAG_SECONDS]
    registry.asked.clear()
    with pytest.raises(
        Refused, match="one batch of topic sales names more than 3 schemas that the registry does not know"
    ):
        kafka_messages.unknown_schemas(source, {"value": list(range(last + 1, last + 1000))})
    assert len(registry.asked) == 8


def test_an_unknown_schema_is_stored_under_its_name(registry: Registry) -> None:
    """The row of a batch that began keeps it, and a later version looks for it there."""
    source = Kafka(topic="sales", servers="kafka-1:9093", value=Avro(registry=registry.url))
    assert [*kafka_messages.unknown_schemas(source, {"value": [5]})] == ["the value's schema 5"]
