"""Metrics over time: periods, time series, and the SVG coordinates that draw them."""
