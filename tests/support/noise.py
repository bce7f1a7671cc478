"""Random requests, drawn from one seed: JSON that is nearly valid, invalid JSON, and bytes that are neither."""

import gzip
import json
import random
import string
from typing import Any

import zstandard

STRANGE_TEXTS = [
    "",
    " ",
    "\x00",
    "a\x00b",
    "\ud800",
    "\udfff\ud800",
    "\u202e",
    "\ufeff",
    "漢字" * 50,
    "😀",
    "é" * 300,
    "x" * 129,
    "x" * 257,
    "x" * 1_025,
    '"\\/\b\f\n\r\t',
    "payment",
    "user_signup",
    "null",
    "../../etc/passwd",
    "%00",
    "'; DROP TABLE events; --",
    "{{7*7}}",
    "<script>",
    "1e999",
    "2026-02-30T25:61:61Z",
    "2026-11-15T03:20:00.123456789Z",
    "0000-00-00",
    "9999-12-31T23:59:59Z",
    "-1",
]
STRANGE_NUMBERS = [
    0,
    -0.0,
    -1,
    1,
    2**31,
    2**53 - 1,
    2**53,
    2**63,
    2**64,
    -(2**63) - 1,
    10**40,
    1e308,
    5e-324,
    0.1,
    1e15,
]


class Noise:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)

    def text(self) -> str:
        if self.chance.random() < 0.5:
            return self.chance.choice(STRANGE_TEXTS)
        return "".join(self.chance.choices(string.printable + "äß漢\u0000\u2028", k=self.chance.randrange(20)))

    def value(self, depth: int = 0) -> Any:
        kinds = 5 if depth > 3 else 8
        match self.chance.randrange(kinds):
            case 0:
                return self.chance.choice([None, True, False])
            case 1 | 2:
                return self.chance.choice(STRANGE_NUMBERS)
            case 3 | 4:
                return self.text()
            case 5:
                return [self.value(depth + 1) for _ in range(self.chance.randrange(4))]
            case _:
                return {self.text(): self.value(depth + 1) for _ in range(self.chance.randrange(4))}

    def changed(self, value: Any) -> Any:
        """Return the value with something replaced, removed or added."""
        if isinstance(value, dict) and value:
            name = self.chance.choice(list(value))
            match self.chance.randrange(5):
                case 0:
                    return {key: inner for key, inner in value.items() if key != name}
                case 1:
                    return {**value, self.text(): self.value()}
                case _:
                    return {**value, name: self.changed(value[name])}
        if isinstance(value, list) and value:
            place = self.chance.randrange(len(value))
            return [*value[:place], self.changed(value[place]), *value[place + 1 :]]
        return self.value()

    def some_of(self, value: Any) -> Any:
        """Return the value unchanged, or changed once or a few times."""
        for _ in range(self.chance.choice([0, 0, 1, 1, 2, 4])):
            value = self.changed(value)
        return value

    def encoded(self, value: Any) -> bytes:
        text = json.dumps(value, ensure_ascii=self.chance.random() < 0.7)
        if isinstance(value, dict) and value and self.chance.random() < 0.1:
            text = text[:-1] + ", " + json.dumps(dict([self.chance.choice(list(value.items()))]))[1:]  # a key twice
        body = text.encode(errors="surrogatepass")
        return self.damaged(body) if self.chance.random() < 0.2 else body

    def damaged(self, body: bytes) -> bytes:
        """Return the bytes with a few changed, lost, doubled or cut off."""
        damaged = bytearray(body)
        for _ in range(self.chance.randrange(1, 5)):
            place = self.chance.randrange(len(damaged) + 1)
            match self.chance.randrange(5):
                case 0:
                    damaged[place : place + 1] = self.chance.randbytes(1)
                case 1:
                    del damaged[place : place + self.chance.randrange(10)]
                case 2:
                    damaged[place:place] = damaged[: self.chance.randrange(30)]
                case 3:
                    damaged[place:place] = self.chance.choice(
                        [b"NaN", b"Infinity", b"\\u0000", b"\\ud800", b"[[[", b"}"]
                    )
                case _:
                    del damaged[place:]
        return bytes(damaged)

    def packed(self, body: bytes, headers: dict[str, str]) -> tuple[bytes, dict[str, str]]:
        """Return the body compressed, or labeled as such."""
        match self.chance.randrange(12):
            case 0:
                return gzip.compress(body, 1), headers | {"content-encoding": "gzip"}
            case 1:
                return zstandard.compress(body), headers | {"content-encoding": "zstd"}
            case 2:
                encoding = self.chance.choice(["gzip", "zstd", "br", "identity", "x" * 50, "gzip, zstd"])
                return body, headers | {"content-encoding": encoding}
            case 3:
                return self.damaged(gzip.compress(body, 1)), headers | {"content-encoding": "gzip"}
            case _:
                return body, headers

    def content_type(self) -> str:
        if self.chance.random() < 0.95:
            return "application/json"
        return self.chance.choice(["text/plain", "application/json;charset=latin-1", "application/JSON", "", "x/y"])

    def escaped(self) -> str:
        """Return a piece of a path or a parameter."""
        return "".join(f"%{byte:02x}" for byte in self.text().encode(errors="surrogatepass"))
