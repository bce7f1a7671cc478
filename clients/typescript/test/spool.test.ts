import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import * as fs from "node:fs";
import fsModule from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";

import { Client, type Options } from "../src/client.js";
import {
  isAbandoned, ownerOf, ownName, SILENT_AFTER, STALE_AFTER, startOf, thisProcess, type Owner,
} from "../src/owners.js";
import { itemOf, type SentItem } from "../src/items.js";
import { itemIn, itemLine, linesIn } from "../src/segments.js";
import { keyDigits, openSpool } from "../src/spool.js";
import { accepted, answer, FakePlatform, START } from "./fake_platform.js";

function folderFor(context: TestContext): string {
  const folder = fs.mkdtempSync(join(tmpdir(), "mauve-spool-"));
  context.after(() => fs.rmSync(folder, { recursive: true }));
  return folder;
}

const KEY = "sk_live_test";
const FIXTURES = new URL("../../../fixtures/spool/", import.meta.url);

function opened(folder: string, options: Options = {}, bytesMax = 1_000_000, self?: Owner) {
  const platform = new FakePlatform();
  const dropped: string[] = [];
  platform.openSpool = (kind, key, warn) => openSpool(folder, kind, key, bytesMax, warn, self);
  const onDrop = (item: Readonly<Record<string, unknown>>) => dropped.push(String(item["name"]));
  const client = new Client({ key: KEY, url: "http://localhost", onDrop, ...options }, platform);
  return { platform, client, dropped };
}

function filesIn(folder: string): string[] {
  const all = fs.readdirSync(folder, { recursive: true, encoding: "utf8" }) as string[];
  return all.filter((path) => /\.(items|done)$/.test(path));
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
  assert.match(platform.warnings.join(), /only in memory/);
  await platform.pass(1000);
  assert.equal(client.stats.accepted, 1);
});

interface Expected {
  readonly kind: "events" | "objects";
  readonly now: number;
  readonly sent: Record<string, unknown>[];
  readonly dropped: number;
  readonly expired: number;
}

for (const name of fs.readdirSync(FIXTURES).filter((each) => !each.includes("."))) {
  test(`the shared fixture ${name} is read as both libraries must`, async (context) => {
    const folder = folderFor(context);
    const source = new URL(`${name}/`, FIXTURES);
    const expected = JSON.parse(fs.readFileSync(new URL("expected.json", source), "utf8")) as Expected;
    const left = join(folder, `${keyDigits(KEY)}.${expected.kind}.released.000000000000`);
    fs.cpSync(source, left, { recursive: true, filter: (path) => !path.endsWith(".json") });
    const dropped: SentItem[] = [];
    const { client, platform } = opened(folder, { onDrop: (item) => void dropped.push(item) });
    platform.time = expected.now;
    await platform.pass(2000);
    const sent = platform.posts.flatMap((_, place) => platform.items(place));
    assert.deepEqual(sent.map(({ sent_at: _, ...item }) => item), expected.sent);
    const { accepted: taken, dropped: count, expired, queued } = client.stats;
    assert.deepEqual([taken, count, expired, queued], [expected.sent.length, expected.dropped, expected.expired, 0]);
    assert.equal(dropped.length, expected.dropped);
    assert.deepEqual(filesIn(folder), []);
    const aside = fs.readdirSync(folder).filter((path) => path.endsWith(".corrupt"));
    assert.equal(aside.length, expected.dropped);
    assert.equal(platform.warnings.filter((line) => line.includes(".corrupt")).length, expected.dropped);
  });
}

test("the name of a folder begins with the digits of its key", () => {
  const digits = JSON.parse(fs.readFileSync(new URL("keys.json", FIXTURES), "utf8")) as Record<string, string>;
  for (const [key, expected] of Object.entries(digits)) assert.equal(keyDigits(key), expected);
});

test("a line is the same after it was read and written again", () => {
  for (const name of ["two-segments", "objects"]) {
    const content = fs.readFileSync(new URL(`${name}/00000001.items`, FIXTURES));
    const items = [...linesIn(content)].map((each) => itemIn(each.content, "events")!);
    assert.deepEqual(Buffer.concat(items.map(itemLine)), content);
  }
});

test("what was queued with another key is never sent, but reported once", async (context) => {
  const folder = folderFor(context);
  const first = opened(folder, { key: "sk_test_first" });
  first.client.payment({ id: "test-payment", amount: 1, currency: "eur" });
  first.client.subscription({ id: "test-subscription", status: "active", mrr: 1, currency: "eur" });
  first.platform.answers = ["never"];
  const closed = first.client.close(0);
  await first.platform.pass(0);
  assert.equal(await closed, false);
  const second = opened(folder, { key: "sk_live_second" });
  second.client.track("own");
  await second.platform.pass(60_000);
  assert.deepEqual(names(second.platform), ["own"]);
  const lines = second.platform.warnings.filter((line) => line.includes("another key"));
  assert.equal(lines.length, 2);
  assert.ok(lines.every((line) => line.includes(`begins with ${keyDigits("sk_live_second")}`)));
  const third = opened(folder, { key: "sk_test_first" });
  await third.platform.pass(2000);
  assert.deepEqual(names(third.platform).sort(), ["payment", "test-subscription"]);
});

test("items whose file was cut off while it waited on disk are dropped and reported", async (context) => {
  const folder = folderFor(context);
  const { client, platform, dropped } = opened(folder, { maxQueue: 2 });
  platform.answers = [answer(503, {}, "5"), accepted()];
  for (let place = 0; place < 5; place += 1) client.track(`event ${place}`);
  const [path] = filesIn(folder).filter((each) => each.endsWith(".items"));
  const lines = fs.readFileSync(join(folder, path!), "utf8").split("\n");
  fs.writeFileSync(join(folder, path!), `${lines.slice(0, 3).join("\n")}\n`);
  await platform.pass(60_000);
  assert.deepEqual(counts(client), [0, 3]);
  assert.deepEqual([dropped.length, client.stats.dropped], [2, 2]);
});

test("a number that was cut off in the list of lines that are done is not joined with the next", async (context) => {
  const folder = folderFor(context);
  leave(folder, "released.000000000000", "00000001.items", [0, 1, 2, 3].map((place) => line(`event ${place}`)).join(""));
  leave(folder, "released.000000000000", "00000001.done", "0\n3");
  const first = opened(folder, { batchSize: 1 }); // It has sent the first item.
  first.platform.answers = ["never"];
  await first.platform.pass(2000);
  const closed = first.client.close(0);
  await first.platform.pass(0);
  await closed;
  const second = opened(folder);
  await second.platform.pass(2000);
  assert.deepEqual([names(first.platform)[0], names(second.platform)], ["event 1", ["event 2", "event 3"]]);
});

test("a full disk drops behavioral events before payments", async (context) => {
  const folder = folderFor(context);
  const paid: string[] = [];
  const onDrop = (item: SentItem) => void (item["name"] === "payment" && paid.push(String(item["id"])));
  const { client, platform } = opened(folder, { maxQueue: 20, onDrop }, 20_000);
  platform.answers = [answer(503)];
  for (let place = 0; place < 500; place += 1) {
    if (place % 10 === 0) client.payment({ id: `${place}`, amount: 1, currency: "eur" });
    else client.track(`event ${place}`);
  }
  assert.deepEqual(paid, []);
  assert.ok(client.stats.dropped > 300);
  assert.equal(client.stats.dropped + client.stats.queued, 500);
  for (let place = 0; place < 200; place += 1) client.payment({ id: `more ${place}`, amount: 1, currency: "eur" });
  assert.ok(paid.length > 0, "there is nothing else left");
  const before = paid.length;
  client.track("late");
  assert.equal(paid.length, before);
  platform.answers = [accepted()];
  await platform.pass(600_000);
  const { accepted: taken, dropped: count, queued } = client.stats;
  assert.deepEqual([taken + count, queued], [701, 0]);
  assert.deepEqual(filesIn(folder), []);
});

test("with a spool, there is room until the disk is full", async (context) => {
  const folder = folderFor(context);
  const { client, platform } = opened(folder, { maxQueue: 5 }, 150_000);
  platform.answers = [answer(402)];
  let count = 0;
  for (; count < 1000 && (await Promise.race([client.wait(1), platform.pass(1).then(() => false)])); count += 1) client.track("a");
  assert.ok(count > 20 && count < 1000, String(count));
  assert.equal(client.stats.dropped, 0);
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
  const old = START - 8 * 86_400_000;
  const events = Array.from({ length: 25 }, (_, place) => itemLine(itemOf("events", `{"name":"old ${place}"}`, old, true)));
  const payment = itemLine(itemOf("events", '{"name":"payment","id":"invoice-1"}', old, false));
  leave(folder, "released.000000000000", "00000001.items", `${events.join("")}${payment.toString()}${line("new")}`);
  const { client, platform } = opened(folder, { maxQueue: 10, batchSize: 5 });
  await platform.pass(10_000);
  assert.deepEqual(names(platform), ["payment", "new"]);
  assert.deepEqual([client.stats.expired, client.stats.queued], [25, 0]);
  assert.deepEqual(filesIn(folder), []);
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
  for (const name of fs.readdirSync(folder)) fs.utimesSync(join(folder, name), before, before);
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
const mauve = new Mauve({ key: "${KEY}", url: "http://127.0.0.1:1", spool: process.argv[1] });
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
  const left = join(folder, `${keyDigits(KEY)}.events.${name}`);
  fs.mkdirSync(left, { recursive: true });
  fs.writeFileSync(join(left, file), content);
}

function line(name: string, filler = ""): string {
  return itemLine(itemOf("events", JSON.stringify({ name, id: name, props: { filler } }), START, true)).toString();
}

test("what others left is adopted as room appears, and a new item drives out none of it", async (context) => {
  const folder = folderFor(context);
  for (let place = 0; place < 40; place += 1) {
    leave(folder, `released.00000000000${place % 4}`, `${place}.items`, line(`left ${place}`, "a".repeat(900)));
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
  leave(folder, "released.aaaaaaaaaaaa", "1.items", line("one"));
  fs.mkdirSync(join(folder, `${keyDigits(KEY)}.events.released.aaaaaaaaaaaa`, "0.items"));
  fs.writeFileSync(join(folder, `${keyDigits(KEY)}.events.released.bbbbbbbbbbbb`), "a file where a folder belongs");
  leave(folder, "released.cccccccccccc", "1.items", line("two"));
  const { platform } = opened(folder);
  await platform.pass(1000);
  assert.deepEqual(names(platform), ["one", "two"]);
});

test("a line that is too large to be sent is dropped with a reason, and the others are sent", async (context) => {
  const folder = folderFor(context);
  leave(folder, "released.aaaaaaaaaaaa", "1.items", line("huge", "a".repeat(1_000_000)) + line("one"));
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
    assert.equal(platform.warnings.filter((text) => text.includes("only in memory")).length, 1);
    await platform.pass(60_000);
    assert.equal(client.stats.accepted + dropped.length, 101);
    assert.equal(client.stats.accepted, 50);
    assert.deepEqual(filesIn(folder), []);
  });
}
