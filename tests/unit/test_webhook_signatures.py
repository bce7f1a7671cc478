"""Signatures of both billers: the published vectors, and everything an attacker may put into a header."""

import base64
import hmac
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mauve.core.secret import Secret
from mauve.ingest.webhooks.signatures import SignatureFailure, check_biller_a_signature, check_biller_b_signature

SAMPLES = Path(__file__).parents[1] / "samples" / "billing"
PUBLISHED = json.loads((SAMPLES / "_signature_vectors.json").read_text())
VECTORS = {vector["name"]: vector for vector in PUBLISHED["vectors"]}
NOW = PUBLISHED["now_for_tests"]
BODY = b'{"type": "x", "odd": "\xc3\xa9\xff"}'
SECRET = "whsec_Qm9ndXNTZWNyZXRGb3JWZWN0b3JzT25seTEyMzQ1Njc"


def of(headers):
    """Return a lookup of all values of a header, as a server provides it."""
    lowered = {}
    for name, value in headers:
        lowered.setdefault(name.lower(), []).append(value)
    return lambda name: lowered.get(name, [])


def hex_digest(secret, timestamp, body=BODY):
    return hmac.digest(secret.encode(), f"{timestamp}.".encode() + body, "sha256").hex()


def base64_digest(key, message_id, timestamp, body=BODY):
    message = f"{message_id}.{timestamp}.".encode() + body
    return base64.b64encode(hmac.digest(key, message, "sha256")).decode()


def judge_a(*values, secret=SECRET, body=BODY, now=NOW, name="Stripe-Signature"):
    return check_biller_a_signature(of([(name, value) for value in values]), body, Secret(secret), now)


def judge_b(headers, secret=SECRET, body=BODY, now=NOW):
    pairs = headers.items() if isinstance(headers, dict) else headers
    return check_biller_b_signature(of(pairs), body, Secret(secret), now)


GOOD_A = f"t={NOW},v1={hex_digest(SECRET, NOW)}"
GOOD_B = {
    "webhook-id": "msg_1",
    "webhook-timestamp": str(NOW),
    "webhook-signature": f"v1,{base64_digest(SECRET.encode(), 'msg_1', NOW)}",
}


@pytest.mark.parametrize("name", VECTORS)
def test_every_published_vector_gives_the_published_result(name):
    vector = VECTORS[name]
    judge = check_biller_a_signature if name.startswith("stripe") else check_biller_b_signature
    body = (SAMPLES / vector["body_file"]).read_bytes()
    refusal = judge(of(vector["headers"].items()), body, Secret(vector["secret"]), NOW)
    assert (refusal is None) == (vector["verify"] == "ok")


class TestBillerA:
    @pytest.mark.parametrize("age", [-300, -299, 0, 300])
    def test_a_signature_within_five_minutes_either_way_is_valid(self, age):
        assert judge_a(GOOD_A, now=NOW + age) is None

    @pytest.mark.parametrize("age", [-301, 301, 10**9, -(10**9)])
    def test_one_second_more_is_too_much(self, age):
        assert judge_a(GOOD_A, now=NOW + age) is SignatureFailure.OUTSIDE_WINDOW

    def test_the_alias_of_the_header_is_accepted(self):
        assert judge_a(GOOD_A, name="Biller-A-Signature") is None

    def test_any_of_several_signatures_may_match(self):
        zeros = "v1=" + "0" * 64
        assert judge_a(f"t={NOW},{zeros},v1=é,v1,v0=ff,x,{GOOD_A.partition(',')[2]}") is None

    def test_spaces_around_elements_do_not_matter(self):
        assert judge_a(GOOD_A.replace(",", " ,\t ")) is None

    def test_the_seventeenth_signature_is_ignored(self):
        zeros = ",".join(["v1=" + "0" * 64] * 16)
        assert judge_a(f"t={NOW},{zeros},{GOOD_A.partition(',')[2]}") is SignatureFailure.MISMATCH

    @pytest.mark.parametrize(
        "header",
        [
            "",
            "v1=" + "0" * 64,
            f"t={NOW}",
            f"t={NOW},v0={hex_digest(SECRET, NOW)}",
            f"t={NOW},v1={hex_digest(SECRET, NOW).upper()}",
            f"t={NOW},v1={hex_digest(SECRET, NOW)}=x",
            f"t={NOW},t={NOW},v1={hex_digest(SECRET, NOW)}",
            *(f"t={odd},v1={hex_digest(SECRET, odd)}" for odd in (f"+{NOW}", f"0{NOW}", f"{NOW}.0", "", "-1", "1_793")),
            f"t=١٧٩٣,v1={'0' * 64}",
            f"t={'9' * 5000},v1={'0' * 64}",
            f"{GOOD_A},{'x' * 9000}",
            "v1=é,t=é",
            "\x00\r\n",
        ],
    )
    def test_a_slightly_wrong_header_is_malformed(self, header):
        assert judge_a(header) is SignatureFailure.MALFORMED

    def test_a_header_sent_twice_is_refused_even_if_both_are_valid(self):
        assert judge_a(GOOD_A, GOOD_A) is SignatureFailure.MALFORMED

    def test_a_missing_header_is_a_missing_signature(self):
        assert judge_a() is SignatureFailure.MISSING

    def test_one_different_byte_anywhere_is_a_mismatch(self):
        assert judge_a(GOOD_A, body=BODY + b" ") is SignatureFailure.MISMATCH
        assert judge_a(GOOD_A, secret=SECRET + "x") is SignatureFailure.MISMATCH
        assert judge_a(GOOD_A.replace(str(NOW), str(NOW + 1))) is SignatureFailure.MISMATCH


class TestBillerB:
    @pytest.mark.parametrize("age", [-300, 0, 300])
    def test_a_signature_within_five_minutes_either_way_is_valid(self, age):
        assert judge_b(GOOD_B, now=NOW + age) is None

    @pytest.mark.parametrize("age", [-301, 301])
    def test_one_second_more_is_too_much(self, age):
        assert judge_b(GOOD_B, now=NOW + age) is SignatureFailure.OUTSIDE_WINDOW

    @pytest.mark.parametrize("prefix", ["", "whsec_"])
    @pytest.mark.parametrize("size", [24, 25, 32, 64])
    def test_a_base64_secret_is_accepted_decoded_and_raw(self, prefix, size):
        key = bytes(range(100, 100 + size))
        for encoded in (base64.b64encode(key).decode(), base64.b64encode(key).decode().rstrip("=")):
            secret = prefix + encoded
            for used in (key, secret.encode()):
                signed = GOOD_B | {"webhook-signature": f"v1,{base64_digest(used, 'msg_1', NOW)}"}
                assert judge_b(signed, secret=secret) is None

    @pytest.mark.parametrize("secret", ["whsec_", "whsec_AAAA", "whsec_ä", "AAAA", "whsec_" + "A" * 88])
    def test_a_decoded_key_of_invalid_length_is_not_accepted(self, secret):
        forged = base64.b64decode(secret.removeprefix("whsec_").encode("ascii", "ignore") + b"==")
        signed = GOOD_B | {"webhook-signature": f"v1,{base64_digest(forged, 'msg_1', NOW)}"}
        assert judge_b(signed, secret=secret) is SignatureFailure.MISMATCH

    def test_any_of_several_signatures_may_match(self):
        good = GOOD_B["webhook-signature"]
        several = f"v1,{'A' * 43}=  v1a,AAAA v1 v1, v1,é nonsense v2,{good[3:]} {good}"
        assert judge_b(GOOD_B | {"webhook-signature": several}) is None

    @pytest.mark.parametrize("name", GOOD_B)
    def test_each_header_is_required_exactly_once(self, name):
        assert judge_b({key: value for key, value in GOOD_B.items() if key != name}) is SignatureFailure.MISSING
        assert judge_b([*GOOD_B.items(), (name, GOOD_B[name])]) is SignatureFailure.MALFORMED

    @pytest.mark.parametrize(
        "change",
        [
            {"webhook-id": ""},
            {"webhook-id": "a.b"},
            {"webhook-id": "é"},
            {"webhook-id": "x" * 129},
            {"webhook-timestamp": f"{NOW}.7"},
            {"webhook-timestamp": f" {NOW}"},
            {"webhook-timestamp": "nan"},
            {"webhook-signature": ""},
            {"webhook-signature": "v1"},
            {"webhook-signature": "v1a," + GOOD_B["webhook-signature"][3:]},
            {"webhook-signature": GOOD_B["webhook-signature"].rstrip("=")},
            {"webhook-signature": "v1,AAAA"},
            {"webhook-signature": GOOD_B["webhook-signature"] + " " * 9000},
        ],
    )
    def test_a_slightly_wrong_header_is_malformed(self, change):
        assert judge_b(GOOD_B | change) is SignatureFailure.MALFORMED

    def test_one_different_byte_anywhere_is_a_mismatch(self):
        assert judge_b(GOOD_B, body=BODY[1:]) is SignatureFailure.MISMATCH
        assert judge_b(GOOD_B, secret="x" * 32) is SignatureFailure.MISMATCH
        assert judge_b(GOOD_B | {"webhook-id": "msg_2"}) is SignatureFailure.MISMATCH


LATIN_1 = st.text(st.characters(max_codepoint=255), max_size=200)
NEARLY = st.lists(st.sampled_from(["t=", str(NOW), ",", "v1=", "v1,", " ", "=", "0" * 64, "é", "\0"])).map("".join)


@given(st.lists(LATIN_1 | NEARLY, max_size=3), st.binary(max_size=50))
def test_any_unsigned_input_is_refused_and_nothing_raises(values, body):
    assert judge_a(*values, body=body) is not None
    names = list(GOOD_B)
    assert judge_b([(names[place % 3], value) for place, value in enumerate(values)], body=body) is not None
