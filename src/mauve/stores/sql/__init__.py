"""The catalog on SQLAlchemy Core: SQLite embedded, PostgreSQL beyond, one implementation."""
