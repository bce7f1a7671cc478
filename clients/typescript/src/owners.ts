/**
 * Which process a folder of the spool belongs to, and whether that process is gone.
 *
 * A process that is asleep or busy is not gone, no matter for how long. If the owner would be visible from here, its folder
 * is abandoned once the process has ended. Otherwise (another host, another container) only a timeout can decide. It may be
 * wrong, so a writer must notice that its files were adopted.
 */

import * as fs from "node:fs";
import { randomBytes } from "node:crypto";
import { hostname } from "node:os";

const RELEASED = "released.";
const NAME = /^([^.]+)\.([0-9a-f-]*)\.(\d*)\.(\d+)\.(\d*)\.[0-9a-f]{12}$/;
/** Longer than any pause of a running process, which touches its folder every few seconds. */
export const SILENT_AFTER = 60_000;
/** Longer than any process is expected to sleep. */
export const STALE_AFTER = 10 * 60_000;

export interface Owner {
  readonly host: string;
  /** The boot id of the machine, and the namespace of its process ids; empty if unavailable. */
  readonly boot: string;
  readonly namespace: string;
  readonly pid: number;
  /** The start of the process, in ticks since boot, because process ids are reused. Empty if unknown. */
  readonly start: string;
}

/** The state of a visible process: its start (empty if unknown), or that it is gone. */
export type StartOf = (pid: number) => string | undefined;

/** True if the owner has ended, or has not touched its folder for so long that it is assumed to have ended. */
export function isAbandoned(owner: Owner, quietFor: number, self: Owner, startOf: StartOf): boolean {
  if (isInSight(owner, self)) {
    const start = startOf(owner.pid);
    if (start === undefined) return true;
    if (start && owner.start) return start !== owner.start;
  } else if (owner.host === self.host && owner.boot !== self.boot) {
    return quietFor > SILENT_AFTER; // The host was rebooted, or another host has the same name and will touch the folder.
  }
  return quietFor > STALE_AFTER;
}

/** True if this process sees the processes of the owner, under the same ids. */
function isInSight(owner: Owner, self: Owner): boolean {
  const isSameMachine = owner.boot === self.boot && (self.boot !== "" || owner.host === self.host);
  return isSameMachine && owner.namespace === self.namespace;
}

/** Return the last part of the name of a folder that a process owns. */
export function ownName({ host, boot, namespace, pid, start }: Owner): string {
  return [host, boot, namespace, pid, start, randomBytes(6).toString("hex")].join(".");
}

/** Return the last part of the name of a folder that any process may adopt. */
export function releasedName(): string {
  return RELEASED + randomBytes(6).toString("hex");
}

/** Return whether this process may adopt a folder, given the last part of its name. */
export function mayAdopt(path: string, name: string, self: Owner): boolean {
  const stats = fs.statSync(path, { throwIfNoEntry: false });
  if (!stats?.isDirectory()) return false;
  if (name.startsWith(RELEASED)) return true;
  const owner = ownerOf(name);
  return owner !== undefined && isAbandoned(owner, Date.now() - stats.mtimeMs, self, startOf);
}

export function ownerOf(name: string): Owner | undefined {
  const parts = NAME.exec(name);
  if (parts === null) return undefined;
  return { host: parts[1]!, boot: parts[2]!, namespace: parts[3]!, pid: Number(parts[4]), start: parts[5]! };
}

export function thisProcess(): Owner {
  return {
    host: encodeURIComponent(hostname()).replaceAll(".", "%2E") || "-",
    boot: valueOf(() => fs.readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim()),
    namespace: valueOf(() => /\d+/.exec(fs.readlinkSync("/proc/self/ns/pid"))![0]),
    pid: process.pid,
    start: valueOf(() => fieldsIn("/proc/self/stat").start),
  };
}

export function startOf(pid: number): string | undefined {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") return undefined;
  }
  try {
    const { state, start } = fieldsIn(`/proc/${pid}/stat`);
    return state === "Z" || state === "X" ? undefined : start;
  } catch {
    return "";
  }
}

/** The name of the program, in parentheses, may itself have spaces and parentheses. */
function fieldsIn(path: string): { state: string; start: string } {
  const stat = fs.readFileSync(path, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return { state: fields[0]!, start: fields[19]! };
}

function valueOf(read: () => string): string {
  try {
    return read();
  } catch {
    return "";
  }
}
