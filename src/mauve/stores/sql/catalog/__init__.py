"""The catalog in SQL: organizations, people, apps, credentials, webhook secrets."""
