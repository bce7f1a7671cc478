/**
 * Items on disk, for Node. Each process appends to segment files in a folder of its own, and deletes a file whose items
 * were all answered. What a dead process left is adopted by renaming its files, which only one process can do.
 *
 * A process may be taken for dead that lives (see `owners.ts`). So after every item the writer looks whether the file is
 * still where it was: if so, whoever adopts it later finds the item in it; if not, the item is written again, into a new
 * file. Then two processes may send the same item: its id makes sure that it is counted once. A written line survives
 * the process; it is not synced, so it may not survive a power cut.
 */

import * as fs from "node:fs";
import { join } from "node:path";

import { codeOf, hasMoved, isStillAt, namesIn, removeIfEmpty, segmentsIn } from "./folders.js";
import type { Item, Kind } from "./items.js";
import { mayAdopt, ownName, releasedName, thisProcess, type Owner } from "./owners.js";
import type { Spool, Spooled } from "./platform.js";
import { answeredLine, itemIn, itemLine, linesIn, unansweredIn } from "./segments.js";

const SEGMENT_BYTES_MAX = 1024 * 1024;
const SEGMENTS_AIM = 8;
const TOUCH_EVERY = 5_000;
const ATTEMPTS = 3;

class Segment {
  bytes = 0;
  /** The items that were not answered yet, by offset. */
  readonly live = new Map<number, Ref>();
  /** Items from this offset on are on disk only. */
  readTo = 0;
  /** Another process has adopted the file, and sends what is in it. */
  isLost = false;

  constructor(readonly path: string) {}

  add(offset: number): Ref {
    const ref = { segment: this, offset };
    this.live.set(offset, ref);
    return ref;
  }

  get unread(): number {
    if (this.readTo >= this.bytes) return 0;
    return [...this.live.keys()].filter((offset) => offset >= this.readTo).length;
  }
}

interface Ref {
  readonly segment: Segment;
  readonly offset: number;
}

interface Current {
  readonly segment: Segment;
  readonly file: number;
}

type Warn = (message: string) => void;

export function openSpool(folder: string, kind: Kind, bytesMax: number, warn: Warn, self: Owner = thisProcess()): Spool {
  return new SegmentSpool(join(folder, kind), kind, bytesMax, warn, self);
}

class SegmentSpool implements Spool {
  readonly #home: string;
  readonly #segmentBytes: number;
  #segments: Segment[] = [];
  #current: Current | undefined;
  #number = 0;
  #unread = 0;
  #isBehind = false;
  #touching: NodeJS.Timeout | undefined;
  #touchedAt = 0;

  constructor(
    private readonly folder: string,
    private readonly kind: Kind,
    private readonly bytesMax: number,
    private readonly warn: Warn,
    private readonly self: Owner,
  ) {
    this.#home = join(folder, ownName(self));
    this.#segmentBytes = Math.min(SEGMENT_BYTES_MAX, Math.floor(bytesMax / SEGMENTS_AIM));
  }

  get unread(): number {
    return this.#unread;
  }

  get isBehind(): boolean {
    return this.#isBehind;
  }

  isFull(bytes: number): boolean {
    if (this.#bytes + bytes <= this.bytesMax) return false;
    this.#forgetLost();
    return this.#bytes + bytes > this.bytesMax;
  }

  append(item: Item, isRead: boolean): Ref | undefined {
    return this.#guarded(() => {
      for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
        const written = this.#appendOnce(item);
        if (written === undefined) continue;
        const { segment } = written;
        if (isRead) segment.readTo = segment.bytes;
        else this.#unread += 1;
        return segment.add(written.offset);
      }
      throw new Error("another process takes the files of this one again and again");
    });
  }

  read(count: number): Spooled[] {
    const found: Spooled[] = [];
    for (const segment of [...this.#segments]) {
      if (found.length < count && segment.readTo < segment.bytes) this.#readFrom(segment, count, found);
    }
    return found;
  }

  remove(refs: readonly unknown[]): void {
    const answered = new Map<Segment, number[]>();
    for (const { segment, offset } of refs as readonly Ref[]) {
      if (!segment.live.delete(offset) || segment.isLost) continue;
      const offsets = answered.get(segment);
      if (offsets) offsets.push(offset);
      else answered.set(segment, [offset]);
    }
    for (const [segment, offsets] of answered) {
      if (segment.live.size === 0) this.#delete(segment);
      else this.#guarded(() => this.#note(segment, answeredLine(offsets)));
    }
  }

  evict(inFlight: readonly unknown[]): Spooled[] {
    const busy = new Set((inFlight as readonly (Ref | undefined)[]).map((ref) => ref?.segment));
    for (const oldest of this.#segments.filter((segment) => !busy.has(segment))) {
      const { readTo } = oldest;
      const evicted: Spooled[] = [];
      this.#rewind(oldest, 0);
      if (!this.#readFrom(oldest, Infinity, evicted)) {
        this.#rewind(oldest, readTo);
        continue;
      }
      this.#delete(oldest);
      if (evicted.length > 0) return evicted;
    }
    return [];
  }

  adopt(): number {
    const before = this.#unread;
    this.#isBehind = false;
    for (const name of this.#guarded(() => namesIn(this.folder)) ?? []) {
      const left = join(this.folder, name);
      if (left === this.#home) continue;
      this.#guarded(() => {
        if (mayAdopt(left, name, this.self)) this.#adoptFolder(left);
      });
    }
    return this.#unread - before;
  }

  close(): void {
    clearInterval(this.#touching);
    this.#closeCurrent();
    for (const segment of this.#segments) if (segment.live.size === 0) this.#delete(segment);
    if (!fs.existsSync(this.#home)) return;
    this.#guarded(() => {
      if (this.#segments.length === 0) removeIfEmpty(this.#home);
      else fs.renameSync(this.#home, join(this.folder, releasedName()));
    });
  }

  get #bytes(): number {
    return this.#segments.reduce((sum, segment) => sum + segment.bytes, 0);
  }

  /** Write an item; undefined if the file was taken meanwhile. */
  #appendOnce(item: Item): { segment: Segment; offset: number } | undefined {
    const current = this.#openCurrent();
    if (current === undefined) return undefined;
    const { segment, file } = current;
    const offset = segment.bytes;
    this.#write(segment, file, itemLine(item));
    if (Date.now() - this.#touchedAt > TOUCH_EVERY) this.#touch(); // The timer stands still during synchronous work.
    if (!segment.isLost && isStillAt(segment.path, file)) return { segment, offset };
    this.#forgetLost();
    return undefined;
  }

  #openCurrent(): Current | undefined {
    if (this.#current && this.#current.segment.bytes >= this.#segmentBytes) this.#closeCurrent();
    if (this.#current) return this.#current;
    const segment = new Segment(this.#nextPath());
    try {
      this.#current = { segment, file: fs.openSync(segment.path, "a", 0o600) };
    } catch (error) {
      if (codeOf(error) === "ENOENT") return undefined; // The folder was empty, and another process removed it.
      throw error;
    }
    this.#segments.push(segment);
    return this.#current;
  }

  /** Write a line, or raise and leave the file as it was, so that it can be used again. */
  #write(segment: Segment, file: number, line: Buffer): void {
    const written = fs.writeSync(file, line);
    if (written === line.length) {
      segment.bytes += written;
      return;
    }
    try {
      fs.ftruncateSync(file, segment.bytes);
    } catch {
      segment.bytes += written;
      if (segment === this.#current?.segment) this.#closeCurrent(); // The end of the file is torn: use another.
    }
    throw new Error("the disk took only a part of a line");
  }

  /** Write that items were answered, also into a file that is complete. */
  #note(segment: Segment, line: Buffer): void {
    const isReadUp = segment.readTo === segment.bytes;
    const isCurrent = segment === this.#current?.segment;
    const { O_APPEND, O_WRONLY } = fs.constants;
    const file = isCurrent && this.#current ? this.#current.file : this.#openToNote(segment, O_WRONLY | O_APPEND);
    if (file === undefined) return;
    try {
      this.#write(segment, file, line);
    } finally {
      if (!isCurrent) fs.closeSync(file);
      if (isReadUp) segment.readTo = segment.bytes;
    }
  }

  #openToNote(segment: Segment, flags: number): number | undefined {
    try {
      return fs.openSync(segment.path, flags);
    } catch (error) {
      if (codeOf(error) !== "ENOENT") throw error;
      this.#forgetLost();
      return undefined;
    }
  }

  /** Read items that are on disk only. Return whether the file could be read. */
  #readFrom(segment: Segment, count: number, found: Spooled[]): boolean {
    const content = this.#guarded(() => readIfThere(segment.path));
    if (content === undefined) this.#forgetLost();
    if (content === undefined || segment.isLost) return false;
    for (const { offset, text, end } of linesIn(content, segment.readTo)) {
      if (found.length >= count) return true;
      const ref = segment.live.get(offset);
      segment.readTo = end;
      if (ref === undefined) continue;
      this.#unread -= 1;
      const item = itemIn(text, this.kind);
      if (item) found.push({ item, ref });
      else this.#forgetDamaged(segment, offset);
    }
    this.#unread -= segment.unread; // What is left was cut off.
    segment.readTo = segment.bytes;
    if (segment.live.size === 0) this.#delete(segment);
    return true;
  }

  #rewind(segment: Segment, readTo: number): void {
    if (segment.isLost) return;
    this.#unread -= segment.unread;
    segment.readTo = readTo;
    this.#unread += segment.unread;
  }

  #forgetDamaged(segment: Segment, offset: number): void {
    segment.live.delete(offset);
    this.warn(`a line in the spool ${this.folder} is damaged and was skipped`);
  }

  /** Leave the files that another process has adopted to it. Their items that are in memory are sent here as well. */
  #forgetLost(): void {
    for (const segment of this.#segments) {
      if (fs.existsSync(segment.path)) continue;
      this.#unread -= segment.unread;
      segment.isLost = true;
      if (segment === this.#current?.segment) this.#closeCurrent();
    }
    this.#segments = this.#segments.filter((segment) => !segment.isLost);
  }

  #adoptFolder(folder: string): void {
    for (const left of segmentsIn(folder)) {
      this.#guarded(() => this.#adoptFile(left));
      if (this.#isBehind) return;
    }
    removeIfEmpty(folder);
  }

  /** Adopt a file if it fits. Half of the room is kept for items of this process: they must not drive it out again. */
  #adoptFile(left: string): void {
    const file = openIfThere(left);
    if (file === undefined) return;
    try {
      this.#isBehind = this.#segments.length > 0 && this.#bytes + fs.fstatSync(file).size > this.bytesMax / 2;
      if (this.#isBehind) return;
      const segment = new Segment(this.#nextPath());
      if (hasMoved(left, segment.path)) this.#take(segment, fs.readFileSync(file));
    } finally {
      fs.closeSync(file);
    }
  }

  #take(segment: Segment, content: Buffer): void {
    segment.bytes = content.length;
    for (const offset of unansweredIn(content)) segment.add(offset);
    this.#segments.push(segment);
    this.#unread += segment.live.size;
    if (segment.live.size === 0) this.#delete(segment);
  }

  #touch(): void {
    const now = new Date();
    this.#touchedAt = now.getTime();
    try {
      fs.utimesSync(this.#home, now, now);
    } catch {
      this.#forgetLost();
    }
  }

  #nextPath(): string {
    fs.mkdirSync(this.#home, { recursive: true, mode: 0o700 });
    this.#touching ??= setInterval(() => this.#touch(), TOUCH_EVERY).unref();
    return join(this.#home, `${String(++this.#number).padStart(9, "0")}.log`);
  }

  #closeCurrent(): void {
    const file = this.#current?.file;
    this.#current = undefined;
    if (file !== undefined) this.#guarded(() => fs.closeSync(file));
  }

  #delete(segment: Segment): void {
    if (segment === this.#current?.segment) this.#closeCurrent();
    this.#segments = this.#segments.filter((each) => each !== segment);
    this.#guarded(() => fs.rmSync(segment.path, { force: true }));
  }

  #guarded<Value>(work: () => Value): Value | undefined {
    try {
      return work();
    } catch (error) {
      this.warn(`the spool in ${this.folder} failed, and items may be in memory alone: ${String(error)}`);
      return undefined;
    }
  }
}

function readIfThere(path: string): Buffer | undefined {
  return ifThere(() => fs.readFileSync(path));
}

function openIfThere(path: string): number | undefined {
  return ifThere(() => fs.openSync(path, "r"));
}

function ifThere<Value>(work: () => Value): Value | undefined {
  try {
    return work();
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined;
    throw error;
  }
}
