"""Mauve: metrics for developers who run several apps."""
