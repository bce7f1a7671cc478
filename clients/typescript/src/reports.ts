/** Report the outcome of items through counts, callbacks, and log lines that cannot flood a log. */

import type { SentItem } from "./items.js";
import type { Platform } from "./platform.js";

export interface Stats {
  readonly queued: number;
  readonly accepted: number;
  readonly rejected: number;
  readonly dropped: number;
  readonly expired: number;
  readonly retries: number;
}

/** Called with an item that was not accepted, as it is sent, and the reason. */
export type Callback = (item: SentItem, reason: string) => void;

/** A count since the last log line about it. */
interface Tally {
  count: number;
  /** Return the line. */
  describe: (count: number) => string;
  cancel: () => void;
}

const WARN_EVERY = 60_000;
/** Names of properties are topics, and there may be any number of them. */
const TOPICS_MAX = 1000;

export class Reports {
  #accepted = 0;
  #rejected = 0;
  #dropped = 0;
  #expired = 0;
  #retries = 0;
  #unsent = 0;
  readonly #warnedAt = new Map<string, number>();
  readonly #tallies = new Map<string, Tally>();

  constructor(
    private readonly platform: Platform,
    private readonly onDrop: Callback | undefined,
    private readonly onReject: Callback | undefined,
  ) {}

  stats(queued: number): Stats {
    return Object.freeze({
      queued,
      accepted: this.#accepted,
      rejected: this.#rejected,
      dropped: this.#dropped,
      expired: this.#expired,
      retries: this.#retries,
    });
  }

  /** How many items were dropped without an answer. */
  get unsent(): number {
    return this.#unsent;
  }

  countAccepted(): void {
    this.#accepted += 1;
  }

  countRetry(): void {
    this.#retries += 1;
  }

  expire(count: number): void {
    this.#expired += count;
    this.#unsent += count;
    this.#tally("expired", count, (sum) => `${sum} events expired: they were held for almost seven days`);
  }

  /** Drop an item that was not answered. */
  drop(item: SentItem, reason: string): void {
    this.#unsent += 1;
    this.dropAnswered(item, reason);
  }

  dropAnswered(item: SentItem, reason: string): void {
    this.#dropped += 1;
    const all = (count: number) => (this.#dropped === count ? "" : ` (${this.#dropped} in all)`);
    this.#tally("dropped", 1, (count) => `dropped ${items(count)}${all(count)}: ${reason}`);
    this.#call(this.onDrop, item, reason);
  }

  reject(item: SentItem, reason: string): void {
    this.#rejected += 1;
    this.#call(this.onReject, item, reason);
  }

  /** Note that the service has moved the times of items. */
  countMoved(count: number): void {
    const advice = "`at` must be within the last 7 days and the next 5 minutes. Load older data with `mauve import`";
    this.#tally("moved", count, (sum) => `the service moved the time of ${items(sum)}: ${advice}`);
  }

  /** Write at most one line a minute about a topic. */
  warn(topic: string, message: string): void {
    if (this.#delayOf(topic) > 0) return;
    this.#warnedAt.set(topic, this.platform.now());
    this.platform.warn(message);
  }

  warnOnce(topic: string, message: string): void {
    if (!this.#warnedAt.has(topic) && this.#warnedAt.size < TOPICS_MAX) this.warn(topic, message);
  }

  /** Write the lines that are due, or all pending lines. */
  logTallies(which: "due" | "all"): void {
    for (const topic of [...this.#tallies.keys()]) if (which === "all" || this.#delayOf(topic) === 0) this.#log(topic);
  }

  /** Count for the next line about a topic, written at the end of this turn and then once a minute with the full count. */
  #tally(topic: string, count: number, describe: Tally["describe"]): void {
    const tally = this.#tallies.get(topic);
    if (tally) {
      tally.count += count;
      tally.describe = describe;
      return;
    }
    const cancel = this.platform.setTimer(() => this.#log(topic), this.#delayOf(topic), false);
    this.#tallies.set(topic, { count, describe, cancel });
  }

  #log(topic: string): void {
    const tally = this.#tallies.get(topic);
    if (!tally) return;
    tally.cancel();
    this.#tallies.delete(topic);
    this.#warnedAt.set(topic, this.platform.now());
    this.platform.warn(tally.describe(tally.count));
  }

  /** Return the wait until the next line about a topic. A clock that was set back does not prolong it. */
  #delayOf(topic: string): number {
    const since = Math.abs(this.platform.now() - (this.#warnedAt.get(topic) ?? -Infinity));
    return Math.max(0, WARN_EVERY - since);
  }

  #call(callback: Callback | undefined, item: SentItem, reason: string): void {
    try {
      // A callback may be an async function: a promise that rejects must not end the process.
      Promise.resolve(callback?.(item, reason) as unknown).catch((error: unknown) => this.#warnOfCallback(error));
    } catch (error) {
      this.#warnOfCallback(error);
    }
  }

  #warnOfCallback(error: unknown): void {
    this.warn("callback", `a callback failed: ${String(error)}`);
  }
}

function items(count: number): string {
  return count === 1 ? "1 item" : `${count} items`;
}
