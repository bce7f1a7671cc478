"""Parse the query string within bounds."""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final
from urllib.parse import parse_qs

from mauve.core.problems import Code, Problem

_PARAMETERS_MAX: Final = 100
_CACHED_BYTES_MAX: Final = 512
_CACHE_SIZE: Final = 4_096


def parameters_from(query: bytes) -> Mapping[str, list[str]]:
    """Return every value of every parameter, empty ones too, in order."""
    return _parsed_cached(query) if len(query) <= _CACHED_BYTES_MAX else _parsed(query)


def _parsed(query: bytes) -> Mapping[str, list[str]]:
    try:
        parsed = parse_qs(query.decode(), keep_blank_values=True, errors="strict", max_num_fields=_PARAMETERS_MAX)
    except ValueError:
        raise Problem(
            Code.MALFORMED, f"the query string must be UTF-8 and hold at most {_PARAMETERS_MAX} parameters"
        ) from None
    return MappingProxyType(parsed)


# Clients repeat their questions: parsing would be most of the cost of a cached answer.
_parsed_cached: Final = lru_cache(_CACHE_SIZE)(_parsed)
