"""This release upgrades the data directories of earlier ones: no number changes, and there is a way back."""

import json
import shlex
import subprocess
from hashlib import sha256

import httpx2 as httpx
import pytest

from mauve.stores.sql.migrate import CATALOG, LEDGER, newest_revision
from support.releases import RELEASES
from support.service import PATIENCE_S, bearer, eventually, mauve, mauve_json, post_events
from support.upgrade_data import (
    BACKLOG,
    DATA,
    Program,
    every_answer,
    read_notes,
    revisions_in,
    source_of,
    unpack,
)

KEPT = sorted(path.name.removesuffix(".tar.zst") for path in DATA.glob("*.tar.zst"))
OLDEST = "before-0.1.0"


def logged(data, event):
    lines = (data.parent / f"{data.name}.log").read_text().splitlines()
    return [entry for line in lines if line.startswith("{") and (entry := json.loads(line))["event"] == event]


def seen_count(url, key, first):
    path = f"{url}/v1/metrics/event_count?name=seen&date_from={first}"
    reply = httpx.get(path, headers=bearer(key), timeout=PATIENCE_S).json()
    return sum(row["count"] for row in reply.get("data", []))  # none while reads are limited


def digests(folder):
    return {path: sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


def copies_in(data):
    return sorted((data / "before-upgrades").iterdir())


def test_a_directory_of_every_release_is_kept():
    """`tests/upgrades/make_data.py` makes one; CONTRIBUTING.md says when."""
    assert {release.name for release in RELEASES} <= set(KEPT)
    assert read_notes(OLDEST)[0].revisions == {"catalog": "0003", "ledger": "0004"}, "really an older one"


@pytest.mark.parametrize("name", KEPT)
def test_every_metric_is_the_same_after_an_upgrade(name, tmp_path):
    data, keys = unpack(name, tmp_path)
    notes, _ = read_notes(name)
    assert revisions_in(data) == notes.revisions
    with Program().serving(data, MAUVE_READ_CACHE_SECONDS="0") as (at, _):
        assert every_answer(at["url"], keys, notes.demo_project, notes.window) == notes.answers
        # What was acknowledged and not loaded is counted, too, and what is sent now.
        eventually(lambda: post_events(at["ingest_url"], keys["backlog"]) == 202)
        eventually(lambda: seen_count(at["url"], keys["backlog"], notes.window[0]) == BACKLOG + 1)
    assert revisions_in(data) == {chain.name: newest_revision(chain) for chain in (CATALOG, LEDGER)}
    assert mauve_json(data, "doctor")["ok"]


def test_a_copy_is_made_once_and_leads_back(tmp_path):
    data, keys = unpack(OLDEST, tmp_path)
    notes, commit = read_notes(OLDEST)
    with Program().serving(data) as (at, _):
        (made,) = logged(data, "copied_before_upgrade")
        (copy,) = copies_in(data)
        before = digests(copy)
        eventually(lambda: post_events(at["ingest_url"], keys["backlog"]) == 202)
    with Program().serving(data):
        assert copies_in(data) == [copy], "a second start makes none"
    assert made["folder"] == str(copy)
    assert f"rm -r {copy}" in made["advice"]
    assert digests(copy) == before, "the new release does not write into it"

    command = shlex.split(made["to_go_back"].partition("run: ")[2])
    assert command[:2] == ["mauve", "restore"]
    restored = tmp_path / "data-restored"
    assert command[2:] == [str(copy), "--data", str(restored)]
    done = mauve(restored, "restore", str(copy))
    assert done.returncode == 0, done.stderr
    assert revisions_in(restored) == notes.revisions
    assert digests(copy) == before
    _check_earlier_release_serves(restored, commit, keys, notes, tmp_path)
    assert digests(copy) == before, "neither does the old one, although they share files"


def _check_earlier_release_serves(data, commit, keys, notes, tmp_path):
    try:
        source = source_of(commit, tmp_path)
    except subprocess.CalledProcessError:
        pytest.skip(f"the history of this checkout does not reach back to {commit[:12]}: the old release was not run")
    with Program(source).serving(data, MAUVE_READ_CACHE_SECONDS="0") as (at, _):
        assert every_answer(at["url"], keys, notes.demo_project, notes.window) == notes.answers
