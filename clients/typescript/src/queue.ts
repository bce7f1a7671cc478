/** The unanswered items of one kind, in the order of the calls: in flight first, then waiting. */

import type { Item } from "./items.js";

/** An item with its place in the order of all calls and, if it is on disk, where. */
export interface Entry {
  readonly item: Item;
  readonly place: number;
  readonly ref?: unknown;
}

export const BODY_BYTES_MAX = 921_600;
/** Brackets, a comma, and `"sent_at"` with its time. */
const OVERHEAD_BYTES = 48;

export class Queue {
  #inFlight: Entry[] = [];
  #waiting: Entry[] = [];

  get size(): number {
    return this.#inFlight.length + this.#waiting.length;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  get inFlight(): readonly Entry[] {
    return this.#inFlight;
  }

  add(entry: Entry): void {
    this.#waiting.push(entry);
  }

  /** Remove the oldest behavioral event that is not in flight; a payment or subscription only if there is none. */
  removeOldest(): Entry | undefined {
    const place = this.#waiting.findIndex(({ item }) => item.doesExpire);
    return this.#waiting.splice(Math.max(place, 0), 1)[0];
  }

  count(isSelected: (entry: Entry) => boolean): number {
    return this.#inFlight.filter(isSelected).length + this.#waiting.filter(isSelected).length;
  }

  /** Remove the waiting entries that the rule selects. */
  remove(isSelected: (entry: Entry) => boolean): Entry[] {
    const removed = this.#waiting.filter(isSelected);
    if (removed.length > 0) this.#waiting = this.#waiting.filter((entry) => !isSelected(entry));
    return removed;
  }

  /** Move the next batch into flight: within the number of items, and within the bytes of a body. */
  take(itemsMax: number): readonly Entry[] {
    let bytes = 0;
    let count = 0;
    for (const { item } of this.#waiting.slice(0, itemsMax)) {
      bytes += item.bytes + OVERHEAD_BYTES;
      if (bytes > BODY_BYTES_MAX) break;
      count += 1;
    }
    this.#inFlight = this.#waiting.splice(0, count);
    return this.#inFlight;
  }

  /** Remove the batch in flight: every item of it was answered. */
  settle(): void {
    this.#inFlight = [];
  }

  /** Return the batch in flight to the queue. */
  putBack(): void {
    this.#waiting = [...this.#inFlight, ...this.#waiting];
    this.#inFlight = [];
  }

  /** True if no item queued up to this position is left. */
  isAnswered(place: number): boolean {
    const first = this.#inFlight[0] ?? this.#waiting[0];
    return first === undefined || first.place > place;
  }
}

/** Return the body of a batch: the serialized items, with the time of this attempt. */
export function bodyOf(batch: readonly Entry[], now: number): string {
  const sentAt = `,"sent_at":"${new Date(now).toISOString()}"}`;
  const texts = batch.map(({ item }) => (item.kind === "events" ? item.text.slice(0, -1) + sentAt : item.text));
  return `[${texts.join(",")}]`;
}
