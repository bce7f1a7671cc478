/** Deliver the items of one kind: one request at a time, with holds and retries, and report each item's outcome. */

import { classify, type Outcome } from "./answers.js";
import { ITEM_BYTES_MAX, sentItem, type Item, type Kind } from "./items.js";
import type { Platform, Spool, Warn } from "./platform.js";
import { bodyOf, Queue, type Entry } from "./queue.js";
import type { Reports } from "./reports.js";
import type { Settings } from "./settings.js";

const QUEUE_IS_FULL = "the queue is full: await wait() before each call, or raise maxQueue";
const SPOOL_IS_FULL = "the spool is full: raise spoolMaxBytes";
/** After seven days the service may count an id again. */
const EXPIRES_AFTER = (7 * 24 - 1) * 60 * 60 * 1000;

export class Delivery {
  readonly #queue = new Queue();
  readonly #spool: Spool | undefined;
  #aborts = new AbortController();
  #cancelHold: (() => void) | undefined;
  #cancelDue: (() => void) | undefined;
  #isSending = false;
  #isStopped = false;
  #failures = 0;
  /** The advice that was logged since the last success. */
  readonly #advised = new Set<string>();
  #batchMax: number;

  constructor(
    readonly kind: Kind,
    private readonly settings: Settings,
    private readonly platform: Platform,
    private readonly reports: Reports,
    private readonly isFlushing: () => boolean,
    private readonly onProgress: () => void,
  ) {
    this.#batchMax = settings.batchSize;
    this.#spool = platform.openSpool?.(kind, settings.key, weakWarn(reports));
  }

  get queued(): number {
    return this.#queue.size + (this.#spool?.unread ?? 0);
  }

  /** True if an item can be added without dropping one. */
  get hasRoom(): boolean {
    if (!this.#spool) return this.#queue.size < this.settings.maxQueue;
    return !this.#spool.isFull(ITEM_BYTES_MAX) && this.inMemoryAlone < this.settings.maxQueue;
  }

  isAnswered(place: number): boolean {
    return this.#queue.isAnswered(place) && !this.#spool?.unread;
  }

  /** Adopt the items that other processes left on disk. */
  adopt(): void {
    if (this.#isStopped || !this.#spool) return;
    this.#spool.adopt();
    this.#refill();
    this.wake();
  }

  add(item: Item, place: number): void {
    if (this.#spool) this.#addSpooled(this.#spool, item, place);
    else this.#queue.add({ item, place });
    while (this.#queue.size > this.settings.maxQueue) {
      const oldest = this.#queue.removeOldest();
      if (oldest === undefined) break;
      this.#drop([oldest], QUEUE_IS_FULL);
    }
    this.wake();
  }

  /** Send if a batch is full or a flush waits for it; otherwise make sure that the timer is running. */
  wake(): void {
    if (this.#isSending || this.#cancelHold || this.#isStopped || this.#queue.waiting === 0) return;
    if (this.#queue.waiting >= this.settings.batchSize || this.isFlushing()) return void this.#send();
    this.#cancelDue ??= this.platform.setTimer(() => void this.#send(), this.settings.flushInterval, false);
  }

  /** Stop delivery. Drop the unanswered items that are not on disk. */
  stop(reason: string): void {
    this.#isStopped = true;
    this.#cancelDue?.();
    this.#cancelHold?.();
    this.#abort();
    this.#drop(this.#queue.remove((entry) => entry.ref === undefined), reason);
    this.#spool?.close();
  }

  /** Drop the unanswered items queued up to a position. */
  abandon(place: number, reason: string): void {
    this.#abort();
    this.#drop(this.#queue.remove((entry) => entry.place <= place), reason);
    this.wake();
  }

  /** How many items would be lost if the process ended now. */
  get inMemoryAlone(): number {
    return this.#queue.count((entry) => entry.ref === undefined);
  }

  /** Abort the request in flight. Its items return to the queue. */
  #abort(): void {
    this.#aborts.abort();
    this.#aborts = new AbortController();
    this.#isSending = false;
    this.#queue.putBack();
  }

  #addSpooled(spool: Spool, item: Item, place: number): void {
    while (spool.isFull(item.bytes)) {
      const evicted = spool.evict(item, this.#queue.inFlight.map((entry) => entry.ref));
      this.#dropDamaged();
      if (evicted === undefined) return this.#drop([{ item, place }], SPOOL_IS_FULL);
      const refs = new Set([...evicted.dropped.map(({ ref }) => ref), ...evicted.moved]);
      this.#queue.remove((entry) => refs.has(entry.ref));
      this.#drop(evicted.dropped.map((each) => ({ item: each.item, place })), SPOOL_IS_FULL);
    }
    const isRead = spool.unread === 0 && this.#queue.size < this.settings.maxQueue;
    const ref = spool.append(item, isRead);
    if (isRead || ref === undefined) this.#queue.add({ item, place, ref });
  }

  #refill(): void {
    const room = this.settings.maxQueue - this.#queue.size;
    if (!this.#spool?.unread || room < Math.min(this.settings.batchSize, this.settings.maxQueue)) return;
    for (const { item, ref } of this.#spool.read(room)) {
      const entry = { item, ref, place: 0 };
      if (item.bytes <= ITEM_BYTES_MAX) this.#queue.add(entry);
      else this.#drop([entry], `the spool holds an item of ${item.bytes} bytes, and ${ITEM_BYTES_MAX} are accepted`);
    }
    this.#dropDamaged();
  }

  #dropDamaged(): void {
    for (const item of this.#spool?.takeDamaged() ?? []) this.reports.drop(item, "it was damaged in the spool");
  }

  async #send(): Promise<void> {
    this.#cancelDue?.();
    this.#cancelDue = undefined;
    if (this.#isSending || this.#cancelHold || this.#isStopped) return;
    do this.#refill();
    while (this.#expire() > 0);
    const batch = this.#queue.take(this.#batchMax);
    if (batch.length === 0) return this.onProgress();
    const { signal } = this.#aborts;
    this.#isSending = true;
    if (this.#failures > 0) this.reports.countRetry();
    const answer = await this.platform.post({
      url: `${this.settings.url}/v1/${this.kind}`,
      key: this.settings.key,
      body: bodyOf(batch, this.platform.now()),
      compress: this.settings.compress,
      timeout: this.settings.timeout,
      signal,
    });
    if (signal.aborted) return;
    this.#isSending = false;
    const attempt = { failures: this.#failures + 1, now: this.platform.now(), random: this.platform.random() };
    this.#apply(classify(answer, attempt), batch);
    if ("moved" in answer && answer.moved > 0) this.reports.countMoved(answer.moved);
    if (this.#spool?.isBehind && this.#queue.waiting === 0) this.#spool.adopt();
    this.#refill();
    this.onProgress();
    this.wake();
  }

  #apply(outcome: Outcome, batch: readonly Entry[]): void {
    switch (outcome.action) {
      case "accept":
        this.#settle(batch);
        for (const [index, entry] of batch.entries()) {
          const reason = outcome.rejected.get(index);
          if (reason === undefined) this.reports.countAccepted();
          else this.reports.reject(sentItem(entry.item), reason);
        }
        return;
      case "drop":
        this.#settle(batch);
        this.#advise(outcome, "they are dropped");
        for (const [index, entry] of batch.entries()) {
          this.reports.dropAnswered(sentItem(entry.item), outcome.reasons.get(index) ?? outcome.reason);
        }
        return;
      case "halve":
        if (batch.length === 1) {
          this.#settle(batch);
          return this.reports.dropAnswered(sentItem(batch[0]!.item), outcome.reason);
        }
        this.#batchMax = batch.length >> 1;
        return this.#queue.putBack();
      case "wait":
        this.#queue.putBack();
        this.#advise(outcome, "they are kept and retried");
        this.#hold(outcome.delay);
    }
  }

  /** The batch has its final answer. After one that was too large, grow the batches step by step. */
  #settle(batch: readonly Entry[]): void {
    this.#failures = 0;
    this.#advised.clear();
    this.#batchMax = Math.min(this.settings.batchSize, this.#batchMax * 2);
    this.#queue.settle();
    this.#forget(batch);
  }

  /** Log advice once until the next success. Events and objects that fail alike share a line. */
  #advise({ reason, advice }: { readonly reason: string; readonly advice?: string }, outcome: string): void {
    if (advice === undefined || this.#advised.has(advice)) return;
    this.#advised.add(advice);
    this.reports.warn(advice, `${this.kind} are not delivered, ${outcome}: ${this.settings.url}: ${reason}. ${advice}`);
  }

  #hold(delay: number): void {
    this.#failures += 1;
    this.#cancelHold = this.platform.setTimer(
      () => {
        this.#cancelHold = undefined;
        void this.#send();
      },
      delay,
      false,
    );
  }

  /** Return how many items have expired. Payments and subscriptions never do: the service keeps their ids forever. */
  #expire(): number {
    const before = this.platform.now() - EXPIRES_AFTER;
    const isExpired = ({ item }: Entry) => item.doesExpire && item.queuedAt < before;
    const expired = this.#queue.remove(isExpired);
    if (expired.length > 0) {
      this.#forget(expired);
      this.reports.expire(expired.length);
    }
    return expired.length;
  }

  #drop(entries: readonly Entry[], reason: string): void {
    if (entries.length === 0) return;
    this.#forget(entries);
    for (const { item } of entries) this.reports.drop(sentItem(item), reason);
  }

  #forget(entries: readonly Entry[]): void {
    this.#spool?.remove(entries.map((entry) => entry.ref).filter((ref) => ref !== undefined));
  }
}

/** Return a logging function for the spool that does not keep the client or its callbacks alive. */
function weakWarn(reports: Reports): Warn {
  const weak = new WeakRef(reports);
  return (topic, message) => weak.deref()?.warn(topic, message);
}
