import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, type Options } from "../src/client.js";
import { accepted, answer, FakePlatform, settled } from "./fake_platform.js";

const KEY = "sk_live_test";
const SUBSCRIPTION = { id: "sub-1", status: "active", mrr: 1999, currency: "eur" };
const DAY = 86_400_000;

function opened(options: Options = {}) {
  const platform = new FakePlatform();
  const ended: [string, unknown, string][] = [];
  const client = new Client(
    {
      key: KEY,
      url: "https://ingest.example.com/",
      onDrop: (item, reason) => ended.push(["dropped", item["name"] ?? item["type"], reason]),
      onReject: (item, reason) => ended.push(["rejected", item["name"], reason]),
      ...options,
    },
    platform,
  );
  return { platform, client, ended };
}

function counts(client: Client): number[] {
  const { queued, accepted: taken, rejected, dropped, expired } = client.stats;
  return [queued, taken, rejected, dropped, expired];
}

test("calls of an interval are one request", async () => {
  const { client, platform } = opened();
  client.track("one");
  client.signup({ user: "ann" });
  client.payment({ id: "invoice-1", amount: 1, currency: "eur" });
  await platform.pass(999);
  assert.equal(platform.posts.length, 0);
  await platform.pass(1);
  assert.deepEqual(platform.items(0).map((item) => item["name"]), ["one", "user_signup", "payment"]);
  assert.equal(platform.posts[0]!.url, "https://ingest.example.com/v1/events");
  assert.deepEqual(counts(client), [0, 3, 0, 0, 0]);
});

test("a full batch is sent at once, and a request never has more", async () => {
  const { client, platform } = opened({ maxQueue: 2000 });
  for (let place = 0; place < 1100; place += 1) client.track(`event ${place}`);
  await settled();
  await platform.pass(1000);
  assert.deepEqual(platform.posts.map((_, place) => platform.items(place).length), [500, 500, 100]);
});

test("a body stays below its limit", async () => {
  const { client, platform } = opened();
  const props = Object.fromEntries(Array.from({ length: 90 }, (_, place) => [`key${place}`, "ä".repeat(600)]));
  for (let place = 0; place < 20; place += 1) client.track("large", { props });
  await platform.pass(60_000);
  assert.ok(platform.posts.length > 1);
  for (const post of platform.posts) assert.ok(Buffer.byteLength(post.body) <= 921_600);
  assert.equal(client.stats.accepted, 20);
});

test("id and time stay the same with every attempt, and sent_at does not", async () => {
  const { client, platform } = opened();
  platform.answers = [{ error: "refused" }, answer(503, {}, "5"), accepted()];
  client.track("one", { user: "ann" });
  await platform.pass(60_000);
  const [first, second, third] = [0, 1, 2].map((place) => platform.items(place)[0]!);
  const { sent_at: one, ...item } = first!;
  const { sent_at: two, ...again } = second!;
  const { sent_at: three, ...last } = third!;
  assert.deepEqual(again, item);
  assert.deepEqual(last, item);
  assert.ok(String(one) < String(two) && String(two) < String(three));
  assert.deepEqual(counts(client), [0, 1, 0, 0, 0]);
  assert.equal(client.stats.retries, 2);
});

test("items rejected inside a 202 are reported one by one", async () => {
  const { client, platform, ended } = opened();
  platform.answers = [accepted([{ index: 1, reason: "conflict" }])];
  for (const name of ["one", "two", "three"]) client.track(name);
  await platform.pass(1000);
  assert.deepEqual(ended, [["rejected", "two", "conflict"]]);
  assert.deepEqual(counts(client), [0, 2, 1, 0, 0]);
});

test("a dropped batch does not stop the next", async () => {
  for (const status of [400, 403, 415, 422]) {
    const { client, platform, ended } = opened();
    platform.answers = [answer(status), accepted()];
    client.track("one");
    await platform.pass(1000);
    client.track("two");
    await platform.pass(1000);
    assert.deepEqual(ended, [["dropped", "one", `${status}: no`]]);
    assert.deepEqual(counts(client), [0, 1, 0, 1, 0]);
  }
});

test("413 halves until a single item is dropped", async () => {
  const { client, platform, ended } = opened();
  platform.post = async (request) => {
    platform.posts.push(request);
    return request.body.includes("poison") ? answer(413) : accepted();
  };
  for (const name of ["a", "b", "poison", "c", "d", "e", "f"]) client.track(name);
  await platform.pass(60_000);
  assert.deepEqual(ended.map(([what, name]) => [what, name]), [["dropped", "poison"]]);
  assert.deepEqual(counts(client), [0, 6, 0, 1, 0]);
});

test("401 is held with one line in the log, then everything arrives", async () => {
  const { client, platform } = opened();
  platform.answers = [answer(401), answer(401), answer(401), accepted()];
  client.track("one");
  await platform.pass(20 * 60_000);
  assert.equal(client.stats.accepted, 1);
  assert.equal(platform.warnings.length, 1);
  assert.match(platform.warnings[0]!, /https:\/\/ingest.example.com: 401: no\. Check key/);
  assert.doesNotMatch(platform.warnings[0]!, /sk_live/);
});

test("402 is tried every 60 seconds, and a flush does not shorten that", async () => {
  const { client, platform } = opened();
  platform.answers = [answer(402)];
  client.track("one");
  await platform.pass(1000);
  const flushed = client.flush(30_000);
  await platform.pass(30_000);
  assert.equal(await flushed, false);
  assert.equal(platform.posts.length, 1);
  await platform.pass(30_000);
  assert.equal(platform.posts.length, 2);
});

test("held events do not hold subscriptions", async () => {
  const { client, platform } = opened();
  platform.post = async (request) => {
    platform.posts.push(request);
    const body = { code: "event_cap_reached", resets_at: platform.time + DAY };
    return request.url.endsWith("/v1/events") ? answer(403, body) : accepted();
  };
  client.track("one");
  client.subscription(SUBSCRIPTION);
  await platform.pass(2000);
  assert.deepEqual(counts(client), [1, 1, 0, 0, 0]);
  const events = () => platform.posts.filter((post) => post.url.endsWith("/v1/events")).length;
  await platform.pass(600_000);
  assert.equal(events(), 2);
});

test("a subscription is sent as it is, without sent_at", async () => {
  const { client, platform } = opened();
  client.subscription({ ...SUBSCRIPTION, at: "2026-11-01T00:00:00Z" });
  await platform.pass(1000);
  assert.deepEqual(platform.items(0), [{ type: "subscription", ...SUBSCRIPTION, at: "2026-11-01T00:00:00Z" }]);
});

test("the queue drops its oldest items, counted and reported, with one log line a minute that has the real count", async () => {
  const { client, platform, ended } = opened({ maxQueue: 3 });
  platform.answers = [{ error: "refused" }];
  for (const name of ["a", "b", "c", "d", "e"]) client.track(name);
  assert.deepEqual(ended.map(([, name]) => name), ["a", "b"]);
  assert.deepEqual(counts(client), [3, 0, 0, 2, 0]);
  const lines = () => platform.warnings.filter((line) => line.includes("the queue is full"));
  await platform.pass(0);
  assert.deepEqual(lines(), ["dropped 2 items: the queue is full: await wait() before each call, or raise maxQueue"]);
  for (const name of ["f", "g", "h"]) client.track(name);
  await platform.pass(59_999);
  assert.equal(lines().length, 1);
  await platform.pass(1);
  assert.match(lines()[1]!, /^dropped 3 items \(5 in all\): /);
  client.track("i");
  const closed = client.close(0);
  await platform.pass(0);
  await closed;
  assert.match(lines().length === 3 ? lines()[2]! : platform.warnings.join(), /dropped 4 items \(9 in all\)/);
});

test("a full queue drops behavioral events before payments", () => {
  const { client, ended } = opened({ maxQueue: 3 });
  const pay = (id: string) => client.payment({ id, amount: 1, currency: "eur" });
  pay("1");
  client.track("a");
  client.track("b");
  pay("2");
  pay("3");
  client.track("c");
  assert.deepEqual(ended.map(([, name]) => name), ["a", "b", "c"]);
  pay("4");
  assert.deepEqual(ended.map(([, name]) => name), ["a", "b", "c", "payment"]);
  assert.deepEqual(counts(client), [3, 0, 0, 4, 0]);
});

test("flush is false if items were dropped unsent since the last flush, and the log has their number", async () => {
  const { client, platform } = opened();
  for (let place = 0; place < 1500; place += 1) client.payment({ id: `${place}`, amount: 1, currency: "eur" });
  const flushes = [client.flush(), client.flush()];
  await platform.pass(0);
  assert.deepEqual(await Promise.all(flushes), [false, false]);
  assert.deepEqual(counts(client), [0, 1000, 0, 500, 0]);
  assert.match(platform.warnings.join("\n"), /^dropped 500 items: the queue is full[^\n]*$/);
  client.track("one");
  assert.equal(await client.flush(), true);
});

test("wait returns once there is room, so that a script loses nothing", async () => {
  const { client, platform } = opened({ maxQueue: 20, batchSize: 50 });
  platform.answers = [accepted()];
  for (let place = 0; place < 200; place += 1) {
    assert.equal(await client.wait(), true);
    client.payment({ id: `${place}`, amount: 1, currency: "eur" });
  }
  assert.equal(await client.flush(), true);
  assert.deepEqual(counts(client), [0, 200, 0, 0, 0]);
});

test("wait is false after its time, and after close", async () => {
  const { client, platform } = opened({ maxQueue: 2 });
  platform.answers = [answer(402)];
  for (const name of ["a", "b"]) client.track(name);
  const waited = client.wait(5000);
  await platform.pass(5000);
  assert.equal(await waited, false);
  const [late, closed] = [client.wait(60_000), client.close(0)];
  await platform.pass(0);
  assert.deepEqual([await late, await closed, await client.wait()], [false, false, false]);
});

test("an item in flight is not dropped for a new one", async () => {
  const { client, platform, ended } = opened({ maxQueue: 2, batchSize: 2 });
  platform.answers = ["never"];
  for (const name of ["a", "b", "c"]) client.track(name);
  assert.deepEqual(ended.map(([, name]) => name), ["c"]);
});

test("behavioral items expire after 6 days and 23 hours, payments and subscriptions never", async () => {
  const { client, platform } = opened();
  platform.answers = [answer(402)];
  client.track("one");
  client.payment({ id: "invoice-1", amount: 1, currency: "eur" });
  client.subscription(SUBSCRIPTION);
  await platform.pass(7 * DAY - 3_600_000 - 60_000);
  assert.deepEqual(counts(client), [3, 0, 0, 0, 0]);
  await platform.pass(121_000);
  assert.deepEqual(counts(client), [2, 0, 0, 0, 1]);
  platform.answers = [accepted()];
  await platform.pass(60_000);
  assert.deepEqual(counts(client), [0, 2, 0, 0, 1]);
});

test("flush sends at once, and is true when everything was answered", async () => {
  const { client } = opened();
  assert.equal(await client.flush(), true);
  client.track("one");
  client.subscription(SUBSCRIPTION);
  assert.equal(await client.flush(10), true);
  assert.deepEqual(counts(client), [0, 2, 0, 0, 0]);
});

test("flush is also true for items that were dropped", async () => {
  const { client, platform } = opened();
  platform.answers = [answer(400)];
  client.track("one");
  assert.equal(await client.flush(10), true);
});

test("close drops what it could not deliver in time, and later calls are dropped without raising", async () => {
  const { client, platform, ended } = opened();
  platform.answers = ["never"];
  client.track("one");
  const closed = client.close(5000);
  client.track("late");
  client.track("");
  await platform.pass(5000);
  assert.equal(await closed, false);
  assert.deepEqual(ended.map(([what, name]) => [what, name]), [
    ["dropped", "late"], ["dropped", undefined], ["dropped", "one"],
  ]);
  assert.deepEqual(counts(client), [0, 0, 0, 3, 0]);
  assert.ok(platform.posts[0]!.signal.aborted);
  assert.equal(await client.close(), false);
});

test("an endless time limit is the longest, and one that is none raises without closing", async () => {
  for (const timeout of [Infinity, 2 ** 31, 1e10]) {
    const { client, platform, ended } = opened();
    platform.answers = [answer(503, {}, "5"), accepted()];
    client.track("one");
    const closed = client.close(timeout);
    await platform.pass(3_600_000);
    assert.equal(await closed, true);
    assert.deepEqual(ended, []);
    assert.deepEqual(platform.delays.filter((delay) => delay > 2 ** 31 - 1), []);
  }
  for (const timeout of [Number.NaN, -1, "10" as unknown as number]) {
    const { client } = opened();
    client.track("one");
    await assert.rejects(client.flush(timeout), TypeError);
    await assert.rejects(client.close(timeout), TypeError);
    assert.equal(await client.close(), true);
    assert.equal(client.stats.accepted, 1);
  }
});

test("answers in turns are one log line each", async () => {
  const { client, platform } = opened();
  const failures = Array.from({ length: 20 }, (_, place) => answer(place % 2 ? 402 : 401, { error: `attempt ${place}` }));
  platform.answers = [...failures, accepted()];
  client.track("one");
  await platform.pass(2 * 3_600_000);
  assert.equal(client.stats.accepted, 1);
  assert.equal(platform.warnings.length, 2);
});

test("a callback that fails changes nothing", async () => {
  const fail = () => {
    throw new Error("mine");
  };
  const { client, platform } = opened({ onDrop: fail, onReject: async () => fail() });
  platform.answers = [accepted([{ index: 0, reason: "conflict" }]), answer(400), accepted()];
  for (const name of ["one", "two", "three"]) {
    client.track(name);
    await platform.pass(1000);
  }
  assert.deepEqual(counts(client), [0, 1, 1, 1, 0]);
});

test("stats is a frozen snapshot", () => {
  const { client } = opened();
  const before = client.stats;
  client.track("one");
  assert.equal(before.queued, 0);
  assert.ok(Object.isFrozen(before));
});

test("invalid options raise and say what to pass", () => {
  const wrong: Options[] = [
    { key: "" }, { key: "a\nb" }, { url: "" }, { url: "ftp://host" }, { url: "https://user:secret@host" },
    { url: "https://host/v1" }, { url: "https://host/v1/" }, { url: "https://host/proxy/v1/events" },
    { onDrop: "5" as unknown as () => void }, { onReject: 5 as unknown as () => void },
    { maxQueue: 0 }, { batchSize: 0 }, { batchSize: 501 }, { timeout: 0 }, { flushInterval: -1 }, { flushInterval: Number.NaN },
  ];
  for (const each of wrong) assert.throws(() => opened(each), TypeError, JSON.stringify(each));
});

test("an address that goes on to an endpoint is refused, and the path of a proxy is not", async () => {
  assert.throws(() => opened({ url: "https://host/v1/events" }), /url must end before \/v1/);
  const { client, platform } = opened({ url: "https://host/v1/mauve" });
  client.track("one");
  await platform.pass(1000);
  assert.equal(platform.posts[0]!.url, "https://host/v1/mauve/v1/events");
});

test("a signup event without a user is sent, and one line says that it adds no signup", async () => {
  const { client, platform } = opened();
  for (const user of [undefined, "", "ann"]) client.track("user_signup", { user });
  await platform.pass(600_000);
  client.track("user_signup");
  await client.close();
  client.track("user_signup", null as unknown as object);
  assert.equal(client.stats.accepted, 4);
  assert.equal(platform.warnings.filter((line) => /without a user is sent, but adds no signup/.test(line)).length, 1);
});

test("a key of another kind is refused with the kind to pass, and not shown", () => {
  const wrong = { "ctl_live_secret": /control token/, "sk_live_…": /placeholder/, "whsec_secret": /neither/, " ": /missing/ };
  for (const [key, expected] of Object.entries(wrong)) {
    assert.throws(() => opened({ key }), (error: Error) => {
      assert.match(error.message, expected);
      assert.match(error.message, /sk_live_… on a server or pk_live_…/);
      return error instanceof TypeError && !error.message.includes("secret");
    });
  }
});

test("events and subscriptions that fail alike are one line in the log, and another after a success", async () => {
  const { client, platform } = opened();
  const fail = async () => {
    platform.answers = [{ error: "no answer: refused" }];
    client.track("one");
    client.subscription(SUBSCRIPTION);
    await platform.pass(300_000);
  };
  await fail();
  assert.equal(platform.warnings.length, 1);
  assert.match(platform.warnings[0]!, /kept and retried: https:\/\/ingest\.example\.com: no answer: refused\. Check url/);
  platform.answers = [accepted()];
  await platform.pass(60_000);
  assert.equal(client.stats.accepted, 2);
  await fail();
  assert.equal(platform.warnings.length, 2);
});

test("times that the service moved are one log line a minute with their number", async () => {
  const { client, platform } = opened({ batchSize: 1 });
  platform.answers = [{ ...accepted(), moved: 1 }];
  for (const name of ["a", "b", "c"]) client.track(name);
  await platform.pass(70_000);
  const lines = platform.warnings.filter((line) => line.includes("moved the time"));
  assert.equal(lines.join().match(/\d+ items?/g)?.map((text) => parseInt(text, 10)).reduce((sum, count) => sum + count), 3);
  assert.match(lines[0]!, /the service moved the time of .*mauve import/);
});
