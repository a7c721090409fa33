"""The shop that looks up cities, with the cities in PostgreSQL."""

from __future__ import annotations

from tests.support.looks_up import copied_cities, shop

PIPELINES = [shop(copied_cities())]
