"""Pure decisions. These modules use the standard library only: no clock, no randomness, no files, no sockets.

| module    | decides                                                                       |
|-----------|-------------------------------------------------------------------------------|
| batch     | what the log stores of a batch, and what a replay must repeat                 |
| windows   | which windows hold an event time                                              |
| frontier  | what is closed, what is late, which of several sources is idle                |
| units     | what is committed together, and whether a replay is the same data             |
| errors    | who must act after an error                                                   |
| runs      | what a command reports at its end, and how outputs fail apart                 |
| locations | what a path or URL means, and how it is written                               |
| line_values | which JSON and CSV lines are valid, and the values on them                  |
| triggers  | when an open window gives an early pane, and a closed one a late pane         |
| delivery  | what the answer of an endpoint means for a row of the outbox                  |
| idle      | whether a run has work, or need not start Spark                               |
| retention | which commits may be compacted, and which records may be removed              |

docs/reference/glossary.md defines the words: record, event time, ingestion time, watermark, window, pane, watermark
delay, batch, incarnation, unit, epoch, generation, frontier, max event time.
"""
