"""The seams between the rules and what keeps things: one `Protocol` each, one folder per engine."""
