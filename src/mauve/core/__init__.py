"""Values and pure rules. Nothing here reads a clock, a file, a socket or the environment."""
