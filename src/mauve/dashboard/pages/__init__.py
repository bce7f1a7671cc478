"""The page handlers, in modules named after their content."""
