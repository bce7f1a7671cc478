"""Read a secret from the file that a setting names."""

import os
import stat
from typing import Final

SECRET_BYTES_MAX: Final = 65_536


def read_secret_file(name: str, path: str) -> str:
    """Return the text of the file without the line break at its end. Errors never contain any of it.

    A `ValueError` says what to do; `name` is that of the setting.
    """
    try:
        content = _read_regular_file(path)
        text = content.decode().strip()
    except OSError as error:
        reason = error.strerror or "unknown error"
        raise ValueError(f"{name} cannot be read ({reason}): check the path {path} and its permissions") from None
    except UnicodeDecodeError:
        raise ValueError(f"{name}: {path} is not text: write the value as UTF-8") from None
    except ValueError as error:
        raise ValueError(f"{name} is wrong: {error}: name a file that holds the value and nothing else") from None
    if not text:
        raise ValueError(f"{name}: {path} is empty: write the value into it")
    return text


def _read_regular_file(path: str) -> bytes:
    """Read a small file. Refuse pipes and devices: every process reads the file again, and must not wait for it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - by descriptor: the path may have moved
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path} is not a regular file")
        content = file.read(SECRET_BYTES_MAX + 1)
    if len(content) > SECRET_BYTES_MAX:
        raise ValueError(f"{path} has more than {SECRET_BYTES_MAX} bytes")
    if b"\0" in content:
        raise ValueError(f"{path} contains a NUL byte")
    return content
