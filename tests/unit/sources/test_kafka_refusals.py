"""Who must act when Kafka says no: whoever gave the options, or nobody but time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from onlyonce.api.declaration import AT
from onlyonce.api.messages import Kafka
from onlyonce.core.errors import OnlyonceError, Refused, Retryable
from onlyonce.sources.kafka_admin import _told

SALES = Kafka(topic="sales", servers="kafka-1:9093")


def java(*causes: tuple[str, str]) -> Any:
    """An error of Java, the outermost first, as (class, message)."""
    (kind, message), *below = causes
    return SimpleNamespace(
        getClass=lambda: SimpleNamespace(getSimpleName=lambda: kind),
        getMessage=lambda: message,
        getCause=lambda: java(*below) if below else None,
    )


@pytest.mark.parametrize(
    ("causes", "wanted", "said"),
    [
        (
            [("ExecutionException", ""), ("SaslAuthenticationException", "Authentication failed: Invalid username or password")],
            Refused, "Kafka at kafka-1:9093 refuses the login: Authentication failed: Invalid username or password",
        ),
        (
            [("ExecutionException", ""), ("SslAuthenticationException", "SSL handshake failed"), ("SSLHandshakeException", "PKIX path validation failed"),
             ("CertPathValidatorException", "signature check failed"), ("SignatureException", "Signature does not match.")],
            Refused, "Kafka at kafka-1:9093 refuses, or is refused by, the TLS certificate: Signature does not match.",
        ),
        ([("KafkaException", "Failed to create"), ("ConfigException", "No such file ca.pem")], Refused, "Kafka at kafka-1:9093 can't be asked with these options: No such file ca.pem"),
        ([("ExecutionException", ""), ("TopicAuthorizationException", "Not authorized to access topics: [sales]")], Refused,
         "Kafka at kafka-1:9093 refuses the account: Not authorized to access topics: [sales]"),
        ([("ExecutionException", ""), ("TimeoutException", "Timed out waiting for a node assignment. Call: listNodes")], Retryable,
         "Kafka at kafka-1:9093 does not answer"),
        ([("ExecutionException", ""), ("UnknownServerException", "out of memory")], Retryable, "Kafka at kafka-1:9093 does not answer: out of memory"),
    ],
    ids=["a wrong password", "a certificate of somebody else", "a wrong option", "no permission", "nobody there", "an error of the broker"],
)  # fmt: skip
def test_what_only_other_options_can_mend_is_refused_and_is_not_to_be_tried_again(
    causes: list[tuple[str, str]], wanted: type[OnlyonceError], said: str
) -> None:
    """However many layers of Java lie around and below the cause. It names the declaration's line, and no Java class."""
    object.__setattr__(SALES, AT, "shop/pipelines.py:16")
    told = _told(SALES, SimpleNamespace(java_exception=java(*causes)))  # type: ignore[arg-type]

    assert type(told) is wanted
    assert told.what == f"shop/pipelines.py:16: {said}"
