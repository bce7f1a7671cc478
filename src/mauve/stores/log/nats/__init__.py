"""The log and the edge on NATS JetStream servers. Only imported if MAUVE_STREAM_URL is set."""
