"""Asks a schema registry for a schema by its id, by the client of confluent-kafka.

Runs on the driver; tasks are sent what it finds.

An id means one schema for ever. So a replay, or another driver, gets the same.

Who calls it: `kafka_schemas`. Errors: Retryable while the registry does not answer, or answers that it can't; Refused
where it refuses us, or where what answers is no registry. Only a registry's own "there is no such schema" counts as
that: any other 404 may be a wrong URL.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

from onlyonce.api.messages import MessageFormat
from onlyonce.core.errors import Refused, Retryable
from onlyonce.sources import kafka_admin

ANSWER_SECONDS = 20
TRIES = 3
NO_SUCH_SCHEMA = 40403
"""The registry's own code."""
LAG_SECONDS = 1.0
"""A follower of a registry may be so far behind its leader, who has given out the id."""
NOTHING_DONE = "nothing of the batch was read; no record became invalid"


@dataclass(frozen=True)
class Schema:
    """What the registry has of an id. `kind`: AVRO, PROTOBUF or JSON; `text`: of Protobuf the descriptor, in base64.

    `references`: what it imports, by name, those that others import first.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


def find(declared: MessageFormat, number: int) -> Schema | None:
    """The schema of an id; None where the registry says, twice, that there is none."""
    found = _asked(declared, number)
    if found is None:
        time.sleep(LAG_SECONDS)
        found = _asked(declared, number)
    return found


def unknown(declared: MessageFormat, numbers: Iterable[int], most: int) -> list[int]:
    """Those of some ids of which the registry says, twice, that it has none.

    Asks no more once there are more than `most`.
    """
    missing = _missing(declared, numbers, most)
    if missing:
        time.sleep(LAG_SECONDS)
    return _missing(declared, missing, most)


def _missing(declared: MessageFormat, numbers: Iterable[int], most: int) -> list[int]:
    return list(islice((number for number in numbers if _asked(declared, number) is None), most + 1))


def _asked(declared: MessageFormat, number: int) -> Schema | None:
    url = kafka_admin.resolved("registry", declared.registry)
    options = tuple((name, kafka_admin.resolved(name, value)) for name, value in declared.options.items())
    return _find(url, options, declared.kind, number)


def _find(url: str, options: tuple[tuple[str, str], ...], kind: str, number: int) -> Schema | None:
    # Protobuf comes as a descriptor, which needs no parser of .proto files. Others are not asked for by that word.
    form = "serialized" if kind == "PROTOBUF" else None
    client = _client(url, options)
    try:
        found = client.get_schema(number, fmt=form)
    except Exception as error:  # the client lets those of its HTTP library through
        if getattr(error, "error_code", None) == NO_SUCH_SCHEMA and getattr(error, "http_status_code", None) == 404:
            return None
        raise _told(url, error) from error
    try:
        return Schema(
            found.schema_type or "AVRO", found.schema_str or "", tuple(_references(client, found, form).items())
        )
    except Exception as error:
        if getattr(error, "http_status_code", None) == 404:
            raise Refused(
                f"the schema registry at {shown(url)} has schema {number}, and not all that it imports: {error}",
                data=NOTHING_DONE,
                hint="put the subjects and versions back that it imports, then run the same command again",
            ) from error
        raise _told(url, error) from error


def _references(client: Any, schema: Any, form: str | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in schema.references or ():
        there = client.get_version(one.subject, one.version, deleted=True, fmt=form).schema
        found |= _references(client, there, form)
        found[one.name] = there.schema_str
    return found


@cache
def _client(url: str, options: tuple[tuple[str, str], ...]) -> Any:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    ours = {"url": url, "timeout": ANSWER_SECONDS, "max.retries": TRIES - 1}
    try:
        return SchemaRegistryClient({**dict(options), **ours})
    except (ValueError, TypeError) as error:
        raise Refused(
            f"the options of the schema registry at {shown(url)} are wrong: {error}",
            data="nothing was read or written",
            hint="correct the options in the declaration: those of confluent-kafka's SchemaRegistryClient",
        ) from error


def shown(url: str) -> str:
    """A URL without the password that it may hold."""
    return ",".join(
        f"{scheme}{mark}{rest.rpartition('@')[2]}"
        for scheme, mark, rest in (one.partition("://") for one in url.split(","))
    )


def _told(url: str, error: Exception) -> Refused | Retryable:
    status = getattr(error, "http_status_code", None)
    said = " ".join(str(error).split())[:200] or type(error).__name__
    if status in (401, 403):
        return Refused(
            f"the schema registry at {shown(url)} refuses: {said}",
            data=NOTHING_DONE,
            hint="correct the options of the declaration, or what the variables that they name hold",
        )
    if status is not None and 400 <= status < 500 and status not in (408, 429):
        return Refused(
            f"what answers at {shown(url)} is no schema registry: {said}",
            data=NOTHING_DONE,
            hint="correct registry= in the declaration, or the variable that it names: the URL below which "
            "/schemas/ids/1 is",
        )
    return Retryable(
        f"the schema registry at {shown(url)} does not answer: {said}",
        data=NOTHING_DONE,
        hint="run the same command again when the registry is up",
    )
