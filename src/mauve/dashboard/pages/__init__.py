"""One module per page: its handlers and what its template shows."""
