"""The log on one machine: segment files, one directory for each writer process."""
