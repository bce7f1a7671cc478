/** Files and folders that several processes use at the same time: each of them may be gone at any moment. */

import * as fs from "node:fs";
import { join } from "node:path";

export function namesIn(folder: string): string[] {
  return fs.existsSync(folder) ? fs.readdirSync(folder).sort() : [];
}

/** Return the segment files of a folder, oldest first. Whatever else is there is not ours. */
export function segmentsIn(folder: string): string[] {
  const entries = fs.readdirSync(folder, { withFileTypes: true });
  const names = entries.filter((entry) => entry.isFile() && entry.name.endsWith(".log")).map(({ name }) => name);
  return names.sort().map((name) => join(folder, name));
}

/** Another process may have removed it, or write into it again. */
export function removeIfEmpty(folder: string): void {
  try {
    fs.rmdirSync(folder);
  } catch (error) {
    if (!["ENOENT", "ENOTEMPTY", "EEXIST"].includes(codeOf(error))) throw error;
  }
}

/** Rename a file. Only one process can: to the others it is gone. */
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

export function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? "";
}
