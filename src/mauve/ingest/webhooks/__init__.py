"""Billing webhooks: verified over the bytes that came, mapped by pure rules, durable before they are acknowledged."""
