"""The processes: a supervisor, one core, and the ingest workers."""
