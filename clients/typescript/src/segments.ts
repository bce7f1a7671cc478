/** The files of the spool: a segment with one item per line, and the numbers of its lines that are done. See clients/spool.md. */

import * as fs from "node:fs";

import { itemOf, type Item, type Kind, type SentItem } from "./items.js";

export const ITEMS = ".items";
export const DONE = ".done";

const LINE_FEED = 10;
const FLAG = /^[0-9a-f]{8} \d+ ([01]) /;
const LINE = /^([0-9a-f]{8}) ((\d+) ([01]) (\{.*\}))$/s;
/** The beginning of a line whose writer died before it was complete. */
const TORN_LINE = /^(?:[0-9a-f]{0,8}|[0-9a-f]{8} .{0,262144})$/s;

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

/** `zlib.crc32` exists only in newer versions of Node. */
function crc32(content: Buffer): number {
  let value = 0xffffffff;
  for (const byte of content) value = CRC_TABLE[(value ^ byte) & 0xff]! ^ (value >>> 8);
  return (value ^ 0xffffffff) >>> 0;
}

export interface Line {
  readonly content: Buffer;
  /** Where the next line begins. */
  readonly end: number;
}

/** Return the lines from an offset on, without a torn last one. */
export function* linesIn(content: Buffer, from = 0): Generator<Line> {
  let start = from;
  for (let feed = content.indexOf(LINE_FEED, start); feed >= 0; feed = content.indexOf(LINE_FEED, start)) {
    yield { content: content.subarray(start, feed), end: feed + 1 };
    start = feed + 1;
  }
  const last = content.subarray(start);
  if (!TORN_LINE.test(last.toString("latin1"))) yield { content: last, end: content.length };
}

export function donePath(path: string): string {
  return path.slice(0, -ITEMS.length) + DONE;
}

/** Return the numbers of the lines that are done. Remove a torn last number, so that more can be appended. */
export function takeDone(path: string): Set<number> {
  const file = donePath(path);
  if (!fs.existsSync(file)) return new Set();
  const numbers = fs.readFileSync(file, "latin1").split("\n");
  const torn = numbers.pop()!.length;
  if (torn > 0) fs.truncateSync(file, fs.statSync(file).size - torn);
  return new Set(numbers.filter((number) => /^\d+$/.test(number)).map(Number));
}

export function itemLine({ queuedAt, doesExpire, text }: Item): Buffer {
  const content = Buffer.from(`${queuedAt} ${doesExpire ? 1 : 0} ${text}\n`);
  const checksum = crc32(content.subarray(0, -1)).toString(16).padStart(8, "0");
  return Buffer.concat([Buffer.from(`${checksum} `), content]);
}

/** Return the item of a line; undefined if the line is damaged. */
export function itemIn(line: Buffer, kind: Kind): Item | undefined {
  const parts = LINE.exec(line.toString("utf8"));
  if (parts === null || crc32(line.subarray(9)) !== parseInt(parts[1]!, 16)) return undefined;
  return itemOf(kind, parts[5]!, Number(parts[3]), parts[4] === "1");
}

/** Return what can still be read of the item of a damaged line. */
export function damagedItemIn(line: Buffer): SentItem {
  try {
    const value: unknown = JSON.parse(LINE.exec(line.toString("utf8"))![5]!);
    return value as SentItem;
  } catch {
    return {};
  }
}

/** True for a behavioral event, and for a line that is damaged. */
export function doesLineExpire(line: Buffer): boolean {
  return FLAG.exec(line.toString("latin1", 0, 40))?.[1] !== "0";
}
