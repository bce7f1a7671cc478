"""The meaning of each metric: what is read, and how it becomes rows. Pure."""
