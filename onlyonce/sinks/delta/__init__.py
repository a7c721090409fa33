"""Results into Delta tables: each batch of an output is one commit with its name in it (`sink_delta`), by Spark's tasks
or by the driver."""
