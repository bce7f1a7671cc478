"""Of two events with the same id the first arrival counts, whatever the route of each.

Proves: arrival-order.
"""

import itertools

import httpx2 as httpx

from support.service import bearer, eventually, ledger_rows, running, stored_events, token_for, until_loaded

ROUNDS = 12


def ways_of(service):
    """Return the routes of an event: through either port, alone or with a payment, which is stored elsewhere."""
    payments = itertools.count()

    def beside_a_payment(event):
        return [{"name": "payment", "id": f"p{next(payments)}", "props": {"amount": 1, "currency": "eur"}}, event]

    return {
        "main": (service.url, lambda event: [event]),
        "ingest": (service.ingest_url, lambda event: [event]),
        "main, mixed": (service.url, beside_a_payment),
        "ingest, mixed": (service.ingest_url, beside_a_payment),
    }


def test_the_first_arrival_counts_whatever_its_route(tmp_path):
    with running(tmp_path / "data", "--workers", "2") as service:
        app = httpx.post(f"{service.url}/v1/apps", json={"name": "An app"}, headers=bearer(token_for(service.data)))
        ways, sent = ways_of(service), 0
        with httpx.Client(headers=bearer(app.json()["sk_key"]), timeout=60) as client:
            for number, (first, second) in itertools.product(range(ROUNDS), itertools.permutations(ways, 2)):
                for order, way in (("first", first), ("second", second)):
                    url, body_of = ways[way]
                    event = {"name": order, "id": f"{number} {first} {second}", "props": {"way": way}}
                    assert client.post(f"{url}/v1/events", json=body_of(event)).status_code == 202
                    sent += len(body_of(event))
        pairs = ROUNDS * len(list(itertools.permutations(ways, 2)))
        payments = sent - 2 * pairs
        counted = "SELECT coalesce(sum(events), 0) FROM usage"
        assert eventually(lambda: ledger_rows(service.data, counted)[0][0] == pairs + payments)
        until_loaded(service)  # what does not count changes no usage, and comes last
        assert service.stop() == 0
        stored = stored_events(service.data)
    assert len(stored) == 2 * pairs
    assert {name for _, name, _, _, counts, _ in stored if counts} == {"first"}
