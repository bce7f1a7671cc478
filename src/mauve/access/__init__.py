"""Authentication and limits: keys, tokens, passwords, sessions, event caps and read limits."""
