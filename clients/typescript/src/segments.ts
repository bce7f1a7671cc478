/**
 * The lines of a segment file:
 *
 *     +e 1789000000000 {"name":"report_opened",…}     an item: e an event, p a payment, o an object; when it was queued
 *     -0,214                                          the items at these offsets were answered
 */

import { itemOf, type Item, type Kind } from "./items.js";

export interface Line {
  readonly offset: number;
  readonly text: string;
  /** Where the next line begins. */
  readonly end: number;
}

const LINE_FEED = 10;
const ITEM = /^\+([epo]) (\d+) (\{.*\})$/s;

/** Return the complete lines from an offset on. A last line without its end was cut off, and is not one. */
export function* linesIn(content: Buffer, from = 0): Generator<Line> {
  let offset = from;
  for (let feed = content.indexOf(LINE_FEED, offset); feed >= 0; feed = content.indexOf(LINE_FEED, offset)) {
    yield { offset, text: content.toString("utf8", offset, feed), end: feed + 1 };
    offset = feed + 1;
  }
}

/** Return the offsets of the items that were not answered. */
export function unansweredIn(content: Buffer): Set<number> {
  const unanswered = new Set<number>();
  for (const { offset, text } of linesIn(content)) {
    if (text.startsWith("+")) unanswered.add(offset);
    if (text.startsWith("-")) for (const answered of text.slice(1).split(",")) unanswered.delete(Number(answered));
  }
  return unanswered;
}

export function itemLine({ kind, isPayment, queuedAt, text }: Item): Buffer {
  return Buffer.from(`+${kind === "objects" ? "o" : isPayment ? "p" : "e"} ${queuedAt} ${text}\n`);
}

export function answeredLine(offsets: readonly number[]): Buffer {
  return Buffer.from(`-${offsets.join(",")}\n`);
}

/** Return the item of a line; undefined if the line is damaged. */
export function itemIn(line: string, kind: Kind): Item | undefined {
  const match = ITEM.exec(line);
  if (match === null || !isJson(match[3]!)) return undefined;
  return itemOf(kind, match[3]!, Number(match[2]), match[1] === "p");
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
