/** Random schedules against the real service: whatever fails on the way, the counts are exact. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomInt, randomUUID } from "node:crypto";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { gzip } from "node:zlib";

import { Client } from "../src/client.js";
import { post } from "../src/http.js";
import type { Platform } from "../src/platform.js";
import { eventually, PATIENCE, Proxy, randomFrom, Service } from "./service.js";

const SCHEDULES = Number(process.env["MAUVE_SCHEDULES"] ?? 8);
const SEED = Number(process.env["MAUVE_SEED"] ?? randomInt(2 ** 31));
const KILLS = Number(process.env["MAUVE_KILLS"] ?? 3);
const FASTER = 50;
const compress = promisify(gzip);

let service: Service;
before(async () => {
  service = await Service.start();
});
after(() => service.stop());

/** The platform of Node, with holds that pass faster. */
function fastPlatform(random: () => number): Platform {
  return {
    now: () => Date.now(),
    random,
    newId: () => randomUUID(),
    setTimer(run, delay, keepsAlive) {
      const timer = setTimeout(run, keepsAlive ? delay : delay / FASTER);
      return () => clearTimeout(timer);
    },
    post: (request) => post(request, compress),
    warn: () => undefined,
  };
}

for (let place = 0; place < SCHEDULES; place += 1) {
  const seed = SEED + place;
  test(`the counts of a random schedule are exact, seed ${seed}`, { timeout: 2 * PATIENCE }, async () => {
    const random = randomFrom(seed);
    const proxy = new Proxy(service.url, random);
    const url = await proxy.start();
    const name = `event ${seed}`;
    const ended = { events: [] as string[], payments: [] as string[], objects: [] as string[] };
    const onDrop = (item: Readonly<Record<string, unknown>>) => {
      ended[item["type"] ? "objects" : item["name"] === "payment" ? "payments" : "events"].push(String(item["id"]));
    };
    const revenue = await service.sum("revenue", "revenue");
    const mrr = await service.sum("mrr", "mrr");
    const client = new Client({ key: service.key, url, batchSize: 20, maxQueue: 150, onDrop }, fastPlatform(random));
    const calls = { events: 0, payments: 0, objects: 0 };
    for (let call = 0; call < 300; call += 1) {
      const chance = random();
      if (chance < 0.7) calls.events += (client.track(name, { user: `user ${call}` }), 1);
      else if (chance < 0.9) calls.payments += (client.payment({ id: `${seed}-${call}`, amount: 1, currency: "eur" }), 1);
      else calls.objects += (client.subscription({ id: `${seed}-${call}`, status: "active", mrr: 1, currency: "eur" }), 1);
      if (random() < 0.1) await new Promise((resolved) => setTimeout(resolved, 100 * random()));
    }
    await client.flush(2000);
    proxy.isCalm = true;
    assert.equal(await client.close(PATIENCE), true);
    proxy.stop();
    const { accepted, rejected, dropped, expired, queued } = client.stats;
    assert.deepEqual([accepted + dropped, rejected, expired, queued], [300, 0, 0, 0]);
    assert.equal(ended.events.length + ended.payments.length + ended.objects.length, dropped);
    const query = `?name=${encodeURIComponent(name)}`;
    // The queue may drop an item that the service has, if the answer was cut off. The client cannot know; the proxy does.
    const lost = (ids: string[]) => ids.filter((id) => !proxy.stored.has(id)).length;
    const expected = [
      calls.events - lost(ended.events), calls.payments - lost(ended.payments), calls.objects - lost(ended.objects),
    ];
    assert.equal(proxy.stored.size, expected.reduce((sum, count) => sum + count));
    let found: number[] = [];
    await eventually(async () => {
      found = [
        await service.sum("event_count", "count", query),
        (await service.sum("revenue", "revenue")) - revenue,
        (await service.sum("mrr", "mrr")) - mrr,
      ];
      return found[0]! >= expected[0]! && found[1]! >= expected[1]! && found[2]! >= expected[2]!;
    });
    assert.deepEqual(found, expected);
  });
}

const SENDER = `
import { Mauve } from ${JSON.stringify(new URL("../src/node.js", import.meta.url).href)};
const [url, key, spool, name, count] = process.argv.slice(1);
const mauve = new Mauve({ url, key, spool, flushInterval: 5, batchSize: 20, maxQueue: 50, timeout: 60_000 });
for (let call = 0; call < Number(count); call += 1) {
  mauve.track(name);
  process.stdout.write(call + "\\n");
  if (call % 7 === 0) await new Promise((resolved) => setTimeout(resolved, 1));
}
await mauve.close(60_000);
process.stdout.write(JSON.stringify(mauve.stats) + "\\n");
`;

function startSender(url: string, spool: string, name: string, count: number) {
  const words = ["--input-type=module", "-e", SENDER, url, service.key, spool, name, String(count)];
  const child = spawn(process.execPath, words, { stdio: ["ignore", "pipe", "inherit"] });
  const lines: string[] = [];
  createInterface(child.stdout).on("line", (line) => lines.push(line));
  return { child, lines, ended: new Promise((resolved) => child.once("close", resolved)) };
}

test(`a process killed with -9 loses nothing that was spooled, seed ${SEED}`, { timeout: 2 * PATIENCE }, async () => {
  const random = randomFrom(SEED);
  const spool = fs.mkdtempSync(join(tmpdir(), "mauve-spool-"));
  const proxy = new Proxy(service.url, random);
  proxy.isCalm = true;
  const url = await proxy.start();
  const name = `killed ${SEED}`;
  let called = 0;
  for (let kill = 0; kill < KILLS; kill += 1) {
    const sender = startSender(url, spool, name, 1_000_000);
    const until = 50 + 500 * random();
    await eventually(async () => sender.lines.length > until);
    sender.child.kill("SIGKILL");
    await sender.ended;
    called += sender.lines.length;
  }
  const last = startSender(url, spool, name, 1);
  await last.ended;
  called += 1;
  proxy.stop();
  const count = () => service.sum("event_count", "count", `?name=${encodeURIComponent(name)}`);
  await eventually(async () => (await count()) >= called);
  // The kill may come between a call and its line.
  assert.ok((await count()) <= called + KILLS, `${await count()} of ${called}`);
  const left = fs.readdirSync(spool, { recursive: true, encoding: "utf8" }) as string[];
  assert.deepEqual(left.filter((path) => path.endsWith(".items")), []);
  fs.rmSync(spool, { recursive: true });
});

test("a process that ends by itself delivers what is queued, and is not kept alive longer than the limit", async () => {
  const name = `exit ${SEED}`;
  const run = async (url: string, timeout: number) => {
    const program = `
      import { Mauve } from ${JSON.stringify(new URL("../src/node.js", import.meta.url).href)};
      const mauve = new Mauve({ url: ${JSON.stringify(url)}, key: ${JSON.stringify(service.key)}, timeout: ${timeout},
        onDrop: (item) => console.log("dropped", item.name) });
      mauve.track(${JSON.stringify(name)});`;
    const child = spawn(process.execPath, ["--input-type=module", "-e", program], { stdio: ["ignore", "pipe", "ignore"] });
    const lines: string[] = [];
    createInterface(child.stdout).on("line", (line) => lines.push(line));
    const code = await new Promise((resolved) => child.once("close", resolved));
    return { code, lines };
  };
  assert.deepEqual(await run(service.url, 60_000), { code: 0, lines: [] });
  await eventually(async () => (await service.sum("event_count", "count", `?name=${encodeURIComponent(name)}`)) === 1);
  assert.deepEqual(await run("http://127.0.0.1:9", 1500), { code: 0, lines: [`dropped ${name}`] });
});
