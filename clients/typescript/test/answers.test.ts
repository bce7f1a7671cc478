import assert from "node:assert/strict";
import { test } from "node:test";

import { backoff, classify, type Attempt } from "../src/answers.js";
import { accepted, answer } from "./fake_platform.js";

const now = Date.UTC(2026, 10, 16);
const attempt: Attempt = { failures: 1, now, random: 0.5 };

function delayOf(...parameters: Parameters<typeof answer>): number {
  const outcome = classify(answer(...parameters), attempt);
  assert.equal(outcome.action, "wait");
  return outcome.action === "wait" ? outcome.delay : NaN;
}

test("only 202 accepts, item by item", () => {
  const outcome = classify(accepted([{ index: 1, reason: "conflict" }]), attempt);
  assert.deepEqual(outcome, { action: "accept", rejected: new Map([[1, "conflict"]]) });
  for (const status of [200, 201, 204, 301, 404, 405, 418, 500, 502, 503, 504]) {
    assert.equal(classify(answer(status), attempt).action, "wait", String(status));
  }
});

test("a 202 without a readable body accepts everything", () => {
  for (const body of ["", "<html>", "null", "[]", '{"errors":5}', '{"errors":[null]}']) {
    assert.deepEqual(classify({ status: 202, retryAfter: null, moved: 0, body }, attempt), { action: "accept", rejected: new Map() });
  }
});

test("a 202 whose body was cut off is tried again: its list of rejected items may be missing", () => {
  for (const body of ["{", ' {"ok":true,"accepted":1,"rejected":1,"errors":[{"ind']) {
    const outcome = classify({ status: 202, retryAfter: null, moved: 0, body }, attempt);
    assert.equal(outcome.action, "wait", body);
    assert.match(outcome.action === "wait" ? outcome.reason : "", /202: the answer was cut off/);
  }
});

test("400, 415, 422 and a 403 without a cap drop", () => {
  for (const status of [400, 403, 415, 422]) assert.equal(classify(answer(status), attempt).action, "drop");
  const body = { ok: false, error: "every item is invalid", errors: [{ index: 0, reason: "name is required" }] };
  assert.deepEqual(classify(answer(422, body), attempt), {
    action: "drop", reason: "422: every item is invalid", reasons: new Map([[0, "name is required"]]),
  });
});

test("413 halves", () => {
  assert.equal(classify(answer(413), attempt).action, "halve");
});

test("401 is tried again after at most five minutes, with advice about the key", () => {
  assert.deepEqual([1, 5, 20].map((failures) => {
    const outcome = classify(answer(401), { ...attempt, failures, random: 1 });
    return outcome.action === "wait" && outcome.advice?.startsWith("Check key") && outcome.delay;
  }), [2_000, 32_000, 300_000]);
});

test("402 is tried every minute", () => {
  assert.equal(delayOf(402, {}, "5"), 60_000);
});

test("a cap is held until it resets, and tried at least every ten minutes", () => {
  const capped = (resets_at: unknown) => delayOf(403, { code: "event_cap_reached", resets_at });
  assert.equal(capped(now + 90_000), 90_000);
  assert.equal(capped(now + 86_400_000), 600_000);
  assert.equal(capped(now - 5), 1_500, "a reset that has passed is no reason to try every second");
  assert.equal(capped("soon"), 600_000);
});

test("Retry-After is honored in both forms, within an hour", () => {
  assert.equal(delayOf(503, {}, "7"), 7_000);
  assert.equal(delayOf(429, {}, new Date(now + 9_000).toUTCString()), 9_000);
  assert.equal(delayOf(503, {}, "0"), 1_000);
  assert.equal(delayOf(503, {}, "99999999999"), 3_600_000);
  for (const odd of ["soon", "-5", "120.5", "1e3", "2026-12-01", new Date(now - 9_000).toUTCString()]) {
    assert.equal(delayOf(503, {}, odd), 1_500, odd);
  }
});

test("without it the backoff is random, from one second to a bound that doubles up to a minute", () => {
  const outcome = classify({ error: "refused" }, { ...attempt, failures: 50, random: 0 });
  assert.deepEqual(outcome, {
    action: "wait", delay: 1_000, reason: "refused", advice: "Check url, and that the service is running there.",
  });
  for (let failures = 1; failures < 2000; failures += 1) {
    const longest = backoff({ failures, now, random: 1 }, 60_000);
    assert.equal(longest, Math.min(60, 2 ** failures) * 1000);
  }
});

test("an answer that Mauve does not give comes with advice about the address at once, a busy service after a while", () => {
  const adviceOn = (status: number, body: string, failures: number) => {
    const outcome = classify({ status, retryAfter: null, moved: 0, body }, { ...attempt, failures });
    return "advice" in outcome ? outcome.advice : undefined;
  };
  for (const status of [200, 301, 400, 403, 404, 405, 422]) assert.match(adviceOn(status, "<html>", 1)!, /check that url/);
  for (const status of [400, 403, 422]) assert.equal(adviceOn(status, '{"ok":false,"error":"no"}', 1), undefined);
  for (const status of [429, 500, 502, 503]) {
    assert.equal(adviceOn(status, "<html>", 4), undefined);
    assert.match(adviceOn(status, "<html>", 5)!, /keeps failing/);
  }
});

test("a reason is one short line", () => {
  const outcome = classify(answer(422, { ok: false, error: "a\nb".repeat(1000) }), attempt);
  assert.ok(outcome.action === "drop" && outcome.reason.startsWith("422: a ba b") && outcome.reason.length <= 305);
});
