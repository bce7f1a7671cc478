"""Which engine implements which store interface. No other package names an engine."""
