"""What keeps a process responsive when it is asked for more than it can do."""
