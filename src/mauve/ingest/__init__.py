"""The ingest plane: authenticate, validate and store events, objects and webhooks."""
