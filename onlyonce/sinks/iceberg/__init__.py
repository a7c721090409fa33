"""The Iceberg sink: tasks write data files, the driver commits them with the batch's name (`sink_iceberg`).

By pyiceberg, without a jar.
"""
