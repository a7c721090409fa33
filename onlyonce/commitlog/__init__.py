"""The log of what is committed. PostgreSQL is the authority.

Each concern is a class. A method is one transaction, or joins the transaction in which it is called (`Transactions` in
`onlyonce.database.connect`). The SQL is in `sql/statements/*.sql`, by name.

| module    | holds                                                                                  |
|-----------|----------------------------------------------------------------------------------------|
| incarnations  | incarnations, epochs and fencing; the declarations of each query; progress of each source  |
| new_incarnations | where a new incarnation of a query begins, and the transaction that begins it                 |
| drivers   | drivers of Airflow's runs and of continuous runs; comparison of the driver's clock           |
| batches   | begin and end of a batch; the frontier; closes                                         |
| ends      | the transaction that ends a batch of an output; the versions of its lookups            |
| units     | a unit's claim, epoch check and content; the databases in which an incarnation has units    |
| ids       | chunks of the id catalog that are made again from `events`; what is known of a record  |
| files     | files of sharded sinks                                                                 |
| outbox    | rows and units that wait to be sent outside                                            |
| backfills | backfills; panes of windows that are written before they close                         |
| reprocessings  | reprocessings of invalid and expired rows; Spark's figures about the state of outputs       |
| sources   | corrected arrivals, failed attempts of receive, Pub/Sub subscriptions                  |
| removals  | rejected records, removals of old records, retention of the log                        |
| erasures  | erasures of a person's records                                                         |
| cuts      | compaction of `events`, decisions of `keep_events`, cuts of `keep_log`                 |
| dropping  | targets of outputs; drops of pipelines and outputs                                     |
| health    | alerts, what the doctor asks, and the views                                            |
"""
