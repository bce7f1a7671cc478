"""The buckets of the edge and of accepted counts on NATS, for tests."""

from collections.abc import Callable
from contextlib import closing, suppress

from nats.errors import Error
from nats.js.errors import NotFoundError

from mauve.core.secret import Secret
from mauve.stores import StoreUnavailableError
from mauve.stores.nats import accepted, edge
from mauve.stores.nats.bucket import Bucket, BucketState
from mauve.stores.nats.connection import Connection, LoopThread
from mauve.stores.nats.edge import NatsEdgePublisher, NatsEdgeReader
from support.service import eventually

IDENTITY = "this installation"


def on_bucket(url: str, name: str, work: Callable):
    """Return the result of a coroutine function that gets a bucket and its connection."""

    async def run():
        connection = Connection(Secret(url), "test")
        try:
            return await work(Bucket(connection, name), connection)
        finally:
            await connection.close()

    with closing(LoopThread("test")) as thread:
        return thread.run(run(), 60)


def delete_bucket(url: str, name: str) -> None:
    async def delete(_, connection):
        with suppress(NotFoundError):
            await (await connection.client()).jsm().delete_stream(f"KV_{name}")

    on_bucket(url, name, delete)


def create_buckets(url: str, identity: str = IDENTITY) -> None:
    on_bucket(url, edge.BUCKET, lambda bucket, _: bucket.create(identity))
    on_bucket(url, accepted.BUCKET, lambda bucket, _: bucket.create(identity, accepted.TTL_S))


def new_buckets(url: str) -> None:
    def are_new() -> bool:
        with suppress(StoreUnavailableError, Error):  # while a leader is elected
            for name in (edge.BUCKET, accepted.BUCKET):
                delete_bucket(url, name)
            create_buckets(url)
            return True
        return False

    eventually(are_new)


def state_of(url: str, name: str = edge.BUCKET) -> BucketState:
    return on_bucket(url, name, lambda bucket, _: bucket.state())


class NatsEdge:
    """A publisher and a reader that waits for everything that was published by now, as a user would."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._publisher = NatsEdgePublisher(Secret(url), lambda: IDENTITY)
        self._reader = NatsEdgeReader(Secret(url))
        self.publish, self.edge_id = self._publisher.publish, self._publisher.edge_id

    def changes_since(self, revision):
        last = state_of(self._url).last_sequence
        eventually(lambda: self._reader.sequence >= last)
        return self._reader.changes_since(revision)

    def close(self):
        self._publisher.close()
        self._reader.close()


def follow_at_once(monkeypatch) -> None:
    """Make every publication wait until the open readers of this process have it, as on one machine."""
    readers = set()
    opened, closed, published = NatsEdgeReader.__init__, NatsEdgeReader.close, NatsEdgePublisher.publish

    def open_and_note(reader, *arguments, **options):
        opened(reader, *arguments, **options)
        readers.add(reader)

    def close_and_forget(reader):
        readers.discard(reader)
        closed(reader)

    def publish_and_wait(publisher, records):
        edge_id = published(publisher, records)
        last = publisher.last_sequence()
        eventually(lambda: all(reader.sequence >= last for reader in list(readers)))
        return edge_id

    monkeypatch.setattr(NatsEdgeReader, "__init__", open_and_note)
    monkeypatch.setattr(NatsEdgeReader, "close", close_and_forget)
    monkeypatch.setattr(NatsEdgePublisher, "publish", publish_and_wait)
