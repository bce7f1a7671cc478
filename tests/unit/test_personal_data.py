"""Finding and removing a person in what was sent."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mauve.core.batch import packed_header, unpacked
from mauve.core.personal_data import names_person, without_person

names = st.text(min_size=1, max_size=20)


@pytest.mark.parametrize("field", ["user", "user_id", "customer", "customer_id"])
@given(user=names, is_ascii=st.booleans())
def test_a_person_is_found_in_the_naming_fields_in_any_encoding(field, user, is_ascii):
    payload = json.dumps({"a": 1, field: user}, ensure_ascii=is_ascii).encode(errors="surrogatepass")
    assert names_person(payload, user)
    assert names_person(json.dumps({field: {"id": user}}).encode(), user)


@given(user=names, other=names)
def test_other_people_are_not_matched(user, other):
    payload = json.dumps({"user": other, "note": user, "props": {"user": user}}).encode()
    assert names_person(payload, user) is (user == other)


def test_an_unnecessary_escape_hides_no_person():
    assert names_person(rb'{"user":"\u0061nn"}', "ann")


def record(items, project="proj_1"):
    return packed_header(project, "org_1", 5, 5000, len(items)) + msgspec.json.encode(items)


@given(users=st.lists(st.sampled_from(["ann", "bob", None]), min_size=1))
def test_a_record_loses_the_person_and_keeps_all_others(users):
    items = [{"name": "view", "user": user, "id": f"{place}"} for place, user in enumerate(users)]
    rest = without_person(record(items), "proj_1", "ann")
    if "ann" not in users:
        assert rest is None
        return
    batch = unpacked(rest)
    assert (batch.project, batch.org_id, batch.received_at, batch.event_count) == ("proj_1", "org_1", 5, len(items))
    assert json.loads(batch.items) == [item if item["user"] != "ann" else {"name": "view"} for item in items]
    assert without_person(rest, "proj_1", "ann") is None


def test_a_record_of_another_project_is_not_changed():
    assert without_person(record([{"name": "view", "user": "ann"}], "proj_2"), "proj_1", "ann") is None


def test_an_unreadable_record_is_emptied_if_it_holds_the_name():
    assert without_person(b'\xff\xff"ann"', "proj_1", "ann") == b""
    assert without_person(b'\xff\xff"bob"', "proj_1", "ann") is None
    assert without_person(packed_header("proj_1", "org_1", 5, 5000, 1) + b'{"user":"ann"', "proj_1", "ann") == b""
