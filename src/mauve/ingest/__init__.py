"""The ingest plane: bytes → authenticated → (validated → queued)."""
