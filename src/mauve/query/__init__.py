"""The query plane: stored → read → cached."""
