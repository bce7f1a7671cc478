"""The warehouse on ClickHouse: embedded as chDB, whose SQL is the SQL of a cluster."""
