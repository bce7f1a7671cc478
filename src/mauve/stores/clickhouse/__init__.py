"""The warehouse on ClickHouse, embedded as chDB, which has the same SQL as a cluster."""
