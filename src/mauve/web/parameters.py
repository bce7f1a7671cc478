"""The query string, read within bounds."""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final
from urllib.parse import parse_qs

from mauve.core.problems import Code, Problem

_PARAMETERS_MAX: Final = 100
_REMEMBERED_BYTES_MAX: Final = 512
_REMEMBERED_MAX: Final = 4_096


def parameters_from(query: bytes) -> Mapping[str, list[str]]:
    """Return every value of every parameter, empty ones too, in order."""
    return _remembered(query) if len(query) <= _REMEMBERED_BYTES_MAX else _parsed(query)


def _parsed(query: bytes) -> Mapping[str, list[str]]:
    try:
        parsed = parse_qs(query.decode(), keep_blank_values=True, errors="strict", max_num_fields=_PARAMETERS_MAX)
    except ValueError:
        raise Problem(
            Code.MALFORMED, f"the query string must be UTF-8 and hold at most {_PARAMETERS_MAX} parameters"
        ) from None
    return MappingProxyType(parsed)


# Those who read metrics ask the same again and again; parsing is most of what a cached answer costs.
_remembered: Final = lru_cache(_REMEMBERED_MAX)(_parsed)
