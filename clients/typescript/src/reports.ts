/** What became of the items: counts, callbacks, and log lines that cannot flood a log. */

import type { SentItem } from "./items.js";

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

const WARN_EVERY = 60_000;

export class Reports {
  #accepted = 0;
  #rejected = 0;
  #dropped = 0;
  #expired = 0;
  #retries = 0;
  readonly #warnedAt = new Map<string, number>();

  constructor(
    private readonly now: () => number,
    private readonly log: (message: string) => void,
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

  countAccepted(): void {
    this.#accepted += 1;
  }

  countRetry(): void {
    this.#retries += 1;
  }

  expire(count: number): void {
    this.#expired += count;
    this.warn("expired", `events that were held for nearly seven days have expired, ${this.#expired} in all`);
  }

  drop(item: SentItem, reason: string): void {
    this.#dropped += 1;
    this.warn("dropped", `items are dropped, ${this.#dropped} in all, the last because: ${reason}`);
    this.#call(this.onDrop, item, reason);
  }

  reject(item: SentItem, reason: string): void {
    this.#rejected += 1;
    this.#call(this.onReject, item, reason);
  }

  /** Write at most one line a minute about a topic. */
  warn(topic: string, message: string): void {
    const now = this.now();
    const last = this.#warnedAt.get(topic);
    if (last !== undefined && Math.abs(now - last) < WARN_EVERY) return;
    this.#warnedAt.set(topic, now);
    this.log(message);
  }

  warnOnce(topic: string, message: string): void {
    if (!this.#warnedAt.has(topic)) this.warn(topic, message);
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
    this.warn("callback", `a callback has failed: ${String(error)}`);
  }
}
