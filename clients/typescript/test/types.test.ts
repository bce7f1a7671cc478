/** The types themselves: this file must compile, and each line that is marked must not. */

import { test } from "node:test";
import assert from "node:assert/strict";

import type { Mauve as EdgeMauve, Options as EdgeOptions } from "../src/edge.js";
import type { Mauve, Options, Stats } from "../src/node.js";

type Track = Parameters<Mauve["track"]>;

export function calls(mauve: Mauve, edge: EdgeMauve): void {
  mauve.track("report_opened", { user: "ann", props: { plan: "pro", seats: 3, trial: false, code: null, left: undefined } });
  mauve.track("report_opened", { at: new Date() });
  mauve.signup({ user: "ann" });
  mauve.payment({ id: "invoice-1", amount: 1999, currency: "eur", earned: false });
  mauve.subscription({ id: "sub-1", status: "active", mrr: 1999, currency: "eur" });
  edge.track("report_opened");
  // @ts-expect-error: a payment needs the caller's id
  mauve.payment({ amount: 1999, currency: "eur" });
  // @ts-expect-error: props are flat
  mauve.track("report_opened", { props: { deep: {} } });
  // @ts-expect-error: a name is a string
  mauve.track(5);
  // @ts-expect-error: stats are read-only
  mauve.stats.queued = 5;
  // @ts-expect-error: no such option
  mauve.track("report_opened", { usr: "ann" });
  // @ts-expect-error: options are an object
  mauve.track("report_opened", "ann");
  // @ts-expect-error: a signup needs a user
  mauve.signup();
  // @ts-expect-error: a signup needs a user
  edge.signup({});
  // @ts-expect-error: a number is not a version time
  mauve.subscription({ id: "sub-1", status: "active", mrr: 1999, currency: "eur", at: 5 });
}

export const options: Options = { key: "sk_live_…", url: "https://ingest.example.com", spool: "/var/spool/app" };
export const edgeOptions: EdgeOptions = { key: "pk_live_…", url: "https://ingest.example.com", waitUntil: () => undefined };
// @ts-expect-error: only Node has a spool
export const noSpool: EdgeOptions = { spool: "/var/spool/app" };
export const stats = (mauve: Mauve): Stats => mauve.stats;
export const flushed = (mauve: Mauve): Promise<boolean> => mauve.flush(10_000);

test("the parameters of track are a name and its options", () => {
  const parameters: Track = ["report_opened", {}];
  assert.equal(parameters.length, 2);
});
