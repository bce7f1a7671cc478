/** For Node: environment variables, a flush at exit, and a spool on disk. */

import { randomUUID } from "node:crypto";
import { promisify } from "node:util";
import { gzip } from "node:zlib";

import { Client, type Options as ClientOptions } from "./client.js";
import { post } from "./http.js";
import type { Platform } from "./platform.js";
import { checkedNumber, checkedOptions } from "./settings.js";
import { openSpool } from "./spool.js";

export type {
  EventOptions, Moment, PaymentOptions, PropValue, Props, SentItem, SignupOptions, SubscriptionOptions,
} from "./items.js";
export type { Callback, Stats } from "./reports.js";

export interface Options extends ClientOptions {
  /** A directory: every item is on disk when the call returns. One directory for the processes of one app. */
  readonly spool?: string | undefined;
  /** The most bytes that a process keeps there. Default 64 MiB. */
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
    super({ ...options, key: options.key ?? MAUVE_KEY, url: options.url ?? MAUVE_INGEST_URL }, platform(options));
    leaveAtExit(this, { flush: () => this.flushAtExit(), count: () => this.inMemoryAlone });
  }

  override async close(timeout?: number): Promise<boolean> {
    const isAnswered = await super.close(timeout);
    open.delete(this);
    return isAnswered;
  }
}

function platform({ spool, spoolMaxBytes = SPOOL_BYTES_MAX }: Options): Platform {
  // Half for each kind, so that neither takes the room of the other.
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
    ...(spool === undefined ? {} : { openSpool: (kind, warn) => openSpool(spool, kind, bytesMax, warn) }),
  };
}

interface Leaving {
  readonly flush: () => Promise<void>;
  /** Return how many items end with the process. */
  readonly count: () => number;
}

const open = new Map<Client, Leaving>();

/** Flush before the process ends by itself. Node emits `beforeExit` again after the requests that this starts. */
function leaveAtExit(client: Client, leaving: Leaving): void {
  if (!process.listeners("beforeExit").includes(flushAll)) process.on("beforeExit", flushAll).on("exit", tellOfLoss);
  open.set(client, leaving);
}

function flushAll(): void {
  for (const [client, { flush }] of open) if (client.stats.queued > 0) void flush();
}

/** `process.exit()` and an exception that nobody caught leave no time to send: say what that cost. */
function tellOfLoss(): void {
  const count = [...open.values()].reduce((sum, each) => sum + each.count(), 0);
  if (count > 0) console.warn(`mauve: the process has ended with items that were not delivered: ${count}. Await close() first.`);
}
