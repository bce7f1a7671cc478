"""From the log into the warehouse: decode, deduplicate, store."""
