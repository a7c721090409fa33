"""Pure decisions: the standard library only; no clock, no randomness, no files, no sockets.

| module    | decides                                                                       |
|-----------|-------------------------------------------------------------------------------|
| declare   | what a user may declare                                                       |
| windows   | which windows hold an event time                                              |
| frontier  | what is closed, what is late                                                  |
| units     | what commits as one, and whether a replay is the same data                    |
| errors    | who acts now                                                                  |
| report    | what an entry point hands back                                                |

The words are those of docs/reference/glossary.md: record, event time, system time, watermark, window,
pane, allowed lateness, batch, lineage, unit, epoch, generation, frontier, max event time (`tide` in the code).
"""
