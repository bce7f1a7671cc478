/** The client shared by all entry points of the package. */

import { Delivery } from "./delivery.js";
import {
  eventItem,
  paymentItem,
  subscriptionItem,
  sentItem,
  signupItem,
  SIGNUP,
  type EventOptions,
  type Item,
  type Kind,
  type PaymentOptions,
  type Queueing,
  type SentItem,
  type SignupOptions,
  type SubscriptionOptions,
} from "./items.js";
import { lenientOptions } from "./lenient.js";
import type { Platform } from "./platform.js";
import { Reports, type Stats } from "./reports.js";
import { checkedTimeout, settingsFrom, type Options, type Settings } from "./settings.js";

export type { Options } from "./settings.js";

const ADOPT_EVERY = 10_000;
const NO_USER = "a user_signup without a user is sent, but adds no signup: pass { user }";
const CLOSED = "the client is closed";

interface Waiter {
  readonly isMet: () => boolean;
  readonly finish: (isMet: boolean) => void;
}

export class Client {
  readonly #settings: Settings;
  readonly #platform: Platform;
  readonly #reports: Reports;
  readonly #deliveries: Readonly<Record<Kind, Delivery>>;
  readonly #waiters = new Set<Waiter>();
  readonly #queueing: () => Queueing;
  #place = 0;
  /** How many items had been dropped without an answer by the end of the last flush. */
  #unsent = 0;
  #closing: Promise<boolean> | undefined;
  #isClosed = false;
  #cancelAdopting: (() => void) | undefined;

  constructor(options: Options, platform: Platform) {
    const settings = (this.#settings = settingsFrom(options));
    this.#platform = platform;
    this.#reports = new Reports(platform, options.onDrop, options.onReject);
    const open = (kind: Kind) =>
      new Delivery(kind, settings, platform, this.#reports, () => this.#waiters.size > 0, () => this.#notify());
    this.#deliveries = { events: open("events"), objects: open("objects") };
    const isPublishable = settings.key.startsWith("pk_");
    this.#queueing = () => ({ now: platform.now(), newId: () => platform.newId(), isPublishable });
    if (platform.openSpool) this.#adopt();
  }

  /** Queue an event. Unless `strict`, never throw: convert, truncate or drop what cannot be sent. */
  track(name: string, options: EventOptions = {}): void {
    this.#addEvent(options, name, (given) => {
      const item = eventItem(name, given, this.#queueing());
      if (name === SIGNUP && !given.user) this.#reports.warnOnce("signup", NO_USER);
      return item;
    });
  }

  /** Queue a signup, which also counts the user as active. Unless `strict`, never throw. */
  signup(options: SignupOptions): void {
    this.#addEvent(options, SIGNUP, (given) => signupItem(given as SignupOptions, this.#queueing()));
  }

  /** Queue a payment, in minor units. Its id ensures that it counts once. Throw if it can never be accepted. */
  payment(options: PaymentOptions): void {
    this.#add(() => paymentItem(options, this.#queueing()));
  }

  /** Queue the state of a subscription. Throw if it can never be accepted. */
  subscription(options: SubscriptionOptions): void {
    this.#add(() => subscriptionItem(options, this.#queueing()));
  }

  /**
   * Send the queued items now. Return true once all of them were answered; false if the timeout expires, or if items were
   * dropped unsent since the last flush.
   */
  async flush(timeout: number = this.#settings.timeout): Promise<boolean> {
    const limit = checkedTimeout(timeout);
    const before = this.#unsent;
    const isAnswered = await this.#answered(limit);
    this.#unsent = this.#reports.unsent;
    this.#reports.logTallies("due");
    return isAnswered && this.#unsent === before;
  }

  /** Return true once there is room for an item in the queue; false if the timeout expires, or if the client is closed. */
  async wait(timeout: number = this.#settings.timeout): Promise<boolean> {
    const limit = checkedTimeout(timeout);
    return this.#until(() => !this.#closing && this.#all().every((delivery) => delivery.hasRoom), limit);
  }

  /** Flush, then stop. Items that could not be delivered in time are dropped, or stay on disk. */
  async close(timeout: number = this.#settings.timeout): Promise<boolean> {
    const limit = checkedTimeout(timeout);
    this.#closing ??= this.flush(limit).then((isAnswered) => {
      this.#isClosed = true;
      this.#cancelAdopting?.();
      for (const delivery of this.#all()) delivery.stop("the client was closed before it could be delivered");
      for (const waiter of [...this.#waiters]) waiter.finish(waiter.isMet());
      this.#reports.logTallies("all");
      return isAnswered;
    });
    return this.#closing;
  }

  /** The number of items in each state. Each item is in exactly one of the counts other than `retries`. */
  get stats(): Stats {
    return this.#reports.stats(this.#deliveries.events.queued + this.#deliveries.objects.queued);
  }

  /** Deliver the queued items before the process ends, within the time limit. If that fails, close. */
  protected async flushAtExit(): Promise<void> {
    if (!(await this.#answered(this.#settings.timeout))) await this.close(0);
  }

  /** Log the counts that are not logged yet. */
  protected logAtExit(): void {
    this.#reports.logTallies("all");
  }

  /** Flush, and drop the items that could not be delivered in time. */
  protected async flushOrDrop(reason: string): Promise<boolean> {
    const place = this.#place;
    const isAnswered = await this.#answered(this.#settings.timeout);
    if (!isAnswered) for (const delivery of this.#all()) delivery.abandon(place, reason);
    return isAnswered;
  }

  /** Called after a call has queued an item. */
  protected onQueued(): void {}

  /** How many items would be lost if the process ended now. */
  protected get inMemoryAlone(): number {
    return this.#all().reduce((sum, delivery) => sum + delivery.inMemoryAlone, 0);
  }

  #addEvent(options: unknown, name: unknown, build: (options: EventOptions) => Item): void {
    if (this.#settings.strict || this.#closing) return this.#add(() => build(options as EventOptions));
    try {
      this.#add(() => build(lenientOptions(options, (topic, message) => this.#reports.warnOnce(topic, message))));
    } catch (error) {
      this.#reports.drop(copyOf(name, options), error instanceof Error ? error.message : String(error));
    }
  }

  #add(build: () => Item): void {
    if (this.#closing) return this.#dropAfterClose(build);
    const item = build();
    this.#deliveries[item.kind].add(item, ++this.#place);
    this.onQueued();
  }

  #dropAfterClose(build: () => Item): void {
    try {
      this.#reports.drop(sentItem(build()), CLOSED);
    } catch (error) {
      this.#reports.drop({}, `${CLOSED}, and the item was invalid: ${String(error)}`);
    }
  }

  /** Return true once all items queued so far were answered or dropped; false if the timeout expires. */
  #answered(limit: number): Promise<boolean> {
    const place = this.#place;
    return this.#until(() => this.#all().every((delivery) => delivery.isAnswered(place)), limit);
  }

  #until(isMet: () => boolean, limit: number): Promise<boolean> {
    if (isMet()) return Promise.resolve(true);
    if (this.#isClosed) return Promise.resolve(false);
    const met = new Promise<boolean>((resolve) => {
      const cancel = this.#platform.setTimer(() => waiter.finish(false), limit, true);
      const finish = (result: boolean) => {
        cancel();
        this.#waiters.delete(waiter);
        resolve(result);
      };
      const waiter = { isMet, finish };
      this.#waiters.add(waiter);
    });
    for (const delivery of this.#all()) delivery.wake();
    return met;
  }

  #all(): readonly Delivery[] {
    return [this.#deliveries.events, this.#deliveries.objects];
  }

  #notify(): void {
    for (const waiter of [...this.#waiters]) if (waiter.isMet()) waiter.finish(true);
  }

  /** Adopt now, and periodically as long as the application holds the client. */
  #adopt(): void {
    for (const delivery of this.#all()) delivery.adopt();
    this.#cancelAdopting = this.#platform.setTimer(weakly(this, (client) => client.#adopt()), ADOPT_EVERY, false);
  }
}

/** Return a call on a client that does not keep it alive: no other closure shares this scope and thus the client. */
function weakly(client: Client, run: (client: Client) => void): () => void {
  const weak = new WeakRef(client);
  return () => {
    const held = weak.deref();
    if (held) run(held);
  };
}

/** Return the options of an event that cannot be sent, for `onDrop`. */
function copyOf(name: unknown, options: unknown): SentItem {
  try {
    return { name, ...(options as object) };
  } catch {
    return { name };
  }
}
