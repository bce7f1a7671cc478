/** Options with their defaults, checked. Errors say what to pass. */

import type { Callback } from "./reports.js";

export interface Options {
  /** A server key (`sk_…`), or a publishable key (`pk_…`) for events only. */
  readonly key?: string | undefined;
  /** The address of the ingest plane, such as `https://ingest.example.com`. */
  readonly url?: string | undefined;
  /** If true, `track` and `signup` throw a `TypeError` for values that they would otherwise change or drop. Default false. */
  readonly strict?: boolean | undefined;
  /** Maximum number of items of a kind in memory. Beyond it, the oldest event is dropped, payments last. Default 1,000. */
  readonly maxQueue?: number | undefined;
  /** Maximum time in milliseconds that an item waits for a batch to fill. Default 1,000. */
  readonly flushInterval?: number | undefined;
  /** Maximum number of items per request. At most 500, which is the default. */
  readonly batchSize?: number | undefined;
  /** The time limit in milliseconds of a request, and of the flush at exit. Default 10,000. */
  readonly timeout?: number | undefined;
  /** Whether bodies of 1 KB and more are compressed. Default true. */
  readonly compress?: boolean | undefined;
  /** Called with a dropped item and the reason. */
  readonly onDrop?: Callback | undefined;
  /** Called with an item that the service rejected, and the reason. */
  readonly onReject?: Callback | undefined;
}

export interface Settings {
  readonly key: string;
  readonly url: string;
  readonly strict: boolean;
  readonly maxQueue: number;
  readonly flushInterval: number;
  readonly batchSize: number;
  readonly timeout: number;
  readonly compress: boolean;
}

const BATCH_MAX = 500;
/** The options of every platform. */
const NAMES = ["key", "url", "strict", "maxQueue", "flushInterval", "batchSize", "timeout", "compress", "onDrop", "onReject"];
/** An address that already includes the path of an endpoint. The path of a proxy may contain /v1 elsewhere. */
const ENDPOINT = /\/v1(\/(events|objects|metrics|apps)\b.*)?$/;
/** The longest delay of a timer. */
const DELAY_MAX = 2 ** 31 - 1;

/** Return the options if this platform supports each of them. */
export function checkedOptions<Given extends object>(given: Given, further: readonly string[]): Given {
  const names = [...NAMES, ...further];
  const expected = `an object with ${names.join(", ")}`;
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw new TypeError(`options must be ${expected}: new Mauve({ key: "…", url: "…" })`);
  }
  const unknown = Object.entries(given).find(([name, value]) => value !== undefined && !names.includes(name));
  if (unknown) throw new TypeError(`${unknown[0].slice(0, 40)} is not an option: pass ${expected}`);
  return given;
}

export function settingsFrom(given: Options): Settings {
  checkFunction("onDrop", given.onDrop);
  checkFunction("onReject", given.onReject);
  return {
    key: checkedKey(given.key),
    url: checkedUrl(given.url),
    strict: given.strict ?? false,
    maxQueue: checkedNumber("maxQueue", given.maxQueue ?? 1000, 1),
    flushInterval: checkedNumber("flushInterval", given.flushInterval ?? 1000, 0),
    batchSize: checkedNumber("batchSize", given.batchSize ?? BATCH_MAX, 1, BATCH_MAX),
    timeout: checkedNumber("timeout", given.timeout ?? 10_000, 1),
    compress: given.compress ?? true,
  };
}

function checkedKey(key: unknown): string {
  const text = typeof key === "string" ? key.trim() : "";
  if (/^[sp]k_[!-~]+$/.test(text)) return text;
  throw new TypeError(`${wrongKey(text)}: pass a key of your app, sk_live_… on a server or pk_live_… for events only`);
}

/** Return what is wrong with a key, without revealing any part of it. */
function wrongKey(text: string): string {
  if (text === "") return "key is missing";
  if (text.startsWith("ctl_")) return "key is a control token, which sends nothing";
  return text.includes("…") ? "key is a placeholder" : "key is neither a server key nor a publishable key";
}

function checkedUrl(url: unknown): string {
  const address = typeof url === "string" ? parsedUrl(url) : undefined;
  if (address && ENDPOINT.test(address)) throw new TypeError("url must end before /v1: the client adds the path of each endpoint");
  if (address) return address;
  throw new TypeError("url is missing or invalid: pass the address of the service, such as https://ingest.example.com");
}

function parsedUrl(text: string): string | undefined {
  try {
    const { protocol, username, password, origin, pathname } = new URL(text);
    const isPlain = /^https?:$/.test(protocol) && username === "" && password === "";
    return isPlain ? (origin + pathname).replace(/\/+$/, "") : undefined;
  } catch {
    return undefined;
  }
}

export function checkFunction(name: string, value: unknown): void {
  if (value != null && typeof value !== "function") throw new TypeError(`${name} must be a function, not a ${typeof value}`);
}

/** Return the time limit of a call, in milliseconds, capped at the longest delay of a timer. */
export function checkedTimeout(timeout: unknown): number {
  if (typeof timeout === "number" && timeout >= 0) return Math.min(timeout, DELAY_MAX);
  throw new TypeError("timeout must be a non-negative number of milliseconds");
}

export function checkedNumber(name: string, value: unknown, min: number, max = DELAY_MAX): number {
  if (typeof value === "number" && value >= min && value <= max) return Math.floor(value);
  throw new TypeError(`${name} must be a number from ${min} to ${max}`);
}
