"""Who is calling, and with what right."""
