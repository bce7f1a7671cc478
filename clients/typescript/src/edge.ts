/** For edge runtimes: `waitUntil` keeps requests alive that are sent after the response. */

import { Client, type Options as ClientOptions } from "./client.js";
import { post, type Gzip } from "./http.js";
import type { Platform } from "./platform.js";
import { checkedOptions, checkFunction } from "./settings.js";

export type {
  EventOptions, Moment, PaymentOptions, PropValue, Props, SentItem, SignupOptions, SubscriptionOptions,
} from "./items.js";
export type { Callback, Stats } from "./reports.js";

export interface Options extends ClientOptions {
  /**
   * Keeps the runtime alive until a promise settles, such as `(promise) => context.waitUntil(promise)`. Items that were not
   * delivered within `timeout` are then dropped: the runtime may end before another attempt.
   */
  readonly waitUntil?: ((promise: Promise<unknown>) => void) | undefined;
}

export class Mauve extends Client {
  readonly #waitUntil: Options["waitUntil"];
  #isFlushing = false;

  constructor(options: Options) {
    super(checkedOptions(options, ["waitUntil"]), platform());
    checkFunction("waitUntil", options.waitUntil);
    this.#waitUntil = options.waitUntil;
  }

  /** Flush or drop once after the calls of this turn, so that they are one request. */
  protected override onQueued(): void {
    if (this.#isFlushing || !this.#waitUntil) return;
    this.#isFlushing = true;
    const flushed = Promise.resolve().then(() => {
      this.#isFlushing = false;
      return this.flushOrDrop("not delivered before the runtime may end");
    });
    try {
      this.#waitUntil(flushed);
    } catch (error) {
      console.warn(`mauve: waitUntil failed: ${String(error)}`);
    }
  }
}

function platform(): Platform {
  const gzip = typeof CompressionStream === "undefined" ? undefined : streamGzip;
  return {
    now: () => Date.now(),
    random: () => Math.random(),
    newId: () => crypto.randomUUID(),
    setTimer(run, delay) {
      const timer = setTimeout(run, delay);
      return () => clearTimeout(timer);
    },
    post: (request) => post(request, gzip),
    warn: (message) => console.warn(`mauve: ${message}`),
  };
}

const streamGzip: Gzip = async (text) => {
  const compressed = new Blob([text]).stream().pipeThrough(new CompressionStream("gzip"));
  return new Uint8Array(await new Response(compressed).arrayBuffer());
};
