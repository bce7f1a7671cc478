/** What the library needs from its environment. Tests replace it to control time, randomness and the network. */

import type { Answer, NoAnswer } from "./answers.js";
import type { Item, Kind, SentItem } from "./items.js";

export interface Post {
  readonly url: string;
  readonly key: string;
  readonly body: string;
  readonly compress: boolean;
  readonly timeout: number;
  readonly signal: AbortSignal;
}

export interface Platform {
  /** Return the wall-clock time in epoch milliseconds. */
  now(): number;
  /** Return a random number from 0 to 1. */
  random(): number;
  /** Return a new UUID. */
  newId(): string;
  /** Run once after a delay, and return how to cancel it. It keeps a process alive only if `keepsAlive`. */
  setTimer(run: () => void, delay: number, keepsAlive: boolean): () => void;
  /** Send a body, and return the answer within the time limit. Never reject. */
  post(request: Post): Promise<Answer | NoAnswer>;
  /** Write one line to the log. */
  warn(message: string): void;
  /** Open the store that keeps the items of a key and a kind on disk, if this platform has one. */
  openSpool?(kind: Kind, key: string, warn: Warn): Spool;
}

/** Write at most one line a minute about a topic. */
export type Warn = (topic: string, message: string) => void;

export interface Spooled {
  readonly item: Item;
  readonly ref: unknown;
}

/** The items that were removed to make room, and the refs of those that were written again elsewhere. */
export interface Evicted {
  readonly dropped: readonly Spooled[];
  readonly moved: readonly unknown[];
}

/** Items on disk, in order, each identified by a ref. No method throws. */
export interface Spool {
  /** How many items are on disk only: `read` has not returned them. */
  readonly unread: number;
  /** True if other processes left more than there is room for: `adopt` takes the rest later. */
  readonly isBehind: boolean;
  /** True if an item of this size does not fit. */
  isFull(bytes: number): boolean;
  /** Write an item, and return its ref; undefined if the disk refused it. If not `isRead`, `read` returns it later. */
  append(item: Item, isRead: boolean): unknown;
  /** Return the next items that are on disk only. */
  read(count: number): Spooled[];
  /** Return the items that were found damaged since the last call, as far as they can be read. */
  takeDamaged(): SentItem[];
  /** Remove items that were answered or dropped. */
  remove(refs: readonly unknown[]): void;
  /** Make room for an item: remove the oldest behavioral events, or payments if there is nothing else to remove for one. */
  evict(item: Item, inFlight: readonly unknown[]): Evicted | undefined;
  /** Look for items that other processes left. Return how many were found. */
  adopt(): number;
  /** Leave the items on disk to the next process. */
  close(): void;
}
