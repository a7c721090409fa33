"""PostgreSQL, the authority on what is committed.

Each concern is a class. A method is one transaction, or a part of the one in which it is called
(`database.transactions`). SQL is in `sql/*.sql`, by name.

| module        | holds                                                            |
|---------------|------------------------------------------------------------------|
| lineages      | lineages, epochs, fencing                                        |
| batches       | begin and end of a batch; the frontier; closes                   |
| units         | a unit's claim, the check of its epoch, its content              |
| authorities   | the databases in which a lineage may have units                  |
| declared      | the declarations that each query ran under                       |
| outputs       | windows: panes, backfills, releases                              |
| sinks         | files, rows of the outbox, and which output has which target     |
| subscriptions | landed messages that may be delivered again                      |
| long_runs     | the driver of a long run, its heartbeat, the request to stop     |
| driver_runs   | the drivers of Airflow's runs                                    |
| failures      | failed attempts of receive, and the records that it refuses since |
| operate       | its upkeep: what goes from it and when, alerts, what doctor asks |
| views         | the views, read for reports                                      |
"""
