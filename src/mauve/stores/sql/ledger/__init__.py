"""The ledger in SQL: payments, subscriptions, MRR, deliveries, usage, the loader's positions."""
