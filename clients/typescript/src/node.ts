/** For Node: environment variables, a flush at exit, and a spool on disk. */

import { randomUUID } from "node:crypto";
import { promisify } from "node:util";
import { gzip } from "node:zlib";

import { Client, type Options as ClientOptions } from "./client.js";
import { post } from "./http.js";
import type { Platform, Spool } from "./platform.js";
import { checkedNumber, checkedOptions } from "./settings.js";
import { openSpool } from "./spool.js";

export type {
  EventOptions, Moment, PaymentOptions, PropValue, Props, SentItem, SignupOptions, SubscriptionOptions,
} from "./items.js";
export type { Callback, Stats } from "./reports.js";

export interface Options extends ClientOptions {
  /** A directory. Every item is on disk when the call returns. All processes of an app may share it. */
  readonly spool?: string | undefined;
  /** The maximum size of a process's items there, in bytes. Default 64 MiB. */
  readonly spoolMaxBytes?: number | undefined;
}

const SPOOL_BYTES_MAX = 64 * 1024 * 1024;
const SPOOL_BYTES_MIN = 1024 * 1024;
const compress = promisify(gzip);

export class Mauve extends Client {
  /** The key and the address default to `MAUVE_KEY` and `MAUVE_INGEST_URL`. */
  constructor(options: Options = {}) {
    const { MAUVE_KEY, MAUVE_INGEST_URL } = process.env;
    checkedOptions(options, ["spool", "spoolMaxBytes"]);
    const spools: Spool[] = [];
    super({ ...options, key: options.key ?? MAUVE_KEY, url: options.url ?? MAUVE_INGEST_URL }, platform(options, spools));
    const weak = new WeakRef(this);
    if (!process.listeners("beforeExit").includes(Mauve.#flushAll)) {
      process.on("beforeExit", Mauve.#flushAll).on("exit", Mauve.#reportLoss);
    }
    Mauve.#open.add(weak);
    Mauve.#dropped.register(this, { weak, spools });
  }

  /** Clients that the application holds. One with items to deliver is also held by its timer or its request. */
  static readonly #open = new Set<WeakRef<Mauve>>();

  /** Release the spool of a client that was garbage-collected, so that other clients can adopt it. */
  static readonly #dropped = new FinalizationRegistry<{ weak: WeakRef<Mauve>; spools: Spool[] }>(({ weak, spools }) => {
    Mauve.#open.delete(weak);
    for (const spool of spools) spool.close();
  });

  static #clients(): Mauve[] {
    return [...Mauve.#open].flatMap((weak) => weak.deref() ?? []);
  }

  /** Flush before the process ends. Node emits `beforeExit` again after the requests that this starts. */
  static readonly #flushAll = (): void => {
    for (const client of Mauve.#clients()) if (client.stats.queued > 0) void client.flushAtExit();
  };

  /** `process.exit()` and an uncaught exception leave no time to send: log how many items are lost. */
  static readonly #reportLoss = (): void => {
    const clients = Mauve.#clients();
    for (const client of clients) client.logAtExit();
    const count = clients.reduce((sum, client) => sum + client.inMemoryAlone, 0);
    if (count > 0) console.warn(`mauve: the process has ended with items that were not delivered: ${count}. Await close() first.`);
  };
}

function platform({ spool, spoolMaxBytes = SPOOL_BYTES_MAX }: Options, spools: Spool[]): Platform {
  // Half for each kind, so that neither crowds out the other.
  const bytesMax = checkedNumber("spoolMaxBytes", spoolMaxBytes, SPOOL_BYTES_MIN, Number.MAX_SAFE_INTEGER) / 2;
  return {
    now: () => Date.now(),
    random: () => Math.random(),
    newId: () => randomUUID(),
    setTimer(run, delay, keepsAlive) {
      const timer = setTimeout(run, delay);
      if (!keepsAlive) timer.unref();
      return () => clearTimeout(timer);
    },
    post: (request) => post(request, compress),
    warn: (message) => console.warn(`mauve: ${message}`),
    ...(spool === undefined
      ? {}
      : {
          openSpool(kind, key, warn) {
            const opened = openSpool(spool, kind, key, bytesMax, warn);
            spools.push(opened);
            return opened;
          },
        }),
  };
}
