"""What the embedded service keeps in its data directory, besides the SQL databases."""
