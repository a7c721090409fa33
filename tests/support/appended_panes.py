"""Early panes into sinks that add, by each trigger: their rows have the number of the pane."""

from __future__ import annotations

from datetime import timedelta

from onlyonce import AfterRecords, AfterTime, Delta, Output, Postgres, Webhook
from tests.support.file_panes import HERE, WINDOW, shop


def output(name: str, panes: object, sink: object, **options: object) -> Output:
    """An output with numbered panes."""
    return Output(name=name, transform=f"{HERE}:per_shop", panes=panes, pane_column="pane", sink=sink, **WINDOW, **options)  # type: ignore[arg-type] # fmt: skip


PIPELINES = [
    shop(
        output("early", "early", Delta()),
        output("after_records", AfterRecords(2), Postgres(table="results.after_records")),
        output("after_time", AfterTime(timedelta(microseconds=1)), Postgres(table="results.after_time")),
        output("sent", "early", Webhook(url="http://127.0.0.1:1"), on_backfill="resend"),
    )
]
