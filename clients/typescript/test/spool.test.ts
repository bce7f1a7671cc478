import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import * as fs from "node:fs";
import fsModule from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";

import { Client, type Options } from "../src/client.js";
import { eventItem } from "../src/items.js";
import {
  isAbandoned, ownerOf, ownName, SILENT_AFTER, STALE_AFTER, startOf, thisProcess, type Owner,
} from "../src/owners.js";
import { linesIn, unansweredIn } from "../src/segments.js";
import { openSpool } from "../src/spool.js";
import { accepted, answer, FakePlatform, START } from "./fake_platform.js";

function folderFor(context: TestContext): string {
  const folder = fs.mkdtempSync(join(tmpdir(), "mauve-spool-"));
  context.after(() => fs.rmSync(folder, { recursive: true }));
  return folder;
}

function opened(folder: string, options: Options = {}, bytesMax = 1_000_000, self?: Owner) {
  const platform = new FakePlatform();
  const dropped: string[] = [];
  platform.openSpool = (kind, warn) => openSpool(folder, kind, bytesMax, warn, self);
  const onDrop = (item: Readonly<Record<string, unknown>>) => dropped.push(String(item["name"]));
  const client = new Client({ key: "sk_live_test", url: "http://localhost", onDrop, ...options }, platform);
  return { platform, client, dropped };
}

function filesIn(folder: string): string[] {
  const all = fs.readdirSync(folder, { recursive: true, encoding: "utf8" }) as string[];
  return all.filter((path) => path.endsWith(".log"));
}

function names(platform: FakePlatform): unknown[] {
  return platform.posts.flatMap((_, place) => platform.items(place).map((item) => item["name"] ?? item["id"]));
}

test("every item is on disk when the call returns, and gone when it was answered", async (context) => {
  const folder = folderFor(context);
  const { client, platform } = opened(folder);
  client.track("one");
  client.subscription({ id: "sub-1", status: "active", mrr: 1, currency: "eur" });
  const written = filesIn(folder).map((path) => fs.readFileSync(join(folder, path), "utf8")).join("");
  assert.match(written, /"name":"one"/);
  assert.match(written, /"id":"sub-1"/);
  await platform.pass(1000);
  assert.equal(client.stats.accepted, 2);
  assert.deepEqual(filesIn(folder), []);
});

test("what close could not deliver is sent by the next client, with the same ids", async (context) => {
  const folder = folderFor(context);
  const first = opened(folder);
  first.platform.answers = [answer(503)];
  for (const name of ["one", "two"]) first.client.track(name);
  const closed = first.client.close(1500);
  await first.platform.pass(1500);
  assert.equal(await closed, false);
  assert.deepEqual(first.dropped, []);
  assert.equal(first.client.stats.queued, 2);
  const second = opened(folder);
  await second.platform.pass(1000);
  assert.equal(second.client.stats.accepted, 2);
  const ids = (platform: FakePlatform) => platform.items(0).map((item) => item["id"]);
  assert.deepEqual(ids(second.platform), ids(first.platform));
  assert.deepEqual(filesIn(folder), []);
});

test("items that were answered are not sent again by the next client", async (context) => {
  const folder = folderFor(context);
  const first = opened(folder, { batchSize: 2 });
  first.platform.answers = [accepted(), "never"];
  for (const name of ["a", "b", "c", "d"]) first.client.track(name);
  const closed = first.client.close(1000);
  await first.platform.pass(1000);
  await closed;
  const second = opened(folder);
  await second.platform.pass(1000);
  assert.deepEqual(names(second.platform), ["c", "d"]);
});

test("two clients never adopt the same items", async (context) => {
  const folder = folderFor(context);
  const first = opened(folder);
  for (let place = 0; place < 100; place += 1) first.client.track(`event ${place}`);
  first.platform.answers = ["never"];
  const closed = first.client.close(0);
  await first.platform.pass(0);
  assert.equal(await closed, false);
  const others = [opened(folder), opened(folder), opened(folder)];
  for (const { platform } of others) await platform.pass(2000);
  assert.deepEqual(others.map(({ client }) => client.stats.accepted).sort((one, other) => one - other), [0, 0, 100]);
});

test("a client that is open keeps its items", async (context) => {
  const folder = folderFor(context);
  const first = opened(folder);
  first.platform.answers = [answer(503)];
  first.client.track("one");
  const second = opened(folder);
  await second.platform.pass(60_000);
  assert.deepEqual(names(second.platform), []);
});

test("maxQueue bounds memory: the rest waits on disk and arrives in order", async (context) => {
  const folder = folderFor(context);
  const { client, platform, dropped } = opened(folder, { maxQueue: 10, batchSize: 5 });
  platform.answers = [answer(503, {}, "2"), accepted()];
  for (let place = 0; place < 57; place += 1) client.track(`event ${place}`);
  assert.equal(client.stats.queued, 57);
  const flushed = client.flush(60_000);
  await platform.pass(60_000);
  assert.equal(await flushed, true);
  assert.deepEqual(dropped, []);
  assert.equal(client.stats.accepted, 57);
  const expected = Array.from({ length: 57 }, (_, place) => `event ${place}`);
  assert.deepEqual(names(platform).slice(5), expected);
  assert.deepEqual(filesIn(folder), []);
});

test("the disk is bounded: the oldest items are dropped, counted and reported", async (context) => {
  const folder = folderFor(context);
  const { client, platform, dropped } = opened(folder, { maxQueue: 20 }, 20_000);
  platform.answers = [answer(503)];
  for (let place = 0; place < 1000; place += 1) client.track(`event ${place}`);
  const bytes = filesIn(folder).reduce((sum, path) => sum + fs.statSync(join(folder, path)).size, 0);
  assert.ok(bytes <= 20_000);
  const { queued, dropped: count } = client.stats;
  assert.equal(queued + count, 1000);
  assert.equal(dropped.length, count);
  assert.deepEqual(dropped, Array.from({ length: count }, (_, place) => `event ${place}`));
  platform.answers = [accepted()];
  await platform.pass(600_000);
  assert.equal(client.stats.accepted, queued);
});

test("a spool that cannot be written keeps its items in memory, and says so", async (context) => {
  const file = join(folderFor(context), "file");
  fs.writeFileSync(file, "");
  const { client, platform } = opened(join(file, "spool"));
  client.track("one");
  assert.match(platform.warnings.join(), /in memory alone/);
  await platform.pass(1000);
  assert.equal(client.stats.accepted, 1);
});

test("a torn or damaged line is skipped, and the others are sent", async (context) => {
  const folder = folderFor(context);
  const left = join(folder, "events", "released.000000000000");
  fs.mkdirSync(left, { recursive: true });
  fs.writeFileSync(join(left, "1.log"), `${line("one")}+e 5 {"name":\ngarbage\n${line("two")}+e 5 {"name":"torn`);
  fs.writeFileSync(join(left, "2.log"), "");
  const { client, platform } = opened(folder);
  await platform.pass(1000);
  assert.deepEqual(names(platform), ["one", "two"]);
  assert.deepEqual(counts(client), [0, 2]);
  assert.match(platform.warnings.join(), /damaged/);
  assert.deepEqual(filesIn(folder), []);
});

function counts(client: Client): number[] {
  return [client.stats.queued, client.stats.accepted];
}

test("an expired event is also gone from the disk", async (context) => {
  const folder = folderFor(context);
  const { client, platform } = opened(folder);
  platform.answers = [answer(402)];
  client.track("one");
  await platform.pass(7 * 86_400_000);
  assert.equal(client.stats.expired, 1);
  assert.deepEqual(filesIn(folder), []);
});

test("items that were left too long ago expire, and those after them are sent", async (context) => {
  const folder = folderFor(context);
  const left = join(folder, "events", "released.000000000000");
  fs.mkdirSync(left, { recursive: true });
  const old = START - 8 * 86_400_000;
  const lines = Array.from({ length: 25 }, (_, place) => `+e ${old} {"name":"old ${place}","id":"${place}"}\n`);
  const payment = `+p ${old} {"name":"payment","id":"invoice-1"}\n`;
  fs.writeFileSync(join(left, "1.log"), `${lines.join("")}${payment}+e ${START} {"name":"new","id":"new"}\n`);
  const { client, platform } = opened(folder, { maxQueue: 10, batchSize: 5 });
  await platform.pass(10_000);
  assert.deepEqual(names(platform), ["payment", "new"]);
  assert.deepEqual([client.stats.expired, client.stats.queued], [25, 0]);
  assert.deepEqual(filesIn(folder), []);
});

test("lines are found by their offsets", () => {
  const item = eventItem("ä", {}, { now: 5, newId: () => "id", isPublishable: false });
  const content = Buffer.from(`+e 5 ${item.text}\n+e 6 {}\n-0\n+e 7 {}`);
  const second = Buffer.byteLength(`+e 5 ${item.text}\n`);
  assert.deepEqual([...unansweredIn(content)], [second]);
  assert.deepEqual([...linesIn(content, second)].map(({ text }) => text), ["+e 6 {}", "-0"]);
});

const HERE: Owner = { host: "here", boot: "b1", namespace: "1", pid: 7, start: "70" };

test("a folder is abandoned if its process has ended; where that cannot be seen, after a long time", () => {
  const running = new Map([[7, "70"], [8, "80"], [9, ""]]);
  const cases: [string, Partial<Owner>, number, boolean][] = [
    ["it is running", { pid: 8, start: "80" }, 10 * STALE_AFTER, false],
    ["it is this one", {}, 10 * STALE_AFTER, false],
    ["it has ended", { pid: 6, start: "60" }, 0, true],
    ["its id was given to another", { pid: 8, start: "79" }, 0, true],
    ["an earlier process had the id of this one", { start: "69" }, 0, true],
    ["it may be another with its id", { pid: 9, start: "" }, STALE_AFTER, false],
    ["it may be another with its id, and was silent for long", { pid: 9, start: "" }, STALE_AFTER + 1, true],
    ["another container", { host: "there", namespace: "2", pid: 6 }, STALE_AFTER, false],
    ["another container of the same name", { namespace: "2", pid: 6 }, STALE_AFTER, false],
    ["another container, long ago", { namespace: "2", pid: 6 }, STALE_AFTER + 1, true],
    ["another host", { host: "there", boot: "b2", pid: 6 }, STALE_AFTER, false],
    ["another host, long ago", { host: "there", boot: "b2" }, STALE_AFTER + 1, true],
    ["before this host was started again", { boot: "b0" }, SILENT_AFTER + 1, true],
    ["another host of the same name", { boot: "b0" }, 0, false],
  ];
  for (const [what, owner, quietFor, expected] of cases) {
    assert.equal(isAbandoned({ ...HERE, ...owner }, quietFor, HERE, (pid) => running.get(pid)), expected, what);
  }
});

test("the name of a folder tells its owner, and this process is alive", () => {
  const self = thisProcess();
  assert.deepEqual(ownerOf(ownName(self)), self);
  assert.deepEqual(ownerOf(ownName({ ...HERE, boot: "", namespace: "", start: "" })), { ...HERE, boot: "", namespace: "", start: "" });
  assert.equal(startOf(process.pid), self.start);
  assert.equal(isAbandoned(self, Infinity, self, startOf), self.start === "");
});

/** Make every folder look as if its process had been silent for an hour. */
function silence(folder: string): void {
  const before = new Date(Date.now() - 3_600_000);
  for (const name of fs.readdirSync(join(folder, "events"))) fs.utimesSync(join(folder, "events", name), before, before);
}

const AWAY: Owner = { ...HERE, host: "away", boot: "b9" };

test("a client that was taken for dead notices, and loses nothing", async (context) => {
  const folder = folderFor(context);
  const asleep = opened(folder, { maxQueue: 10, batchSize: 5 }, 1_000_000, AWAY);
  asleep.platform.answers = [answer(503, {}, "3600"), accepted()];
  for (let place = 0; place < 100; place += 1) asleep.client.track(`event ${place}`);
  await asleep.platform.pass(0);
  silence(folder);
  const other = opened(folder, { maxQueue: 1000 });
  assert.equal(other.client.stats.queued, 100);
  for (let place = 100; place < 150; place += 1) asleep.client.track(`event ${place}`);
  await other.platform.pass(60_000);
  assert.equal(other.client.stats.accepted, 100);
  await asleep.platform.pass(7_200_000);
  const arrived = new Set([...names(asleep.platform), ...names(other.platform)]);
  assert.equal(arrived.size, 150);
  assert.deepEqual([asleep.client.stats.queued, asleep.dropped, other.dropped], [0, [], []]);
  assert.deepEqual(filesIn(folder), []);
});

test("what a client wrote after it was taken for dead is on disk, also after it died", async (context) => {
  const folder = folderFor(context);
  const asleep = opened(folder, {}, 1_000_000, AWAY);
  asleep.platform.answers = ["never"];
  asleep.client.track("before");
  silence(folder);
  const other = opened(folder);
  asleep.client.track("after");
  await other.platform.pass(1000);
  silence(folder);
  await other.platform.pass(20_000);
  assert.deepEqual(names(other.platform), ["before", "after"]);
});

const SLEEPER = `
import { Mauve } from ${JSON.stringify(new URL("../src/node.js", import.meta.url).href)};
const mauve = new Mauve({ key: "sk_live_test", url: "http://127.0.0.1:1", spool: process.argv[1] });
mauve.track("one");
console.log("ready");
setInterval(() => undefined, 1000);
`;

test("a process that is stopped keeps its items however long, and leaves them when it is killed", async (context) => {
  const folder = folderFor(context);
  const sleeper = spawn(process.execPath, ["--input-type=module", "-e", SLEEPER, folder], { stdio: ["ignore", "pipe", "ignore"] });
  const ended = new Promise((resolve) => sleeper.once("exit", resolve));
  await new Promise((resolve) => sleeper.stdout!.once("data", resolve));
  sleeper.kill("SIGSTOP");
  silence(folder);
  const other = opened(folder);
  await other.platform.pass(60_000);
  assert.deepEqual(names(other.platform), []);
  sleeper.kill("SIGKILL");
  await ended;
  await other.platform.pass(20_000);
  assert.deepEqual(names(other.platform), ["one"]);
});

function leave(folder: string, name: string, file: string, content: string): void {
  const left = join(folder, "events", name);
  fs.mkdirSync(left, { recursive: true });
  fs.writeFileSync(join(left, file), content);
}

function line(name: string, filler = ""): string {
  return `+e ${START} ${JSON.stringify({ name, id: name, props: { filler } })}\n`;
}

test("what others left is adopted as room appears, and a new item drives out none of it", async (context) => {
  const folder = folderFor(context);
  for (let place = 0; place < 40; place += 1) {
    leave(folder, `released.00000000000${place % 4}`, `${place}.log`, line(`left ${place}`, "a".repeat(900)));
  }
  const { client, platform, dropped } = opened(folder, { maxQueue: 5, batchSize: 5 }, 10_000);
  assert.ok(client.stats.queued >= 3 && client.stats.queued <= 5, String(client.stats.queued));
  client.track("new");
  const flushed = client.flush(60_000);
  await platform.pass(60_000);
  assert.equal(await flushed, true);
  assert.deepEqual([client.stats.accepted, dropped], [41, []]);
  assert.deepEqual(filesIn(folder), []);
});

test("an entry that cannot be adopted does not stop the others", async (context) => {
  const folder = folderFor(context);
  leave(folder, "released.aaaaaaaaaaaa", "1.log", line("one"));
  fs.mkdirSync(join(folder, "events", "released.aaaaaaaaaaaa", "0.log"));
  fs.writeFileSync(join(folder, "events", "released.bbbbbbbbbbbb"), "a file where a folder belongs");
  leave(folder, "released.cccccccccccc", "1.log", line("two"));
  const { platform } = opened(folder);
  await platform.pass(1000);
  assert.deepEqual(names(platform), ["one", "two"]);
});

test("a line that is too large to be sent is dropped with a reason, and the others are sent", async (context) => {
  const folder = folderFor(context);
  leave(folder, "released.aaaaaaaaaaaa", "1.log", line("huge", "a".repeat(1_000_000)) + line("one"));
  const { client, platform, dropped } = opened(folder, {}, 4_000_000);
  await platform.pass(20_000);
  assert.deepEqual([names(platform), dropped, client.stats.queued], [["one"], ["huge"], 0]);
  assert.match(platform.warnings.join(), /holds an item of 1000\d+ bytes/);
  assert.deepEqual(filesIn(folder), []);
});

/** Let the disk take this many bytes of each write. */
function fillDisk(context: TestContext, room: number): void {
  const { writeSync } = fsModule;
  const restore = () => {
    fsModule.writeSync = writeSync;
    syncBuiltinESMExports();
  };
  fsModule.writeSync = ((file: number, line: Buffer) => {
    if (room === 0) throw Object.assign(new Error("ENOSPC: no space left on device, write"), { code: "ENOSPC" });
    return writeSync(file, line.subarray(0, room));
  }) as typeof writeSync;
  syncBuiltinESMExports();
  context.after(restore);
}

for (const room of [0, 10]) {
  test(`a disk that takes ${room} bytes of a line costs no files: items stay in memory within its bound`, async (context) => {
    const folder = folderFor(context);
    const { client, platform, dropped } = opened(folder, { maxQueue: 50, batchSize: 10 });
    client.track("before");
    fillDisk(context, room);
    for (let place = 0; place < 100; place += 1) client.track(`event ${place}`);
    assert.equal(filesIn(folder).length, 1);
    assert.equal(fs.readFileSync(join(folder, filesIn(folder)[0]!), "utf8").split("\n").length, 2);
    assert.equal(platform.warnings.filter((text) => text.includes("in memory alone")).length, 1);
    await platform.pass(60_000);
    assert.equal(client.stats.accepted + dropped.length, 101);
    assert.equal(client.stats.accepted, 50);
    assert.deepEqual(filesIn(folder), []);
  });
}
