"""The catalog in SQL: organizations, users, apps, credentials, webhook secrets."""
