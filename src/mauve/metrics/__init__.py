"""What each metric means. Pure: what is read, and how it becomes rows."""
