"""Names the settings whose values Spark shows on no page and writes to no event log."""

from __future__ import annotations

SETTING = "spark.redaction.regex"
OURS = (
    r"(?i)secret|password|token|access[._]?key|database_url"
    r"|^spark\.(yarn\.appMasterEnv|kubernetes\.driverEnv|executorEnv)\."
)
"""Every variable of a driver or an executor is hidden: any of them may be one that a declaration names."""


def merged(theirs: str | None) -> str:
    """Return a pattern that hides what the team's own pattern hides, and what ours does."""
    return OURS if not theirs or theirs == OURS else theirs if theirs.endswith(f"|{OURS}") else f"(?:{theirs})|{OURS}"
