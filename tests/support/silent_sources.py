"""The shop with three sources, of which a broker and a store take a connection and never answer."""

from __future__ import annotations

from dataclasses import replace

from onlyonce import Files, Input, Kafka
from onlyonce.environment import variable
from tests.support.two_sources import WEB, pipeline

SERVERS = variable("SILENT_SERVERS") or "localhost:1"
SOURCES = {
    "web": WEB,
    "topic": Input(source=Kafka(topic="web", servers=SERVERS)),
    "store": replace(WEB, source=Files(inbox="s3://bucket/inbox", max_files_a_batch=1)),
}
PIPELINES = [pipeline(sources=SOURCES)]
