"""Keep a process responsive under overload: admission control, fair shares, budgets and rate limits."""
