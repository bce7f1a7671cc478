/** One segment file of the spool: how much of it was read, and which of its items need delivery. */

export interface Ref {
  readonly segment: Segment;
  readonly line: number;
  readonly doesExpire: boolean;
}

export class Segment {
  bytes = 0;
  lines = 0;
  /** Lines from here on are on disk only. */
  bytesRead = 0;
  linesRead = 0;
  /** The file was deleted, or another process has adopted it and sends what is in it. */
  isGone = false;
  /** The list of completed lines may end with a torn number. */
  isNoteTorn = false;
  /** How many live items are behavioral events. */
  expiring = 0;
  readonly #live = new Map<number, Ref>();

  constructor(readonly path: string) {}

  get live(): ReadonlyMap<number, Ref> {
    return this.#live;
  }

  get unread(): number {
    if (this.linesRead >= this.lines) return 0;
    return [...this.#live.keys()].filter((line) => line >= this.linesRead).length;
  }

  add(line: number, doesExpire: boolean): Ref {
    const ref = { segment: this, line, doesExpire };
    this.#live.set(line, ref);
    if (doesExpire) this.expiring += 1;
    return ref;
  }

  /** Return whether the item was live. */
  remove({ line, doesExpire }: Ref): boolean {
    if (!this.#live.delete(line)) return false;
    if (doesExpire) this.expiring -= 1;
    return true;
  }

  markRead(): void {
    this.bytesRead = this.bytes;
    this.linesRead = this.lines;
  }
}
