"""The catalog and the ledger on SQLAlchemy Core: one implementation for SQLite and PostgreSQL."""
