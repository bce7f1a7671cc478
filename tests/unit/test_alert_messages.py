"""What each channel's message holds, whatever the names of apps are."""

import json
import re
from email import message_from_bytes, policy
from email.headerregistry import Address

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from mauve.alerts.channels import Fact, Notice, Target
from mauve.alerts.channels.connection import check_email
from mauve.alerts.channels.formats import discord_body, fitted, json_body, slack_body
from mauve.alerts.channels.mail import message_of
from mauve.alerts.channels.webhook import new_secret

SENDER = Address("Mauve", addr_spec="alerts@example.com")
RECEIVER = Address(addr_spec="you@example.org")
UNSUBSCRIBE = "https://metrics.example.com/unsubscribe/" + "aB3_" * 20
HOSTILE = (
    "\r\nBcc: x@example.net\r\n\r\n<img src=https://evil.example/x> @everyone <!channel> <@U1> [a](https://b) {{ 7*7 }}"
)

texts = st.text(max_size=400) | st.sampled_from(
    [HOSTILE, "", "@here", "\u202eevil", "\U0001f338" * 300, "&" * 400, "\ud800"]
)
facts = st.builds(Fact, texts, texts, texts, st.none() | texts, st.none() | st.just("https://m.example.com/?a=1&b=2"))
notices = st.builds(
    Notice,
    id=st.just("ntc_1"),
    kind=st.just("digest"),
    title=texts,
    reason=texts,
    facts=st.lists(facts, max_size=80),
    link=st.just("https://m.example.com/?a=1&b=2"),
    unsubscribe=st.just(UNSUBSCRIBE),
    sent_for=texts,
    at=st.integers(0, 4_000_000_000_000),
)


def notice(**changes) -> Notice:
    fact = Fact("Daisy Mail", "Revenue", "€12.00", "€9.00", "https://m.example.com/apps/1")
    made = Notice(
        id="ntc_1",
        kind="change",
        title="Daisy Mail: revenue up 33 %",
        reason="Revenue changed by more than 20 %.",
        facts=[fact],
        link="https://m.example.com/",
        unsubscribe=UNSUBSCRIBE,
        sent_for="Acme",
        at=1_789_000_000_000,
    )
    return msgspec.structs.replace(made, **changes)


def test_a_number_is_not_broken_over_two_lines():
    shown = notice(reason="It is 2\u202f179\u00a0EUR.\r\n  So")
    for part in ("plain", "html"):
        assert "It is 2\u202f179\u00a0EUR. So" in mail_from(shown).get_body((part,)).get_content()


def mail_from(shown: Notice):
    return message_from_bytes(message_of(shown, SENDER, RECEIVER).as_bytes(), policy=policy.default)


def test_a_notice_is_the_same_after_it_was_stored_as_json():
    assert msgspec.json.decode(msgspec.json.encode(notice()), type=Notice) == notice()


def test_an_email_says_what_it_is_and_how_to_stop_it():
    raw = message_of(notice(), SENDER, RECEIVER).as_bytes()
    mail = message_from_bytes(raw, policy=policy.default)
    assert mail["message-id"] == "<ntc_1@example.com>"
    assert mail["date"] == "Thu, 10 Sep 2026 00:26:40 +0000"
    assert (mail["from"], mail["to"]) == ("Mauve <alerts@example.com>", "you@example.org")
    assert mail["subject"] == "Daisy Mail: revenue up 33 %"
    assert mail["auto-submitted"] == "auto-generated"
    assert mail["list-unsubscribe-post"] == "List-Unsubscribe=One-Click"
    # On one line and not encoded: mail programs read nothing else.
    assert f"\r\nList-Unsubscribe: <{UNSUBSCRIBE}>\r\n".encode() in raw
    text, html = mail.get_body(("plain",)).get_content(), mail.get_body(("html",)).get_content()
    for part in (text, html):
        for shown in (
            "Daisy Mail",
            "Revenue",
            "€12.00",
            "before: €9.00",
            "https://m.example.com/",
            UNSUBSCRIBE,
            "Acme",
        ):
            assert shown in part


def test_an_email_without_a_link_to_unsubscribe_has_no_header_for_it():
    mail = mail_from(notice(unsubscribe=None))
    assert mail["list-unsubscribe"] is None
    assert mail["list-unsubscribe-post"] is None
    assert "nsubscribe" not in mail.get_body(("plain",)).get_content()


def test_names_add_no_header_and_no_markup_to_an_email():
    fact = Fact(HOSTILE, HOSTILE, HOSTILE, HOSTILE, None)
    mail = mail_from(notice(title=HOSTILE, reason=HOSTILE, sent_for=HOSTILE, facts=[fact]))
    assert mail["bcc"] is None
    assert mail["to"] == "you@example.org"
    assert mail["subject"].startswith("Bcc: x@example.net <img")
    html = mail.get_body(("html",)).get_content()
    assert "<img" not in html
    assert "{{ 7*7 }}" in html


def test_an_email_loads_nothing_and_has_no_style_sheet():
    html = mail_from(notice()).get_body(("html",)).get_content()
    assert not re.search(r"(?i)\b(src|srcset|background)=|url\(|<link|<style|<script|@import", html)


@given(notices)
def test_any_notice_becomes_an_email_of_plain_ascii(shown):
    raw = message_of(shown, SENDER, RECEIVER).as_bytes()
    assert raw.isascii()
    mail = message_from_bytes(raw, policy=policy.default)
    assert set(mail.keys()) == {
        *("Message-ID", "Date", "From", "To", "Subject", "Auto-Submitted", "List-Unsubscribe", "List-Unsubscribe-Post"),
        *("MIME-Version", "Content-Type"),
    }
    assert max(map(len, raw.split(b"\r\n"))) < 998


@given(notices)
def test_any_notice_keeps_slacks_limits_and_mentions_no_one(shown):
    message = json.loads(slack_body(shown))
    blocks = message["blocks"]
    assert 3 <= len(blocks) <= 50
    assert 1 <= len(blocks[0]["text"]["text"]) <= 150
    sections = [block["text"] for block in blocks if block["type"] == "section"]
    for text in (*sections, *blocks[-1]["elements"]):
        assert 1 <= len(text["text"]) <= 3000
        assert text["verbatim"] is True
    shown_texts = [message["text"], blocks[0]["text"]["text"], *(text["text"] for text in sections)]
    for text in shown_texts:
        assert not re.search(r"@\w", text)
        # Only links of our own are in angle brackets.
        assert set(re.findall(r"<(.)", text) if text is not blocks[0]["text"]["text"] else "h") <= {"h"}


@given(notices)
def test_any_notice_keeps_discords_limits_and_mentions_no_one(shown):
    message = json.loads(discord_body(shown))
    assert message["allowed_mentions"] == {"parse": []}
    (embed,) = message["embeds"]
    fields = embed["fields"]
    assert len(fields) <= 25
    assert 1 <= len(embed["title"]) <= 256
    assert len(embed["description"]) <= 4096
    assert all(1 <= len(field["name"]) <= 256 and 1 <= len(field["value"]) <= 1024 for field in fields)
    every = [embed["title"], embed["description"], embed["footer"]["text"]]
    every += [text for field in fields for text in (field["name"], field["value"])]
    assert sum(map(len, every)) <= 6000
    assert not any(re.search(r"(?<!\\)[<\[*]|@\w", text) for text in every if text != embed["footer"]["text"])


def test_chats_show_the_facts_of_each_app():
    text = slack_body(notice()).decode()
    assert "*Daisy Mail*\\nRevenue: €12.00 (before: €9.00)" in text
    (embed,) = json.loads(discord_body(notice()))["embeds"]
    assert embed["fields"] == [{"name": "Daisy Mail", "value": "Revenue\\: €12.00 \\(before\\: €9.00\\)"}]
    assert (embed["url"], embed["timestamp"]) == ("https://m.example.com/", "2026-09-10T00:26:40Z")


def test_json_has_everything_but_the_link_to_unsubscribe():
    assert json.loads(json_body(notice())) == {
        "type": "alert.change",
        "timestamp": "2026-09-10T00:26:40Z",
        "data": {
            "id": "ntc_1",
            "title": "Daisy Mail: revenue up 33 %",
            "reason": "Revenue changed by more than 20 %.",
            "organization": "Acme",
            "link": "https://m.example.com/",
            "facts": [
                {
                    "app": "Daisy Mail",
                    "label": "Revenue",
                    "value": "€12.00",
                    "before": "€9.00",
                    "link": "https://m.example.com/apps/1",
                }
            ],
        },
    }


@given(st.text(), st.integers(1, 50))
def test_cut_text_is_a_whole_number_of_escaped_characters(text, characters_max):
    cut = fitted(text, characters_max, lambda each: f"&{each};")
    assert len(cut) <= characters_max
    assert re.fullmatch(r"(&.;)*…?", cut)


def test_a_target_shows_neither_its_address_nor_its_secret():
    shown = f"{Target('slack', 'https://hooks.example.com/T0/secret-path', new_secret())!r}"
    assert shown == "Target(kind='slack', …)"


@given(st.emails())
def test_an_address_is_written_as_it_was_given(address):
    check_email(address)
    raw = message_of(notice(), SENDER, Address(addr_spec=address)).as_bytes()
    mail = message_from_bytes(raw, policy=policy.default)
    assert [each.addr_spec for each in mail["to"].addresses] == [address]
