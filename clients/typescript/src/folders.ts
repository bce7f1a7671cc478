/** Files and folders shared by several processes: each may disappear at any time. */

import * as fs from "node:fs";
import { join } from "node:path";

import { DONE, ITEMS } from "./segments.js";

export function namesIn(folder: string): string[] {
  return fs.existsSync(folder) ? fs.readdirSync(folder).sort() : [];
}

/** Return the segment files of a folder, oldest first. */
export function segmentsIn(folder: string): string[] {
  const entries = fs.readdirSync(folder, { withFileTypes: true });
  const names = entries.filter((entry) => entry.isFile() && entry.name.endsWith(ITEMS)).map(({ name }) => name);
  return names.sort().map((name) => join(folder, name));
}

/** Remove a folder that has no segments, and return whether it is gone. Another process may have removed it first. */
export function isGoneIfEmpty(folder: string): boolean {
  const names = namesIn(folder);
  if (names.some((name) => name.endsWith(ITEMS))) return false;
  try {
    for (const name of names.filter((each) => each.endsWith(DONE))) fs.rmSync(join(folder, name), { force: true });
    fs.rmdirSync(folder);
  } catch (error) {
    if (!["ENOENT", "ENOTEMPTY", "EEXIST"].includes(codeOf(error))) throw error;
    return codeOf(error) === "ENOENT";
  }
  return true;
}

/** Rename a file or folder. Only one process succeeds; the others find it gone. */
export function hasMoved(from: string, to: string): boolean {
  try {
    fs.renameSync(from, to);
    return true;
  } catch (error) {
    if (codeOf(error) === "ENOENT") return false;
    throw error;
  }
}

/** True if a path still names the file that was opened there. */
export function isStillAt(path: string, file: number): boolean {
  return fs.statSync(path, { throwIfNoEntry: false })?.ino === fs.fstatSync(file).ino;
}

/** Return the content of a file; undefined if it is gone. */
export function readIfThere(path: string): Buffer | undefined {
  try {
    return fs.readFileSync(path);
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined;
    throw error;
  }
}

export function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? "";
}
