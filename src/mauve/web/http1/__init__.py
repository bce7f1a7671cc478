"""HTTP/1.1 for the ingest workers: llhttp reads, the event loop's own thread does everything else (decision 16)."""
