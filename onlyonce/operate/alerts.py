"""Raise alerts, each cause once until it clears. `onlyonce alerts` and the DAG `onlyonce_audit` run it, without Spark.

The command asks the sources for their unread input first (`ask_first`). The DAG takes the stored answers.

The hook is ONLYONCE_ALERT_HOOK: 'module:function', called with a dictionary (`onlyonce.core.alerting`), or the URL of a
webhook. The webhook receives the dictionary as JSON; chat programs show its field `text`. Without a hook the causes are
only kept and shown.

If the hook fails for a cause, the other causes are sent and the next run sends this one again. A kill between the hook
and its note in the log sends a cause twice.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import structlog

from onlyonce import failed_runs, settings
from onlyonce.api import load as declarations
from onlyonce.api.resolve import named
from onlyonce.asked import parse
from onlyonce.catalog.expiry import Collector
from onlyonce.commitlog.health import Alerts, Health, Views
from onlyonce.core.alerting import Cause, Lag, Unread, causes
from onlyonce.core.errors import Retryable
from onlyonce.core.runs import Report
from onlyonce.database.connect import Database
from onlyonce.database.migrate import migrate
from onlyonce.failpoints import passing
from onlyonce.operate import audit
from onlyonce.sinks.outbox import send_webhook
from onlyonce.sources import backlog

log = structlog.get_logger()
Hook = Callable[[dict[str, str]], Any]
PATIENCE_SECONDS = 10.0


def main(argv: list[str]) -> Report:
    """Find the causes, keep them, and call the hook; report the raised alerts.

    Raise Refused if the hook is not valid, and Retryable if it failed.
    """
    return _raised(argv, ask=False)


def ask_first(argv: list[str]) -> Report:
    """Ask the declared sources, store their answers, and do what `main` does.

    A source that does not answer is an alert too.
    """
    return _raised(argv, ask=True)


def _raised(argv: list[str], *, ask: bool) -> Report:
    asked = parse("alerts", argv)
    minutes = settings.alert_lag_minutes() if asked.lag_minutes is None else asked.lag_minutes
    tell = hook(settings.alert_hook())
    database = Database(settings.database_url(), "onlyonce-alerts")
    migrate(database.url)
    if ask:
        backlog.ask_and_store(database, declarations.load(asked.pipelines).values())
    seen = _look(database, minutes * 60, asked.pipelines)
    cleared = Alerts(database).keep(seen)
    told, failed = _tell_all(database, tell) if tell else (0, [])
    raised = Alerts(database).raised()
    if failed:
        raise Retryable(
            f"the alert hook failed for {len(failed)} of {len(raised)} alert(s): {failed[0]}",
            data="the data is not affected; the other causes were sent",
            hint="`onlyonce alerts` tries again, and so does the next check; ONLYONCE_ALERT_HOOK names the hook",
        )
    facts = {"raised": len(raised), "told now": told, "cleared": len(cleared), "hook": "set" if tell else "none"}
    title = f"alerts: {len(raised)} raised" if raised else "alerts: none"
    shown = {"alerts": raised, "cleared": [vars(cause) for cause in cleared]}
    return Report(title, f"alerts__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S}", facts, shown)


def hook(asked: str | None) -> Hook | None:
    """Return the hook of that name. Raise Refused if there is none."""
    if asked is None:
        return None
    if asked.startswith(("http://", "https://")):
        return lambda message: _post(asked, message)
    found: Hook = named(
        asked, f"the alert hook {asked!r}",
        data="no alert was sent",
        hint="ONLYONCE_ALERT_HOOK is 'module:function', importable where the audit runs, or a URL of http or https",
    )  # fmt: skip
    return found


def _post(url: str, message: dict[str, str]) -> None:
    try:
        with (
            send_webhook.hold_deadline(httpx.Client()) as client,
            send_webhook.within_deadline(PATIENCE_SECONDS),
            client.stream("POST", url, json=message) as got,
        ):
            got.raise_for_status()  # the body of the answer is not read
    except httpx.HTTPStatusError as error:
        # Not the error's own message: a webhook's URL is a secret.
        raise Retryable(f"the webhook answered {error.response.status_code}") from None
    except httpx.HTTPError as error:
        raise Retryable(f"the webhook did not answer: {type(error).__name__}") from None


def _look(database: Database, lag_seconds: float, files: list[Path] | None) -> list[Cause]:
    seen = audit.gather(database)
    near = Collector(database).near_horizon()
    lag = [Lag(**{name: row[name] for name in Lag.__dataclass_fields__}) for row in Views(database).rows("lag")]
    with Health.at_one_moment(database) as health:
        queries, begun = health.queries(), health.begun().batches
    unread = [Unread(**row) for row in Views(database).rows("backlog")]
    broken = audit.unconserved(seen, declarations.load(files))
    ends, runs = Views(database).rows("last_ends"), Views(database).rows("status")
    # Not the error, which may have values of a record.
    failed = [
        (end.pipeline, f"{end.command}, exit code {end.exit_code}") for end in failed_runs.found(ends, runs, None)
    ]
    return list(causes(broken, lag, near, lag_seconds, queries, begun, unread, failed))


def _tell_all(database: Database, tell: Hook) -> tuple[int, list[str]]:
    """Return how many causes were sent, and why others were not.

    Each report is noted immediately, in its own transaction.
    """
    told, at = 0, ("", "")
    failed: list[str] = []
    while True:
        with Alerts.once(database) as alerts:
            cause = alerts.untold(at)
            if cause is None:
                return told, failed
            at = (cause.kind, cause.subject)
            try:
                tell(cause.message())
            except Exception as error:  # the hook is the user's code: a failure must not hold up the other causes
                failed.append(str(error) or type(error).__name__)
                log.error("alert hook", cause=cause.what, problem=failed[-1])
                continue
            passing("alerts-after-hook")
            alerts.told(cause)
            told += 1
