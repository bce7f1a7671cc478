"""This release opens the data directory of every earlier one, and no number changes."""

import httpx2 as httpx
import pytest

from mauve.stores.sql.migrate import CATALOG, LEDGER, newest_revision
from support.releases import RELEASES
from support.service import PATIENCE_S, bearer, eventually, mauve_json, post_events
from support.upgrade_data import BACKLOG, DATA, every_answer, read_notes, revisions_in, serving, unpack

KEPT = sorted(path.name.removesuffix(".tar.zst") for path in DATA.glob("*.tar.zst"))
NEWEST = {chain.name: newest_revision(chain) for chain in (CATALOG, LEDGER)}


def seen_count(url, key, first):
    path = f"{url}/v1/metrics/event_count?name=seen&date_from={first}"
    reply = httpx.get(path, headers=bearer(key), timeout=PATIENCE_S).json()
    return sum(row["count"] for row in reply.get("data", []))  # none while reads are limited


def test_a_directory_of_every_release_is_kept():
    """`tests/upgrades/make_data.py` makes one; CONTRIBUTING.md says when."""
    assert {release.name for release in RELEASES} <= set(KEPT)


@pytest.mark.parametrize("name", KEPT)
def test_every_metric_is_the_same_after_an_upgrade(name, tmp_path):
    data, keys = unpack(name, tmp_path)
    notes = read_notes(name)
    assert revisions_in(data) == notes.revisions
    with serving(data, MAUVE_READ_CACHE_SECONDS="0") as (at, _):
        assert every_answer(at["url"], keys, notes.demo_project, notes.window) == notes.answers
        # What was acknowledged and not loaded is counted, too, and what is sent now.
        eventually(lambda: post_events(at["ingest_url"], keys["backlog"]) == 202)
        eventually(lambda: seen_count(at["url"], keys["backlog"], notes.window[0]) == BACKLOG + 1)
    assert revisions_in(data) == NEWEST
    backups = list(data.glob("before-upgrades/*.mauve"))
    assert len(backups) == (notes.revisions != NEWEST)
    assert mauve_json(data, "doctor")["ok"]
