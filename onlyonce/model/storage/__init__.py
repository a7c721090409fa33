"""Where things are: locations, folders that people name, folders of attempts, and the versions of a table. Pure."""
