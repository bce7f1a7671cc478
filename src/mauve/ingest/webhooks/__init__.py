"""Billing webhooks: verify the signature over the raw bytes, map by pure rules, store before acknowledging."""
