"""A believable history for people who want to look around: made up, then stored as the product stores its own."""
