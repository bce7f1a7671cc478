"""Mauve for agents: read-only MCP tools, over standard input and output or at `/mcp`."""
