"""Backups in a bucket of Amazon S3, or of any store with the same interface."""
