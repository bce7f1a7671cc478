"""Replies made smaller for those who can read it. Only what is read: a reply to a form may show a secret."""

import gzip
import re
from typing import Final

from mauve.web.messages import Reply

_WORTH_BYTES: Final = 1024
_LEVEL: Final = 5
_GZIP: Final = re.compile(r"(?:^|,)\s*gzip\s*(?:;\s*q=(?:1|0\.0*[1-9])[0-9.]*\s*)?(?:,|$)", re.IGNORECASE)


def deflated(reply: Reply, accept_encoding: str) -> Reply:
    """Return the reply compressed, if that is worth it and understood."""
    if len(reply.body) < _WORTH_BYTES:
        return reply
    headers = {**reply.headers, "vary": "accept-encoding"}
    if _GZIP.search(accept_encoding) is None:
        return reply._replace(headers=headers)
    body = gzip.compress(reply.body, _LEVEL, mtime=0)
    return Reply(reply.status, body, {**headers, "content-encoding": "gzip"})
