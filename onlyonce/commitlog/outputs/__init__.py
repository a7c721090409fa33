"""What the log knows of windows: their panes, backfills and releases."""
