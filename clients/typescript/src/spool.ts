/**
 * Items on disk, for Node; clients/spool.md describes the format. Each client appends to segments in its own folder, and
 * deletes a segment once all its items are done. It adopts the folder of a dead process by renaming it, which only one
 * process can do.
 *
 * A live process may be mistaken for a dead one (see `owners.ts`). So after every item the writer checks that the file is
 * still in place. If it is, a process that adopts it later finds the item; otherwise the item is written to a new file.
 * Then two processes may send the same item: its id keeps it from counting twice.
 */

import { createHash } from "node:crypto";
import * as fs from "node:fs";
import { basename, dirname, join } from "node:path";

import { codeOf, hasMoved, isGoneIfEmpty, isStillAt, namesIn, readIfThere, segmentsIn } from "./folders.js";
import type { Item, Kind, SentItem } from "./items.js";
import { mayAdopt, ownName, releasedName, thisProcess, type Owner } from "./owners.js";
import type { Evicted, Spool, Spooled, Warn } from "./platform.js";
import { Segment, type Ref } from "./segment.js";
import { damagedItemIn, doesLineExpire, donePath, itemIn, itemLine, ITEMS, linesIn, takeDone } from "./segments.js";

const SEGMENT_BYTES_MAX = 1024 * 1024;
/** How many segments fill the spool: when it is full, the events of one are dropped. */
const SEGMENTS_AIM = 64;
const LINE_OVERHEAD_BYTES = 32;
const TOUCH_EVERY = 5_000;
const ATTEMPTS = 3;
const FOLDER = /^([0-9a-f]{16})\.(events|objects)\.(.+)$/;
const CORRUPT = ".corrupt";

interface Current {
  readonly segment: Segment;
  readonly file: number;
}

/** Open the part of a spool folder that belongs to a key and a kind. No other key may send these items. */
export function openSpool(
  folder: string, kind: Kind, key: string, bytesMax: number, warn: Warn, self: Owner = thisProcess(),
): Spool {
  return new SegmentSpool(folder, kind, keyDigits(key), bytesMax, warn, self);
}

export function keyDigits(key: string): string {
  return createHash("sha256").update(key).digest("hex").slice(0, 16);
}

class SegmentSpool implements Spool {
  readonly #home: string;
  readonly #segmentBytes: number;
  /** Folders that were adopted, with the segments in them that wait for room. */
  readonly #adopted = new Map<string, string[]>();
  readonly #reported = new Set<string>();
  #segments: Segment[] = [];
  #damaged: SentItem[] = [];
  #current: Current | undefined;
  #number = 0;
  #unread = 0;
  #isBehind = false;
  #touching: NodeJS.Timeout | undefined;
  #touchedAt = 0;

  constructor(
    private readonly folder: string,
    private readonly kind: Kind,
    private readonly key: string,
    private readonly bytesMax: number,
    private readonly warn: Warn,
    private readonly self: Owner,
  ) {
    this.#home = this.#folderNamed(ownName(self));
    this.#segmentBytes = Math.min(SEGMENT_BYTES_MAX, Math.floor(bytesMax / SEGMENTS_AIM));
  }

  get unread(): number {
    return this.#unread;
  }

  get isBehind(): boolean {
    return this.#isBehind;
  }

  isFull(bytes: number): boolean {
    const room = this.bytesMax - bytes - LINE_OVERHEAD_BYTES;
    if (this.#bytes <= room) return false;
    this.#forgetLost();
    return this.#bytes > room;
  }

  append(item: Item, isRead: boolean): Ref | undefined {
    return this.#guarded(() => {
      for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
        const segment = this.#appendOnce(item);
        if (segment === undefined) continue;
        if (isRead) segment.markRead();
        else this.#unread += 1;
        return segment.add(segment.lines - 1, item.doesExpire);
      }
      throw new Error("another process keeps adopting the files of this one");
    });
  }

  read(count: number): Spooled[] {
    const found: Spooled[] = [];
    for (const segment of [...this.#segments]) {
      if (found.length < count && segment.linesRead < segment.lines) this.#readFrom(segment, count, found);
    }
    return found;
  }

  takeDamaged(): SentItem[] {
    return this.#damaged.splice(0);
  }

  remove(refs: readonly unknown[]): void {
    const done = new Map<Segment, number[]>();
    for (const ref of refs as readonly Ref[]) {
      const { segment, line } = ref;
      if (!segment.remove(ref) || segment.isGone) continue;
      const lines = done.get(segment);
      if (lines) lines.push(line);
      else done.set(segment, [line]);
    }
    for (const [segment, lines] of done) {
      if (segment.live.size === 0) this.#delete(segment);
      else this.#guarded(() => this.#noteDone(segment, lines));
    }
  }

  evict(item: Item, inFlight: readonly unknown[]): Evicted | undefined {
    const busy = new Set((inFlight as readonly (Ref | undefined)[]).map((ref) => ref?.segment));
    const idle = this.#segments.filter((segment) => !busy.has(segment));
    const money = item.doesExpire ? [] : idle.filter(({ expiring }) => expiring === 0);
    for (const segment of [...idle.filter(({ expiring }) => expiring > 0), ...money]) {
      const hasEvents = segment.expiring > 0;
      const entries = this.#readAgain(segment);
      if (entries === undefined) continue;
      if (segment === this.#current?.segment) this.#closeCurrent();
      // Payments are written again before they are deleted here, unless there is nothing else to remove.
      const kept = hasEvents ? entries.filter((entry) => !entry.item.doesExpire) : [];
      const moved = new Set(kept.filter((entry) => this.append(entry.item, false) !== undefined));
      this.#delete(segment);
      return { dropped: entries.filter((entry) => !moved.has(entry)), moved: [...moved].map(({ ref }) => ref) };
    }
    return undefined;
  }

  adopt(): number {
    const before = this.#unread;
    this.#isBehind = false;
    for (const folder of [...this.#adopted.keys()]) this.#guarded(() => this.#adoptSegments(folder));
    for (const name of this.#guarded(() => namesIn(this.folder)) ?? []) {
      const [, key, kind, owner] = FOLDER.exec(name) ?? [];
      const path = join(this.folder, name);
      if (kind !== this.kind || path === this.#home || this.#adopted.has(path) || this.#isBehind) continue;
      this.#guarded(() => {
        if (!mayAdopt(path, owner!, this.self)) return;
        if (key === this.key) this.#adoptFolder(path);
        else this.#reportOtherKey(path);
      });
    }
    return this.#unread - before;
  }

  close(): void {
    clearInterval(this.#touching);
    this.#closeCurrent();
    for (const segment of this.#segments) if (segment.live.size === 0) this.#delete(segment);
    for (const folder of [this.#home, ...this.#adopted.keys()]) {
      this.#guarded(() => isGoneIfEmpty(folder) || hasMoved(folder, this.#folderNamed(releasedName())));
    }
  }

  get #bytes(): number {
    return this.#segments.reduce((sum, segment) => sum + segment.bytes, 0);
  }

  #folderNamed(owner: string): string {
    return join(this.folder, `${this.key}.${this.kind}.${owner}`);
  }

  /** Write an item, and return its segment; undefined if another process has adopted the file. */
  #appendOnce(item: Item): Segment | undefined {
    const current = this.#openCurrent();
    if (current === undefined) return undefined;
    const { segment, file } = current;
    this.#write(segment, file, itemLine(item));
    segment.lines += 1;
    if (Date.now() - this.#touchedAt > TOUCH_EVERY) this.#touch(); // Timers do not fire during synchronous work.
    if (!segment.isGone && isStillAt(segment.path, file)) return segment;
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
      this.#closeCurrent(); // The end of the file is torn: use another.
    }
    throw new Error("the disk accepted only part of a line");
  }

  /** Record completed lines. If that fails, their items may be sent again, but count once. */
  #noteDone(segment: Segment, lines: readonly number[]): void {
    if (segment.isNoteTorn) return;
    try {
      fs.appendFileSync(donePath(segment.path), lines.map((line) => `${line}\n`).join(""), { mode: 0o600 });
    } catch (error) {
      if (codeOf(error) === "ENOENT") return this.#forgetLost();
      segment.isNoteTorn = true; // A number may be cut off: nothing may follow it.
      throw error;
    }
  }

  /** Read items that are on disk only. Return whether the file could be read. */
  #readFrom(segment: Segment, count: number, found: Spooled[]): boolean {
    const content = this.#guarded(() => readIfThere(segment.path));
    if (content === undefined) this.#forgetLost();
    if (content === undefined || segment.isGone) return false;
    for (const { content: line, end } of linesIn(content, segment.bytesRead)) {
      if (found.length >= count) return true;
      const ref = segment.live.get(segment.linesRead);
      segment.linesRead += 1;
      segment.bytesRead = end;
      if (ref === undefined) continue;
      this.#unread -= 1;
      const item = itemIn(line, this.kind);
      if (item) found.push({ item, ref });
      else this.#setAside(ref, line);
    }
    for (const ref of [...segment.live.values()].filter(({ line }) => line >= segment.linesRead)) {
      this.#unread -= 1; // The file has become shorter.
      this.#setAside(ref, undefined);
    }
    segment.markRead();
    if (segment.live.size === 0) this.#delete(segment);
    return true;
  }

  /** Return all items of a segment that are not done; undefined if it cannot be read. */
  #readAgain(segment: Segment): Spooled[] | undefined {
    const { bytesRead, linesRead } = segment;
    const entries: Spooled[] = [];
    this.#rewind(segment, 0, 0);
    if (this.#readFrom(segment, Infinity, entries)) return entries;
    this.#rewind(segment, bytesRead, linesRead);
    return undefined;
  }

  #rewind(segment: Segment, bytesRead: number, linesRead: number): void {
    if (segment.isGone) return;
    this.#unread -= segment.unread;
    Object.assign(segment, { bytesRead, linesRead });
    this.#unread += segment.unread;
  }

  /** Drop a damaged item, and keep its line for the operator. */
  #setAside(ref: Ref, line: Buffer | undefined): void {
    const { segment } = ref;
    segment.remove(ref);
    this.#damaged.push(line ? damagedItemIn(line) : {});
    this.#guarded(() => this.#noteDone(segment, [ref.line]));
    if (line === undefined) return this.warn("damaged", `items in the spool ${this.folder} are lost: the file was truncated`);
    const aside = join(this.folder, `${basename(dirname(segment.path))}-${basename(segment.path, ITEMS)}${CORRUPT}`);
    this.warn("damaged", `an item in the spool was damaged, and its line is now in ${aside}`);
    this.#guarded(() => fs.appendFileSync(aside, Buffer.concat([line, Buffer.from("\n")]), { mode: 0o600 }));
  }

  /** Release the files that another process has adopted. Their items in memory are sent from here as well. */
  #forgetLost(): void {
    for (const segment of this.#segments) {
      if (fs.existsSync(segment.path)) continue;
      this.#unread -= segment.unread;
      segment.isGone = true;
      if (segment === this.#current?.segment) this.#closeCurrent();
    }
    this.#segments = this.#segments.filter((segment) => !segment.isGone);
  }

  #adoptFolder(left: string): void {
    const folder = this.#folderNamed(ownName(this.self));
    if (!hasMoved(left, folder)) return;
    this.#adopted.set(folder, segmentsIn(folder));
    this.#startTouching();
    this.#touch();
    this.#adoptSegments(folder);
  }

  /** Adopt the segments that fit. Half of the room stays reserved for the items of this process. */
  #adoptSegments(folder: string): void {
    const waiting = this.#adopted.get(folder)!;
    while (waiting.length > 0 && !this.#isBehind) {
      const size = fs.statSync(waiting[0]!, { throwIfNoEntry: false })?.size ?? 0;
      this.#isBehind = this.#segments.length > 0 && this.#bytes + size > this.bytesMax / 2;
      if (!this.#isBehind) this.#adoptSegment(waiting[0]!, waiting);
    }
    this.#removeIfDone(folder);
  }

  #adoptSegment(path: string, waiting: string[]): void {
    const segment = new Segment(path);
    const content = readIfThere(path);
    const done = takeDone(path);
    waiting.shift();
    if (content === undefined) return;
    for (const { content: line } of linesIn(content)) {
      if (!done.has(segment.lines)) segment.add(segment.lines, doesLineExpire(line));
      segment.lines += 1;
    }
    segment.bytes = content.length;
    this.#segments.push(segment);
    this.#unread += segment.live.size;
    if (segment.live.size === 0) this.#delete(segment);
  }

  #removeIfDone(folder: string): void {
    if (this.#adopted.get(folder)?.length !== 0) return;
    if (this.#segments.some(({ path }) => dirname(path) === folder)) return;
    if (this.#guarded(() => isGoneIfEmpty(folder))) this.#adopted.delete(folder);
  }

  #reportOtherKey(folder: string): void {
    if (this.#reported.has(folder) || segmentsIn(folder).length === 0) return;
    this.#reported.add(folder);
    const advice = `if this key replaces that one, rename the folder so that it begins with ${this.key}`;
    this.warn(folder, `${folder} holds items queued with another key: ${advice}`);
  }

  #startTouching(): void {
    this.#touching ??= setInterval(() => this.#touch(), TOUCH_EVERY).unref();
  }

  /** Show other hosts that the owner of these folders is alive. */
  #touch(): void {
    const now = new Date();
    this.#touchedAt = now.getTime();
    for (const folder of [this.#home, ...this.#adopted.keys()]) {
      try {
        fs.utimesSync(folder, now, now);
      } catch {
        this.#forgetLost();
      }
    }
  }

  #nextPath(): string {
    fs.mkdirSync(this.#home, { recursive: true, mode: 0o700 });
    this.#startTouching();
    return join(this.#home, `${String(++this.#number).padStart(8, "0")}${ITEMS}`);
  }

  #closeCurrent(): void {
    const file = this.#current?.file;
    this.#current = undefined;
    if (file !== undefined) this.#guarded(() => fs.closeSync(file));
  }

  #delete(segment: Segment): void {
    if (segment === this.#current?.segment) this.#closeCurrent();
    this.#segments = this.#segments.filter((each) => each !== segment);
    segment.isGone = true;
    this.#guarded(() => {
      fs.rmSync(segment.path, { force: true });
      fs.rmSync(donePath(segment.path), { force: true });
    });
    this.#removeIfDone(dirname(segment.path));
  }

  #guarded<Value>(work: () => Value): Value | undefined {
    try {
      return work();
    } catch (error) {
      this.warn("spool", `the spool in ${this.folder} failed, so items may be only in memory: ${String(error)}`);
      return undefined;
    }
  }
}
