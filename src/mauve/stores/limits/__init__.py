"""Counts that limits need: reads, accepted events, processes that share a rate."""
