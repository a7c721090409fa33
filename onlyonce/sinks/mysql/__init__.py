"""Write a unit's rows and its claim in one transaction of MySQL or MariaDB."""
