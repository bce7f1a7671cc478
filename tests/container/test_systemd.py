"""The unit is one that systemd accepts, it leaves the service little to abuse, and the service works within it."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx2 as httpx
import pytest

from support.container import ROOT
from support.service import MAUVE, bearer, eventually, mauve_json, post_events

UNIT = ROOT / "deploy/mauve.service"
EXPOSURE_MAX = 20  # tenths: systemd calls up to 2.0 OK and rates most services 9
pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (Debian: apt-get install systemd)"
)

# Set what systemd sets for NoNewPrivileges and SystemCallFilter, then become the service.
CONFINED = """
import ctypes, json, os, sys
allowed, refusal, command = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
PR_SET_NO_NEW_PRIVS, SCMP_ACT_ALLOW, SCMP_ACT_ERRNO = 38, 0x7FFF0000, 0x00050000
assert ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
seccomp = ctypes.CDLL("libseccomp.so.2")
seccomp.seccomp_init.restype = ctypes.c_void_p
rules = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(SCMP_ACT_ERRNO | refusal)))
for name in allowed:
    number = seccomp.seccomp_syscall_resolve_name(name.encode())
    if number >= 0:  # Others are calls of other processors.
        assert seccomp.seccomp_rule_add(rules, ctypes.c_uint32(SCMP_ACT_ALLOW), number, 0) == 0
assert seccomp.seccomp_load(rules) == 0
os.execv(command[0], command)
"""


def settings(name):
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def system_calls(group):
    """Return the calls in a group, as systemd-analyze lists them."""
    command = ["systemd-analyze", "--no-pager", "syscall-filter", group]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    names = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
    return set().union(*(system_calls(name) if name.startswith("@") else {name} for name in names))


def allowed_system_calls():
    allowed = set()
    for line in settings("SystemCallFilter"):
        calls = set().union(*map(system_calls, line.removeprefix("~").split()))
        allowed = allowed - calls if line.startswith("~") else allowed | calls
    return sorted(allowed)


def test_systemd_accepts_the_unit(tmp_path):
    unit = tmp_path / "mauve.service"
    unit.write_text(UNIT.read_text().replace("/opt/mauve/bin/mauve", str(MAUVE)))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    about_it = [line for line in done.stderr.splitlines() if "mauve" in line]
    assert (done.returncode, about_it) == (0, [])


def test_the_unit_leaves_little_to_abuse():
    command = ["systemd-analyze", "security", "--no-pager", "--offline=true", f"--threshold={EXPOSURE_MAX}", UNIT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="confining a service as systemd does needs root")
def test_the_service_works_with_the_system_calls_files_and_capabilities_of_the_unit(tmp_path):
    """Many reads of one kind: the engine compiles a query only when it was asked a few times."""
    assert settings("ProcSubset") == ["pid"]
    assert settings("CapabilityBoundingSet") == [""]
    assert "MemoryDenyWriteExecute" not in {line.partition("=")[0] for line in UNIT.read_text().splitlines()}
    (refusal,) = settings("SystemCallErrorNumber")
    files = 'mount -t proc -o subset=pid,hidepid=invisible proc /proc && exec "$@"'
    data = tmp_path / "data"
    serve = [MAUVE, "serve", "--data", data, "--port", "0", "--ingest-port", "0", "--workers", "1", "--json"]
    calls = [json.dumps(allowed_system_calls()), str(getattr(errno, refusal))]
    confined = [sys.executable, "-P", "-c", CONFINED, *calls, *serve]
    command = ["unshare", "--mount", "sh", "-c", files, "sh", "setpriv", "--bounding-set=-all", *confined]
    (tmp_path / "backups").mkdir()
    backups = {"MAUVE_BACKUP_URL": str(tmp_path / "backups"), "MAUVE_BACKUP_EVERY": "24h"}
    environment = {**os.environ, "MAUVE_READ_CACHE_SECONDS": "0", **backups}
    with (tmp_path / "log").open("wb") as log:
        service = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment)
    with service:
        try:
            line = service.stdout.readline()
            assert line, (tmp_path / "log").read_text()
            status = Path(f"/proc/{service.pid}/status").read_text()
            assert re.search(r"^Seccomp:\t2$", status, re.MULTILINE)
            assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE)
            _use(data, json.loads(line)["url"])
            eventually(lambda: "backup_made" in (tmp_path / "log").read_text())
        finally:
            service.terminate()
        assert service.wait() == 0
    log_text = (tmp_path / "log").read_text()
    assert [word for word in ("failed", "backup_not_begun") if word in log_text] == []


def _use(data, url):
    mauve_json(data, "org", "create", "Acme")
    key = mauve_json(data, "app", "create", "App")["sk_key"]
    for _ in range(10):
        eventually(lambda: post_events(url, key) == 202)
    ask = {"headers": bearer(key)}
    eventually(
        lambda: httpx.get(f"{url}/v1/metrics/event_names", **ask).json()["data"] == [{"name": "seen", "count": 10}]
    )
    for metric in ("mau", "dau", "signups", "revenue", "mrr", "event_names"):
        for _ in range(8):
            assert httpx.get(f"{url}/v1/metrics/{metric}", **ask).status_code == 200
