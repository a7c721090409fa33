"""Write results, each unit once: to Delta, PostgreSQL, MySQL, Iceberg, sharded files, and the outbox.

The outbox holds rows that are sent to other systems.
"""
