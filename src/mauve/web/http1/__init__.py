"""HTTP/1.1 for the ingest workers: llhttp parses, and everything runs on the event loop's thread (decision 16)."""
