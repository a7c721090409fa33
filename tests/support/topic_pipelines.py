"""The two pipelines that ship, fed by topics of their names, at the broker that the environment names.

With TOPIC_LOGIN in it they say who they are, by TLS; they trust the certificate in the file TOPIC_TRUST.
"""

from __future__ import annotations

import os
from dataclasses import replace

from jobs.pipelines import FLIGHTS, USER_COUNTS
from onlyonce.api.pipeline import Kafka, Pipeline

WITH_PASSWORD = {
    "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": "env:TOPIC_LOGIN",
    "ssl.truststore.type": "PEM", "ssl.truststore.location": "env:TOPIC_TRUST",
}  # fmt: skip


def _fed(pipeline: Pipeline) -> Pipeline:
    topic = Kafka(
        topic=f"{pipeline.name}-{os.environ.get('TOPICS', 'x')}",
        servers=os.environ.get("TOPIC_SERVERS", "localhost:9092"),
        max_offsets_a_batch=int(os.environ.get("TOPIC_OFFSETS", "1000")),
        options=WITH_PASSWORD if "TOPIC_LOGIN" in os.environ else {},
    )
    return replace(pipeline, source=topic)


PIPELINES = [_fed(FLIGHTS), _fed(USER_COUNTS)]
