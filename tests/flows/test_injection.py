"""Control characters in echoed, redirected or logged text have no effect; swapped secrets cannot be opened.

Proves: injection.
"""

import json
import re
import sqlite3

import pytest

from mauve.access.vault import VaultError, webhook_row
from mauve.cli.output import table
from mauve.control.apps import archive_app, create_app, restore_app
from mauve.control.bodies import NewAppBody
from mauve.control.webhook_secrets import save_secret
from mauve.core.app import Environment
from mauve.core.biller import Provider
from mauve.core.secret import Secret
from support.billing import SECRET_A, SECRET_B, signed_a
from support.browser import PASSWORD, Browser
from support.service import bearer, ledger_rows

CR_LF = "\r\nx-injected: yes\r\n\r\n"
ODD = [CR_LF, "\n", "\x00", "\x1b]0;title\x07", "\x7f", "\x85", "\u2028", "\u202e", "漢字", "ü", "\ufeff", "%0d%0a"]


def is_clean(reply):
    return "x-injected" not in reply.headers and all(value.isprintable() for value in reply.headers.values())


@pytest.mark.parametrize("odd", ODD, ids=ascii)
class TestEchoes:
    def test_the_redirect_target_adds_no_header(self, owner, client, odd):
        form = {"email": "ann@example.com", "password": PASSWORD, "next": f"/apps{odd}"}
        reply = Browser(client).ask("POST", "/signin", form)
        assert reply.status_code == 303
        assert is_clean(reply)
        assert reply.headers["location"].isascii()

    def test_the_path_in_a_sign_in_redirect_is_escaped(self, client, owner, odd):
        reply = Browser(client).ask("GET", f"/apps/{odd.encode().hex()}%0d%0ax-injected:%20yes")
        assert reply.status_code == 303
        assert is_clean(reply)

    def test_every_plane_answers_odd_paths_and_parameters_normally(self, client, api, odd):
        escaped = "".join(f"%{byte:02x}" for byte in odd.encode())
        for path in (
            f"/v1/apps/{escaped}",
            f"/v1/metrics/{escaped}",
            f"/v1/metrics/mau?project={escaped}",
            f"/v1/metrics/mau?date_from={escaped}",
            f"/v1/webhooks/biller_a/{escaped}",
            f"/{escaped}",
        ):
            reply = api.get(path)
            assert reply.status_code in {400, 404, 405}
            assert is_clean(reply)
            assert reply.headers["content-type"] == "application/json"
            json.loads(reply.text)

    def test_names_are_shown_as_text(self, owner, odd):
        """The page shows the name as text: it neither opens nor closes an element."""
        for path, field in (("/apps", "name"), ("/tokens", "name"), ("/organization", "name")):
            form = {field: f"<blink>{odd}</blink>\"'", "type": "saas", "ownership": "mine", "scopes": "apps:read"}
            page = owner.send(path, form)
            assert page.status_code in {200, 400}
            assert "<blink>" not in page.text
            assert re.findall(r"[\x00-\x08\x0b\x0e-\x1f\x7f]", page.text) == [], (path, page.status_code)


@pytest.mark.parametrize("odd", [odd for odd in ODD if not odd.isprintable()], ids=ascii)
def test_a_table_on_a_terminal_is_plain_text(odd):
    text = table(["NAME", "SINCE"], [[f"a{odd}b", "now"], ["c", "then"]], "none")
    assert len(text.split("\n")) == 3
    assert text.replace("\n", "").isprintable()


def test_swapped_sealed_secrets_cannot_be_opened(client, parts, organization, settings, keyring, clock):
    one, other = (create_app(parts, organization.org_id, NewAppBody(name))[0] for name in ("One", "Other"))
    save_secret(parts, one, Environment.LIVE, Provider.BILLER_A, Secret(SECRET_A))
    save_secret(parts, other, Environment.LIVE, Provider.BILLER_A, Secret(SECRET_B))
    with sqlite3.connect(settings.data / "catalog.db") as catalog:
        sealed = dict(catalog.execute("SELECT public_id, sealed FROM webhook_secrets"))
        swap = "UPDATE webhook_secrets SET sealed = ? WHERE public_id = ?"
        catalog.executemany(swap, [(sealed[other.public_id], one.public_id), (sealed[one.public_id], other.public_id)])
    catalog.close()
    for app in (one, other):  # which publishes the swapped secrets
        archive_app(parts, app)
        restore_app(parts, app)
    with pytest.raises(VaultError):
        parts.vault.open(sealed[other.public_id], webhook_row(one.app_id, Environment.LIVE, Provider.BILLER_A))
    keyring.refresh()
    body = b'{"type": "invoice.paid"}'
    for secret in (SECRET_A, SECRET_B):
        headers = {"content-type": "application/json", **signed_a(body, secret, at=clock.now_ms() // 1000)}
        reply = client.post(f"/v1/webhooks/biller_a/{one.public_id}", content=body, headers=headers)
        assert (reply.status_code, reply.json()["ok"]) == (503, False)
    assert ledger_rows(settings.data, "SELECT count(*) FROM payments") == [(0,)]


def test_a_digest_is_not_a_credential(client, parts, organization, settings):
    """An attacker who has read the stored digests cannot use them."""
    create_app(parts, organization.org_id, NewAppBody("App"))
    with sqlite3.connect(settings.data / "catalog.db") as catalog:
        digests = [digest for (digest,) in catalog.execute("SELECT digest FROM keys")]
    catalog.close()
    assert digests
    for digest in digests:
        presented = digest.hex() if isinstance(digest, bytes) else str(digest)
        for credential in (presented, f"sk_live_{presented[:40]}"):
            reply = client.post("/v1/events", json={"name": "x"}, headers=bearer(credential))
            assert reply.status_code == 401
