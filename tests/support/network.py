"""Machines for tests: network namespaces of this host, joined by a router that can drop what one sends to another."""

import ctypes
import os
import random
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

_NAMES = re.compile(r"^(mauve-(\d+)-\w+)", re.MULTILINE)
_CUT_PREFERENCE = "100"
_NAMED = Path("/run/netns")
KILL_ROUNDS_MAX = 50
_CLONE_NEWNET = 0x40000000


def reason_to_skip() -> str | None:
    """Return why this host cannot have such machines; None if it can."""
    if os.geteuid() != 0:
        return "machines are network namespaces, which need root"
    for program in ("ip", "nsenter", "setpriv"):
        if not any((Path(folder) / program).exists() for folder in os.environ["PATH"].split(":")):
            return f"machines are network namespaces, which need the program {program!r} (Debian: iproute2, util-linux)"
    probe = f"mauve-{os.getpid()}-probe"
    done = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"machines are network namespaces, and this host refuses to create one: {done.stderr.strip()}"
    _ip("netns", "delete", probe)
    return None


class Machine:
    """One namespace with one address. What runs in it reaches others only through the router."""

    def __init__(self, name: str, namespace: str, address: str) -> None:
        self.name, self.address = name, address
        self._namespace = namespace

    @property
    def enter(self) -> tuple[str, ...]:
        """Return the command that runs another one on this machine."""
        return ("nsenter", f"--net={_NAMED / self._namespace}")

    def signal(self, number: signal.Signals) -> None:
        """Signal every process of the machine."""
        for pid in _pids(self._namespace):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """End every process at once, as a loss of power does."""
        _kill_all(self._namespace)

    def pids(self) -> list[int]:
        """Return the processes of the machine that have not ended."""
        return _pids(self._namespace)

    def states(self) -> set[str]:
        """Return the states of its processes, as letters: T is a stopped one."""
        return {_state(pid) for pid in self.pids()}

    def can_connect(self, address: str, port: int, timeout_s: float) -> bool:
        """Return whether a connection from this machine is answered at all, be it by a refusal."""
        found: list[bool] = []

        def attempt() -> None:
            with (_NAMED / self._namespace).open("rb") as namespace:
                entered = ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET)
            assert entered == 0, os.strerror(ctypes.get_errno())
            found.append(can_connect(address, port, timeout_s))

        thread = threading.Thread(target=attempt)  # Only the thread enters the namespace, and it ends there.
        thread.start()
        thread.join()
        return found[0]


def can_connect(address: str, port: int, timeout_s: float) -> bool:
    """Return whether a connection is answered at all, be it by a refusal."""
    try:
        socket.create_connection((address, port), timeout_s).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


class Network:
    """A router and the machines behind it. The tests' own namespace, where clients run, is attached like a machine."""

    def __init__(self, *names: str) -> None:
        self._run = f"mauve-{os.getpid()}"
        self._router = f"{self._run}-router"
        self._links = f"mv{os.getpid()}"
        sweep()
        self._prefix = _free_prefix()
        self.clients = f"{self._prefix}.0.2"
        self.machines = {
            name: Machine(name, f"{self._run}-{name}", f"{self._prefix}.{place}.2")
            for place, name in enumerate(names, start=1)
        }

    def __enter__(self) -> Self:
        try:
            self._create()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        _remove(self._run)

    def cut(self, machine: Machine, others: Sequence[str], *, sends: bool = True, hears: bool = True) -> None:
        """Drop, without telling anyone, what the machine sends to the others, or they to it, or both."""
        for other in others:
            if sends:
                self._drop(machine.address, other)
            if hears:
                self._drop(other, machine.address)

    def others(self, machine: Machine) -> list[str]:
        """Return the addresses of all other machines, without the clients."""
        return [each.address for each in self.machines.values() if each is not machine]

    def heal(self) -> None:
        """Deliver everything again."""
        while _ip_of(self._router, "rule", "show", "pref", _CUT_PREFERENCE).stdout:
            _ip_of(self._router, "rule", "delete", "pref", _CUT_PREFERENCE)

    def _drop(self, sender: str, receiver: str) -> None:
        _ip_of(self._router, "rule", "add", "pref", _CUT_PREFERENCE, "from", sender, "to", receiver, "blackhole")

    def _create(self) -> None:
        self._add_namespace(self._router)
        for setting in ("ip_forward=1", "conf.all.rp_filter=0", "conf.default.rp_filter=0"):
            name, _, value = setting.partition("=")
            path = f"/proc/sys/net/ipv4/{name.replace('.', '/')}"
            enter = ["nsenter", f"--net={_NAMED / self._router}"]
            subprocess.run([*enter, "sh", "-c", f"echo {value} > {path}"], check=True)
        self._attach(0, None)
        _ip("route", "add", f"{self._prefix}.0.0/16", "via", f"{self._prefix}.0.1")
        for place, machine in enumerate(self.machines.values(), start=1):
            namespace = f"{self._run}-{machine.name}"
            self._add_namespace(namespace)
            self._attach(place, namespace)
            _ip_of(namespace, "route", "add", "default", "via", f"{self._prefix}.{place}.1")

    def _add_namespace(self, name: str) -> None:
        _ip("netns", "add", name)
        _ip_of(name, "link", "set", "lo", "up")

    def _attach(self, place: int, namespace: str | None) -> None:
        """Join a namespace, or the tests' own, to the router."""
        near, far = f"{self._links}m{place}", f"{self._links}r{place}"
        _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", self._router)
        if namespace is not None:
            _ip("link", "set", near, "netns", namespace)
        _ip_of(namespace, "address", "add", f"{self._prefix}.{place}.2/24", "dev", near)
        _ip_of(namespace, "link", "set", near, "up")
        _ip_of(self._router, "address", "add", f"{self._prefix}.{place}.1/24", "dev", far)
        _ip_of(self._router, "link", "set", far, "up")


def sweep() -> None:
    """Remove what runs left behind whose process has died."""
    for run in {f"mauve-{pid}" for _, pid in _NAMES.findall(_ip("netns", "list").stdout) if not _is_alive(pid)}:
        _remove(run)


def _remove(run: str) -> None:
    for name, pid in _NAMES.findall(_ip("netns", "list").stdout):
        if f"mauve-{pid}" == run:
            _kill_all(name)
            _ip("netns", "delete", name)  # Its links go with it, and their other ends.


def _is_alive(pid: str) -> bool:
    return Path(f"/proc/{pid}").exists()


def _kill_all(namespace: str) -> None:
    for _ in range(KILL_ROUNDS_MAX):  # A process may start another one meanwhile.
        pids = _pids(namespace)
        if not pids:
            return
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    raise AssertionError(f"processes of {namespace} do not end")


def _pids(namespace: str) -> list[int]:
    """Return the processes of a namespace that have not ended."""
    pids = map(int, _ip("netns", "pids", namespace).stdout.split())
    return [pid for pid in pids if _state(pid) not in {"Z", "X", ""}]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _free_prefix() -> str:
    taken = _ip("-4", "route", "show", "table", "all").stdout
    prefixes = [f"10.{number}" for number in range(16, 250)]
    return random.SystemRandom().choice([prefix for prefix in prefixes if f"{prefix}." not in taken])


def _ip(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"
    return done


def _ip_of(namespace: str | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    return _ip(*arguments) if namespace is None else _ip("-n", namespace, *arguments)
