"""The warehouse on ClickHouse servers."""
