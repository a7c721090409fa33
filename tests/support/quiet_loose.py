"""The same at least once: a batch's rows and its control row are two commits."""

from __future__ import annotations

from dataclasses import replace

from tests.support import quiet

PIPELINES = [replace(one, mode="at_least_once") for one in quiet.PIPELINES]
