"""Bytes and headers: requests read within bounds, replies in the right envelope."""
