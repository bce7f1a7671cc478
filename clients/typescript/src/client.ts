/** The client that every entry of the package shares. */

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
  type SignupOptions,
  type SubscriptionOptions,
} from "./items.js";
import type { Platform } from "./platform.js";
import { Reports, type Callback, type Stats } from "./reports.js";
import { checkedTimeout, settingsFrom, type Settings } from "./settings.js";

export interface Options {
  /** A server key (`sk_…`), or a publishable key (`pk_…`) for events alone. */
  readonly key?: string | undefined;
  /** The address of the ingest plane, such as `https://ingest.example.com`. */
  readonly url?: string | undefined;
  /** How many items of a kind are kept in memory. Beyond that the oldest is dropped. Default 1,000. */
  readonly maxQueue?: number | undefined;
  /** The longest time in milliseconds that an item waits for others to fill a batch. Default 1,000. */
  readonly flushInterval?: number | undefined;
  /** The number of items that are sent at once, at most and by default 500. */
  readonly batchSize?: number | undefined;
  /** The time limit in milliseconds of a request, and of the flush at exit. Default 10,000. */
  readonly timeout?: number | undefined;
  /** Whether bodies of 1 KB and more are compressed. Default true. */
  readonly compress?: boolean | undefined;
  /** Called with an item that was dropped, and why. */
  readonly onDrop?: Callback | undefined;
  /** Called with an item that the service rejected, and why. */
  readonly onReject?: Callback | undefined;
}

const ADOPT_EVERY = 10_000;
const NOBODY = "a user_signup without a user is sent, but counts nobody: pass { user }";
const CLOSED = "the client is closed";

interface Waiter {
  readonly place: number;
  readonly finish: (isAnswered: boolean) => void;
}

export class Client {
  readonly #settings: Settings;
  readonly #platform: Platform;
  readonly #reports: Reports;
  readonly #deliveries: Readonly<Record<Kind, Delivery>>;
  readonly #waiters = new Set<Waiter>();
  readonly #queueing: () => Queueing;
  #place = 0;
  #closing: Promise<boolean> | undefined;
  #cancelAdopting: (() => void) | undefined;

  constructor(options: Options, platform: Platform) {
    const settings = (this.#settings = settingsFrom(options));
    this.#platform = platform;
    const log = (message: string) => platform.warn(message);
    this.#reports = new Reports(() => platform.now(), log, options.onDrop, options.onReject);
    const open = (kind: Kind) =>
      new Delivery(kind, settings, platform, this.#reports, () => this.#waiters.size > 0, () => this.#notify());
    this.#deliveries = { events: open("events"), objects: open("objects") };
    const isPublishable = settings.key.startsWith("pk_");
    this.#queueing = () => ({ now: platform.now(), newId: () => platform.newId(), isPublishable });
    if (platform.openSpool) this.#adopt();
  }

  /** Queue an event. It raises only if the event can never be accepted. */
  track(name: string, options: EventOptions = {}): void {
    this.#add(() => eventItem(name, options, this.#queueing()));
    if (name === SIGNUP && !options?.user) this.#reports.warnOnce("signup", NOBODY);
  }

  /** Queue a signup, which also counts the user as active. */
  signup(options: SignupOptions): void {
    this.#add(() => signupItem(options, this.#queueing()));
  }

  /** Queue a payment, in minor units. Its id makes sure that it is booked once. */
  payment(options: PaymentOptions): void {
    this.#add(() => paymentItem(options, this.#queueing()));
  }

  /** Queue the state of a subscription. */
  subscription(options: SubscriptionOptions): void {
    this.#add(() => subscriptionItem(options, this.#queueing()));
  }

  /** Send what is queued now, and return true once all of it was answered; false if that takes too long. */
  async flush(timeout: number = this.#settings.timeout): Promise<boolean> {
    const limit = checkedTimeout(timeout);
    const place = this.#place;
    if (this.#isAnswered(place)) return true;
    const answered = new Promise<boolean>((resolve) => {
      const cancel = this.#platform.setTimer(() => waiter.finish(false), limit, true);
      const finish = (isAnswered: boolean) => {
        cancel();
        this.#waiters.delete(waiter);
        resolve(isAnswered);
      };
      const waiter = { place, finish };
      this.#waiters.add(waiter);
    });
    for (const delivery of this.#all()) delivery.wake();
    return answered;
  }

  /** Flush, then end. What could not be delivered in time is dropped, or stays on disk. */
  async close(timeout: number = this.#settings.timeout): Promise<boolean> {
    const limit = checkedTimeout(timeout);
    this.#closing ??= this.flush(limit).then((isAnswered) => {
      this.#cancelAdopting?.();
      for (const delivery of this.#all()) delivery.stop("the client was closed before it could be delivered");
      this.#notify();
      return isAnswered;
    });
    return this.#closing;
  }

  /** How many items ended how. Every item is in exactly one of the counts, besides `retries`. */
  get stats(): Stats {
    return this.#reports.stats(this.#deliveries.events.queued + this.#deliveries.objects.queued);
  }

  /** Deliver what is queued before the process ends, within the time limit. If that fails, close. */
  protected async flushAtExit(): Promise<void> {
    if (!(await this.flush())) await this.close(0);
  }

  /** Flush, and drop what could not be delivered in time. */
  protected async flushOrDrop(reason: string): Promise<boolean> {
    const place = this.#place;
    const isAnswered = await this.flush();
    if (!isAnswered) for (const delivery of this.#all()) delivery.abandon(place, reason);
    return isAnswered;
  }

  /** Called after a call has queued an item. */
  protected onQueued(): void {}

  /** How many items would be lost if the process ended now. */
  protected get inMemoryAlone(): number {
    return this.#all().reduce((sum, delivery) => sum + delivery.inMemoryAlone, 0);
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

  #all(): readonly Delivery[] {
    return [this.#deliveries.events, this.#deliveries.objects];
  }

  #isAnswered(place: number): boolean {
    return this.#all().every((delivery) => delivery.isAnswered(place));
  }

  #notify(): void {
    for (const waiter of [...this.#waiters]) if (this.#isAnswered(waiter.place)) waiter.finish(true);
  }

  #adopt(): void {
    for (const delivery of this.#all()) delivery.adopt();
    this.#cancelAdopting = this.#platform.setTimer(() => this.#adopt(), ADOPT_EVERY, false);
  }
}
