import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

import { isCurrency } from "../src/currencies.js";
import {
  eventItem, ITEM_BYTES_MAX, paymentItem, SENT_AT_BYTES, sentItem, signupItem, subscriptionItem, type EventOptions, type Queueing,
} from "../src/items.js";
import { bodyOf } from "../src/queue.js";
import { PYTHON } from "./service.js";

const queueing: Queueing = { now: Date.UTC(2026, 10, 16), newId: () => "new-id", isPublishable: false };
const publishable = { ...queueing, isPublishable: true };
const payment = { id: "invoice-1", amount: 1999, currency: "eur" };
const subscription = { id: "sub-1", status: "active", mrr: 1999, currency: "EUR" };

function sent(name: string, options: EventOptions = {}) {
  return sentItem(eventItem(name, options, queueing));
}

test("an event gets its id and its time when it is queued", () => {
  assert.deepEqual(sent("report_opened", { user: "ann", props: { plan: "pro", left: undefined } }), {
    name: "report_opened", user: "ann", id: "new-id", at: "2026-11-16T00:00:00.000Z", props: { plan: "pro" },
  });
});

test("the caller's id and time stay as they are", () => {
  assert.equal(sent("a", { id: "mine" })["id"], "mine");
  for (const at of ["2026-11-16T01:00:00+01:00", "2016-12-31T23:59:60Z", "2024-02-29t00:00:00.123456z", 1_789_000_000_000]) {
    assert.equal(sent("a", { at })["at"], at);
  }
  assert.equal(sent("a", { at: new Date(0) })["at"], "1970-01-01T00:00:00.000Z");
});

test("an empty user or id equals none", () => {
  const none = null as unknown as string;
  assert.deepEqual(Object.keys(sent("a", { user: none, id: none })), ["name", "id", "at"]);
  assert.deepEqual(Object.keys(sent("a", { user: "", id: "" })), ["name", "id", "at"]);
});

test("lengths are counted in code points", () => {
  assert.equal(sent("😀".repeat(128))["name"], "😀".repeat(128));
  assert.throws(() => sent("😀".repeat(129)), TypeError);
});

test("what can never be accepted raises", () => {
  const many = Object.fromEntries(Array.from({ length: 101 }, (_, place) => [`key${place}`, 1]));
  const wide = Object.fromEntries(Array.from({ length: 100 }, (_, place) => [`key${place}`, "ä".repeat(1024)]));
  const refused: [string, EventOptions][] = [
    ["", {}],
    ["a".repeat(129), {}],
    ["\ud800", {}],
    [5 as unknown as string, {}],
    [null as unknown as string, {}],
    ["a", { user: "a".repeat(257) }],
    ["a", { user: 7 as unknown as string }],
    ["a", { id: "a".repeat(257) }],
    ["a", { props: many }],
    ["a", { props: wide }],
    ["a", { props: { text: "a".repeat(1025) } }],
    ["a", { props: { nested: {} as unknown as string } }],
    ["a", { props: { list: [] as unknown as string } }],
    ["a", { props: { number: Number.NaN } }],
    ["a", { props: { number: Infinity } }],
    ["a", { props: { big: 5n as unknown as number } }],
    ["a", { props: { "\udfff": 1 } }],
    ["a", { props: [] as unknown as EventOptions["props"] }],
    ["a", { props: "text" as unknown as EventOptions["props"] }],
    ["a", { props: new Date() as unknown as EventOptions["props"] }],
    ["a", { props: new Map() as unknown as EventOptions["props"] }],
    ["a", { at: "2026-11-16" }],
    ["a", { at: "2026-11-16T00:00:00" }],
    ["a", { at: "2025-02-29T00:00:00Z" }],
    ["a", { at: "2026-11-16T24:00:00Z" }],
    ["a", { at: "2026-11-16T00:00:00+0100" }],
    ["a", { at: 1.5 }],
    ["a", { at: new Date(Number.NaN) }],
    ["a", { at: new Date(8.64e15) }],
    ["payment", {}],
    ["payment", { id: "1", props: { amount: 1, currency: "eur" } }],
  ];
  for (const [name, options] of refused) {
    assert.throws(() => sent(name, options), TypeError, `${String(name).slice(0, 10)} ${Object.keys(options).join()}`);
  }
});

test("options are an object without unknown names, and the error lists the known ones", () => {
  for (const odd of ["ann", 5, null, ["ann"], { usr: "ann" }, { user_id: "ann" }, { name: "a" }]) {
    assert.throws(() => sent("a", odd as EventOptions), /TypeError: .*an object with user, props, id, at/, JSON.stringify(odd));
  }
  const misspelled = { ...payment, curency: "eur" };
  assert.throws(() => paymentItem(misspelled, queueing), /curency is not an option: .*currency/);
  assert.throws(() => subscriptionItem({ ...subscription, user: "ann" } as typeof subscription, queueing), /user is not an option/);
});

test("a signup needs a user", () => {
  assert.equal(sentItem(signupItem({ user: "ann" }, queueing))["name"], "user_signup");
  for (const user of ["", null, undefined]) assert.throws(() => signupItem({ user: user as string }, queueing), /needs a user/);
  assert.throws(() => signupItem("ann" as unknown as { user: string }, queueing), /options must be an object/);
});

test("an item with its sent_at takes at most 120 KB", () => {
  const options = (characters: number) => ({ id: "i", at: 0, props: { ["k".repeat(characters)]: 1 } });
  const room = ITEM_BYTES_MAX - eventItem("a", options(0), queueing).bytes - SENT_AT_BYTES;
  const item = eventItem("a", options(room), queueing);
  const [largest] = JSON.parse(bodyOf([{ item, place: 0 }], queueing.now)) as unknown[];
  assert.equal(Buffer.byteLength(JSON.stringify(largest)), ITEM_BYTES_MAX);
  assert.throws(() => eventItem("a", options(room + 1), queueing), TypeError);
});

test("the currencies are those of the service", () => {
  const program = "from mauve.core.money import currency_codes; print(*currency_codes())";
  const accepted = execFileSync(PYTHON, ["-c", program], { encoding: "utf8" }).trim().split(" ");
  const letters = [..."abcdefghijklmnopqrstuvwxyz"];
  const codes = letters.flatMap((one) => letters.flatMap((two) => letters.map((three) => one + two + three)));
  assert.deepEqual(codes.filter(isCurrency), accepted.sort());
});

test("a payment carries its amount among its props", () => {
  const item = paymentItem({ ...payment, user: "ann", earned: false, props: { plan: "pro" } }, queueing);
  assert.deepEqual(sentItem(item), {
    name: "payment", user: "ann", id: "invoice-1", at: "2026-11-16T00:00:00.000Z",
    props: { plan: "pro", amount: 1999, currency: "eur", earned: false },
  });
  assert.ok(!item.doesExpire);
});

test("a payment that can never be booked raises", () => {
  const wrong = [
    { id: "" }, { id: undefined }, { id: "a".repeat(257) }, { amount: -1 }, { amount: 0.5 }, { amount: "5" },
    { amount: 2 ** 53 }, { amount: undefined }, { currency: "EUR" }, { currency: "euro" }, { currency: 5 }, { currency: "xqz" },
    { props: "abc" }, { props: [1] }, { earned: "no" }, { props: { amount: 5 } }, { props: { currency: "usd" } },
  ];
  for (const each of wrong) {
    const options = { ...payment, ...each } as unknown as typeof payment;
    assert.throws(() => paymentItem(options, queueing), TypeError, JSON.stringify(each));
  }
});

test("a wrong option of a payment is named as the caller wrote it", () => {
  for (const [name, value] of Object.entries({ amount: 1n, currency: 1n, earned: 1n })) {
    const options = { ...payment, [name]: value } as unknown as typeof payment;
    assert.throws(() => paymentItem(options, queueing), { name: "TypeError", message: new RegExp(`^${name} must be `) });
  }
});

test("a publishable key sends neither payments nor subscriptions", () => {
  assert.throws(() => paymentItem(payment, publishable), /server key/);
  assert.throws(() => subscriptionItem(subscription, publishable), /server key/);
  assert.ok(eventItem("a", {}, publishable));
});

test("a subscription is sent with a version time", () => {
  assert.deepEqual(sentItem(subscriptionItem(subscription, queueing)), {
    type: "subscription", ...subscription, at: "2026-11-16T00:00:00.000Z",
  });
  const wrong = [{ id: "" }, { status: 1 }, { mrr: -1 }, { mrr: 1.5 }, { currency: "e" }, { currency: "XQZ" }, { at: 5 }, { at: "soon" }];
  for (const each of wrong) {
    const options = { ...subscription, ...each } as unknown as typeof subscription;
    assert.throws(() => subscriptionItem(options, queueing), TypeError, JSON.stringify(each));
  }
});
