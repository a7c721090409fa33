"""Writes a unit's rows and its claim in one transaction of a MySQL or MariaDB."""
