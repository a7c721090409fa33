"""PostgreSQL, the authority on what is committed.

Every function takes a connection and never commits it: the caller owns the transaction (`connect.run`,
`connect.transaction`). SQL is in `sql/*.sql`, by name.

| module    | holds                                                                  |
|-----------|------------------------------------------------------------------------|
| connect   | connections, transactions, and what a lost connection means            |
| migrate   | the numbered SQL, under a lock                                         |
| lineages  | lineages, epochs, fencing                                              |
| batches   | begin, end; the frontier; closes                                       |
| units     | claim, check the epoch, fill                                           |
| catalog   | the record catalog: chunks of ids                                      |
| collector | which ids may go, and their drop                                       |
| merging   | the small chunks of a closed bucket made into large ones               |
| retention | what else goes, and when                                               |
| files     | the files of sharded sinks: winners, panes, final names                |
| backfills | begin and end of a backfill, and how far its output has come           |
| declared  | what each query ran under                                              |
| releases  | invalid and remnant rows that go in again                              |
| dropping  | what is forgotten of a dropped pipeline                                |
| alerting  | which alerts are raised and told                                       |
| health    | what the doctor asks: what is begun, dead, uneven                      |
| views     | what people ask: the views, read for reports                           |
"""
