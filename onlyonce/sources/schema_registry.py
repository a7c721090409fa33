"""Ask a schema registry for a schema by its id, by the client of confluent-kafka.

This runs on the driver, which sends the schemas to the tasks. An id means one schema for ever, so a replay or another
driver gets the same. The errors are Retryable while the registry does not answer, or answers that it can't. They are
Refused if it denies access, or if the address is not a registry. Only a registry's own "there is no such schema" means
a missing schema: any other 404 may be a wrong URL.
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
"""The registry's own error code."""
LAG_SECONDS = 1.0
"""How far a follower of a registry may lag behind its leader, which has assigned the id."""
NOTHING_DONE = "nothing of the batch was read; no record became invalid"


@dataclass(frozen=True)
class Schema:
    """A schema of the registry. `kind`: AVRO, PROTOBUF or JSON; `text`: for Protobuf the descriptor, in base64.

    `references`: its imports by name; each comes before the schemas that import it.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


def find(declared: MessageFormat, number: int) -> Schema | None:
    """Return the schema of an id; None if the registry reports the id as unknown in two consecutive requests."""
    found = _asked(declared, number)
    if found is None:
        time.sleep(LAG_SECONDS)
        found = _asked(declared, number)
    return found


def unknown(declared: MessageFormat, numbers: Iterable[int], most: int) -> list[int]:
    """Return the ids that the registry reports as unknown in two consecutive requests.

    Stop once there are more than `most`.
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
    # Protobuf is requested as a descriptor, which needs no parser of .proto files. Other kinds have no such form.
    form = "serialized" if kind == "PROTOBUF" else None
    client = _client(url, options)
    try:
        found = client.get_schema(number, fmt=form)
    except Exception as error:  # the client passes on errors of its HTTP library
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
    """Return a URL without the password that it may contain."""
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
            f"what answers at {shown(url)} is not a schema registry: {said}",
            data=NOTHING_DONE,
            hint="set registry= in the declaration, or the variable that it names, to the registry's base URL: the "
            "registry serves <URL>/schemas/ids/1",
        )
    return Retryable(
        f"the schema registry at {shown(url)} does not answer: {said}",
        data=NOTHING_DONE,
        hint="run the same command again when the registry is up",
    )
