"""The control plane: apps, keys and webhook secrets over HTTP, and what the operator may do besides."""
