"""The log on one machine: segment files, one directory per writer process."""
