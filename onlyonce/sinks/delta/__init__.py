"""Write results into Delta tables: each batch of an output is one commit with its name in it (`sink_delta`).

Spark's tasks write the data files, or the driver does if the batch is small.
"""
