/** For web pages: the same file that the service serves as `/mauve.js`, with types. */

import "./mauve.js";

import type { EventOptions } from "./items.js";

export type { EventOptions, Moment, PropValue, Props } from "./items.js";

export interface Options {
  /** A publishable key (`pk_…`): anyone can read it, and it can only send events. */
  readonly key: string;
  /** The address of the service, such as `https://ingest.example.com`. */
  readonly url: string;
}

export interface Mauve {
  /** Queue an event. Never throw: convert, truncate or drop what cannot be sent, with a warning in the console. */
  track(name: string, options?: EventOptions): void;
}

export const Mauve = (globalThis as unknown as { Mauve: new (options: Options) => Mauve }).Mauve;
