/** `track` and `signup` must not fail their caller; `payment` and `subscription` must not alter money. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, type Options } from "../src/client.js";
import type { EventOptions, SentItem } from "../src/items.js";
import { FakePlatform } from "./fake_platform.js";

function opened(options: Options = {}) {
  const platform = new FakePlatform();
  const dropped: [SentItem, string][] = [];
  const onDrop = (...fate: [SentItem, string]) => void dropped.push(fate);
  const client = new Client({ key: "sk_live_test", url: "http://localhost", onDrop, ...options }, platform);
  return { client, platform, dropped };
}

async function sentBy(client: Client, platform: FakePlatform): Promise<Record<string, unknown>[]> {
  await client.flush();
  return platform.posts.flatMap((_, place) => platform.items(place));
}

test("a number as user becomes text", async () => {
  const { client, platform } = opened();
  client.track("a", { user: 42 as unknown as string });
  client.track("a", { user: 10n ** 20n as unknown as string });
  client.signup({ user: 0 as unknown as string });
  const users = (await sentBy(client, platform)).map((item) => item["user"]);
  assert.deepEqual(users, ["42", "100000000000000000000", "0"]);
  assert.deepEqual(platform.warnings, ["user is a number and is sent as text: pass a string"]);
});

test("a long property is truncated, whatever its characters", async () => {
  const { client, platform, dropped } = opened();
  const props = { plain: "a".repeat(5000), wide: "😀".repeat(1500), mixed: `${"a".repeat(1023)}😀😀`, fits: "😀".repeat(1024) };
  client.track("a", { props });
  client.track("a", { props });
  const [first] = await sentBy(client, platform);
  assert.deepEqual(first!["props"], {
    plain: "a".repeat(1024), wide: "😀".repeat(1024), mixed: `${"a".repeat(1023)}😀`, fits: "😀".repeat(1024),
  });
  assert.deepEqual(dropped, []);
  assert.deepEqual(platform.warnings.map((line) => line.split(" ")[0]), ["props.plain", "props.wide", "props.mixed"]);
});

test("a property that cannot be sent is left out and logged once, and the others are sent", async () => {
  const { client, platform } = opened();
  const odd = {
    nested: {}, list: [1], nan: Number.NaN, infinite: Infinity, bytes: new Uint8Array(3), big: 5n, date: new Date(), call: () => 1,
    symbol: Symbol("a"), broken: "\ud800", "\udfff": 1, none: null, left: undefined, kept: true,
  };
  for (let call = 0; call < 2; call += 1) client.track("a", { props: odd as unknown as EventOptions["props"] });
  const items = await sentBy(client, platform);
  assert.deepEqual(items.map((item) => item["props"]), [{ none: null, kept: true }, { none: null, kept: true }]);
  assert.equal(platform.warnings.length, 11);
  assert.match(platform.warnings.join("\n"), /props\.nan is left out: .* finite number/);
});

test("properties beyond 100 are left out", async () => {
  const { client, platform } = opened();
  client.track("a", { props: Object.fromEntries(Array.from({ length: 150 }, (_, place) => [`key${place}`, place])) });
  const [item] = await sentBy(client, platform);
  assert.equal(Object.keys(item!["props"] as object).length, 100);
  assert.deepEqual(platform.warnings, ["props beyond 100 keys are left out"]);
});

test("an option that does not exist is left out and logged once", async () => {
  const { client, platform } = opened();
  for (let call = 0; call < 2; call += 1) client.track("a", { usr: "ann" } as EventOptions);
  client.track("a", null as unknown as EventOptions);
  assert.equal((await sentBy(client, platform)).length, 3);
  assert.deepEqual(platform.warnings, ["usr is not an option of an event and is left out: use props"]);
});

const raising = { get user(): string { throw new Error("mine"); } };
const wide = Object.fromEntries(Array.from({ length: 100 }, (_, place) => [`key${place}`, "ä".repeat(1024)]));
const HOPELESS: [unknown, unknown][] = [
  ["", {}], ["a".repeat(129), {}], ["\ud800", {}], [5, {}], [null, {}], [undefined, undefined],
  ["payment", {}], ["payment", { id: "1", props: { amount: 1, currency: "eur" } }],
  ["a", { user: "a".repeat(257) }], ["a", { user: {} }], ["a", { user: Number.NaN }], ["a", { user: "\ud800" }],
  ["a", { props: [] }], ["a", { props: "text" }], ["a", { props: new Map() }], ["a", { props: wide }],
  ["a", { id: "a".repeat(257) }], ["a", { id: 5 }], ["a", { at: "yesterday" }], ["a", { at: {} }],
  ["a", "ann"], ["a", ["ann"]], ["a", 5], ["a", raising],
];

test("an event that cannot be sent at all is dropped and counted, and flush is false", async () => {
  for (const [name, options] of HOPELESS) {
    const { client, platform, dropped } = opened();
    client.track(name as string, options as EventOptions);
    assert.equal(client.stats.dropped, 1, `${String(name).slice(0, 20)} ${typeof options}`);
    assert.equal(dropped.length, 1);
    assert.equal(dropped[0]![0]["name"], name);
    assert.ok(dropped[0]![1].length > 0);
    assert.equal(await client.flush(), false);
    assert.equal(await client.flush(), true);
    assert.deepEqual([platform.posts.length, platform.warnings.length], [0, 1]);
  }
});

test("a signup without a user is dropped", () => {
  for (const options of [undefined, {}, { user: "" }, { user: null }, "ann"]) {
    const { client, dropped } = opened();
    client.signup(options as { user: string });
    assert.deepEqual([client.stats.dropped, dropped.length], [1, 1], JSON.stringify(options));
  }
});

test("payments and subscriptions raise and queue nothing: money is never altered", () => {
  const { client, dropped } = opened();
  const payment = { id: "1", amount: 1, currency: "eur" };
  const calls = [
    () => client.payment({ ...payment, user: 42 as unknown as string }),
    () => client.payment({ ...payment, props: { text: "a".repeat(1025) } }),
    () => client.payment({ ...payment, amount: 1.5 }),
    () => client.subscription({ id: "s", status: "active", mrr: 1.5, currency: "eur" }),
  ];
  for (const call of calls) assert.throws(call, TypeError, String(call));
  assert.deepEqual([client.stats.queued, client.stats.dropped, dropped], [0, 0, []]);
});

test("with strict, every call raises and nothing is counted", () => {
  const { client, dropped } = opened({ strict: true });
  for (const [name, options] of HOPELESS.filter(([, given]) => given !== raising)) {
    assert.throws(() => client.track(name as string, options as EventOptions), TypeError, String(name).slice(0, 20));
  }
  const changed = [{ user: 42 }, { props: { text: "a".repeat(1025) } }, { props: { nested: {} } }, { usr: "ann" }];
  for (const options of changed) assert.throws(() => client.track("a", options as EventOptions), TypeError);
  assert.throws(() => client.signup({} as { user: string }), TypeError);
  assert.deepEqual([client.stats.queued, client.stats.dropped, dropped], [0, 0, []]);
});
