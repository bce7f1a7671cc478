"""The processes of the service: a supervisor, one core, and the ingest workers."""
