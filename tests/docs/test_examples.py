"""Every code block of the documents works against a running service."""

import re

import httpx2 as httpx
import pytest

from support.doc_blocks import blocks_in, blocks_of, documents
from support.doc_runner import Credentials, Runner, check_answers, pattern_of
from support.service import bearer, eventually, mauve_json, running, token_for

NOT_RUN_MAX = 21
TRACKED = re.compile(r'\btrack\(\s*"([^"]+)"')


@pytest.fixture(scope="module")
def installation(tmp_path_factory):
    """A service, and a token of its only organization. Without the read cache, so that a number can be read again."""
    data = tmp_path_factory.mktemp("examples") / "data"
    with running(data, "--workers", "1", environment={"MAUVE_READ_CACHE_SECONDS": "0"}) as service:
        org = mauve_json(data, "org", "create", "Acme")["org_id"]
        mauve_json(data, "org", "limits", org, "--reads-per-minute", "100000")
        yield service, token_for(data, org=org)


@pytest.fixture
def runner(installation, chromium, tmp_path):
    service, token = installation
    app = mauve_json(service.data, "app", "create", "My app")
    publishable = mauve_json(service.data, "key", "mint", "--app", app["app_id"], "--kind", "pk")["key"]
    credentials = Credentials(app["app_id"], app["public_id"], app["sk_key"], publishable, token)
    runner = Runner(service, credentials, tmp_path, chromium)
    yield runner
    runner.close()


@pytest.mark.parametrize("document", documents())
def test_every_block_of_a_document_runs(document, runner):
    blocks = [block for block in blocks_of(document) if block.reason is None]
    for block in blocks:
        runner.run(block)
    runner.check_types()
    tracked = {name for block in blocks for name in TRACKED.findall(block.text)}
    if tracked:
        eventually(lambda: tracked & counted_names(runner))


def counted_names(runner):
    """Return the names of events that are counted for the apps of the document's reader."""
    address = f"{runner.service.url}/v1/metrics/event_names"
    answers = [httpx.get(address, headers=bearer(key)).json() for key in runner.server_keys()]
    return {row["name"] for answer in answers for row in answer["data"]}


def test_blocks_that_are_not_run_are_few_and_say_why(capsys):
    blocks = [block for document in documents() for block in blocks_of(document)]
    kept = [block for block in blocks if block.reason]
    with capsys.disabled():
        print(f"\n{len(blocks) - len(kept)} blocks of {len(documents())} documents run; not run: {len(kept)}")  # noqa: T201
        print("\n".join(f"  {block}: {block.reason}" for block in kept))  # noqa: T201
    assert len(blocks) > 40
    assert len(kept) <= NOT_RUN_MAX


def test_a_block_is_found_with_its_title_its_reason_and_its_output():
    marked = '1. Do:\n\n   <!-- not run: why -->\n   ```sh title="a.sh"\n   one\n     two\n   ```\n'
    text = f"{marked}\n   ```json\n   {{}}\n   ```\n"
    (block,) = blocks_in(text, "a.md")
    assert (block.line, block.language, block.title, block.text) == (4, "sh", "a.sh", "one\n  two\n")
    assert (block.reason, block.expected) == ("why", "{}\n")


def test_a_page_that_tracks_must_have_sent_something_that_is_accepted():
    page = '<script>mauve.track("page_opened")</script>'
    check_answers(page, [202, 202])
    check_answers("<p>Nothing</p>", [])
    with pytest.raises(AssertionError, match="sent nothing"):
        check_answers(page, [])
    with pytest.raises(AssertionError, match="answered"):
        check_answers(page, [202, 401])


def test_output_is_compared_except_for_dates_and_what_is_left_out():
    shown = pattern_of('{"from":"2026-11-16",…,"count":1}\n{"b":2}\n')
    assert shown.search('{"from":"2030-01-02","x":3,"count":1}\n{"b":2}\n')
    assert not shown.search('{"from":"2030-01-02","x":3,"count":2}\n{"b":2}\n')
    assert not shown.search('{"from":"2030-01-02","x":3,"count":1}\n')
