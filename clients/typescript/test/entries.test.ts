import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { webcrypto } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";

import { Mauve as EdgeMauve } from "../src/edge.js";
import { Mauve } from "../src/node.js";

if (!("crypto" in globalThis)) Object.assign(globalThis, { crypto: webcrypto }); // Edge runtimes have it; Node 18 does not.

interface Received {
  readonly headers: IncomingMessage["headers"];
  readonly items: Record<string, unknown>[];
}

async function withService(run: (url: string, received: Received[]) => Promise<void>): Promise<void> {
  const received: Received[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const body = Buffer.concat(chunks);
      const text = request.headers["content-encoding"] === "gzip" ? gunzipSync(body) : body;
      received.push({ headers: request.headers, items: JSON.parse(text.toString()) as Received["items"] });
      response.writeHead(202, { "content-type": "application/json" }).end('{"ok":true,"accepted":1,"rejected":0}');
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    await run(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, received);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

test("on the edge, waitUntil gets one promise for the calls of a turn, which settles once they were answered", async () => {
  await withService(async (url, received) => {
    const promises: Promise<unknown>[] = [];
    const mauve = new EdgeMauve({ key: "sk_live_test", url, waitUntil: (promise) => promises.push(promise) });
    mauve.track("one");
    mauve.signup({ user: "ann" });
    mauve.payment({ id: "invoice-1", amount: 5, currency: "eur" });
    assert.equal(promises.length, 1);
    assert.deepEqual(await Promise.all(promises), [true]);
    assert.deepEqual(received.map(({ items }) => items.map((item) => item["name"])), [["one", "user_signup", "payment"]]);
    mauve.track("two");
    assert.equal(promises.length, 2);
    await promises[1];
    assert.equal(mauve.stats.accepted, 4);
  });
});

test("on the edge, what could not be delivered is dropped before waitUntil settles, and the client goes on", async () => {
  const dropped: unknown[] = [];
  const promises: Promise<unknown>[] = [];
  const waitUntil = (promise: Promise<unknown>) => promises.push(promise);
  const onDrop = (item: Readonly<Record<string, unknown>>) => dropped.push(item["name"]);
  const answers = [503];
  const server = createServer((request, response) => {
    const status = answers.shift();
    if (status !== undefined) request.resume().on("end", () => response.writeHead(status, { "retry-after": "1" }).end());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const mauve = new EdgeMauve({ key: "sk_live_test", url, timeout: 3000, onDrop, waitUntil });
  mauve.track("one"); // It is answered 503, then never: a request is in flight when the time is over.
  assert.deepEqual(await Promise.all(promises), [false]);
  assert.deepEqual([dropped, mauve.stats.queued, mauve.stats.dropped], [["one"], 0, 1]);
  answers.push(202);
  mauve.track("two");
  assert.deepEqual(await Promise.all(promises), [false, true]);
  assert.equal(mauve.stats.accepted, 1);
  server.closeAllConnections();
  server.close();
});

const ENDINGS = ["process.exit()", "throw new Error('mine')", "await mauve.close(0)", "mauve.track('sent'), await mauve.flush()"];

test("a process that ends with items in memory says how many, once", () => {
  const program = (spool: string, ending: string) => `
    import { Mauve } from ${JSON.stringify(new URL("../src/node.js", import.meta.url).href)};
    globalThis.fetch = async () => new Response("{}", { status: 202 });
    const mauve = new Mauve({ key: "sk_live_test", url: "http://127.0.0.1:1", ${spool} });
    new Mauve({ key: "sk_live_test", url: "http://127.0.0.1:1" });
    for (const name of ["one", "two"]) mauve.track(name);
    ${ending};`;
  const folder = mkdtempSync(join(tmpdir(), "mauve-exit-"));
  const loggedBy = (spool: string, ending: string) => {
    const { stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", program(spool, ending)], { encoding: "utf8" });
    return stderr.split("\n").filter((text) => text.startsWith("mauve: the process has ended"));
  };
  for (const [place, ending] of ENDINGS.entries()) {
    const logged = loggedBy("", ending);
    assert.equal(logged.length, place < 2 ? 1 : 0, ending);
    if (place < 2) assert.match(logged[0]!, /not delivered: 2\./);
  }
  assert.deepEqual(loggedBy(`spool: ${JSON.stringify(folder)}`, "process.exit()"), []);
  rmSync(folder, { recursive: true });
});

const DROPPED_CLIENTS = `
import { Mauve } from ${JSON.stringify(new URL("../src/node.js", import.meta.url).href)};
import * as fs from "node:fs";
let received = 0;
globalThis.fetch = async (url, { body }) => (received += JSON.parse(body).length, new Response('{"ok":true}', { status: 202 }));
const spool = process.argv[1];
const clients = [];
function use(options) {
  const mauve = new Mauve({ key: "sk_live_test", url: "http://127.0.0.1:1", flushInterval: 1, ...options, onDrop: () => mauve.stats });
  mauve.track("one");
  clients.push(new WeakRef(mauve));
}
for (let place = 0; place < 20; place += 1) use(place % 2 ? { spool } : {});
const isOver = () => received === 20 && clients.every((each) => !each.deref()) && fs.readdirSync(spool).length === 0;
for (let turn = 0; turn < 1200 && !isOver(); turn += 1) {
  await new Promise((resolved) => setTimeout(resolved, 50));
  globalThis.gc();
}
console.log(JSON.stringify([received, clients.filter((each) => each.deref()).length, fs.readdirSync(spool).length]));
`;

test("a client that the application drops delivers what is queued, then is not held, and leaves its spool", () => {
  const folder = mkdtempSync(join(tmpdir(), "mauve-dropped-"));
  const words = ["--expose-gc", "--input-type=module", "-e", DROPPED_CLIENTS, folder];
  const { stdout, stderr } = spawnSync(process.execPath, words, { encoding: "utf8" });
  assert.deepEqual([stdout, stderr], ["[20,0,0]\n", ""]);
  rmSync(folder, { recursive: true });
});

test("items that a process dropped are logged with their number before it ends", () => {
  for (const ending of ["", "process.exit()", "await mauve.close(0)"]) {
    const program = `
      import { Mauve } from ${JSON.stringify(new URL("../src/node.js", import.meta.url).href)};
      globalThis.fetch = async () => new Response('{"ok":true}', { status: 202 });
      const mauve = new Mauve({ key: "sk_live_test", url: "http://127.0.0.1:1", maxQueue: 1000 });
      for (let place = 0; place < 1500; place += 1) mauve.payment({ id: String(place), amount: 1, currency: "eur" });
      ${ending};`;
    const { stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", program], { encoding: "utf8" });
    assert.deepEqual(stderr.match(/dropped \d+ items/g)?.[0], "dropped 500 items", ending);
  }
});

test("an option that does not exist is named, with those that do", () => {
  const known = { key: "sk_live_test", url: "http://127.0.0.1:1" };
  const build = (Kind: unknown, ...given: unknown[]) => () => new (Kind as new (...given: unknown[]) => unknown)(...given);
  for (const name of ["flushIntervall", "flush_interval", "waitUntil"]) {
    const expected = new RegExp(`^TypeError: ${name} is not an option: .* flushInterval, .* spool, spoolMaxBytes$`);
    assert.throws(build(Mauve, { ...known, [name]: 5 }), expected);
  }
  assert.throws(build(EdgeMauve, { ...known, spool: "folder" }), /spool is not an option: .* waitUntil$/);
  assert.throws(build(EdgeMauve, { ...known, waitUntil: 5 }), /waitUntil must be a function/);
  assert.throws(build(Mauve, { ...known, onDrop: "5" }), /onDrop must be a function, not a string/);
  assert.throws(build(Mauve, { ...known, batchSize: 1000 }), /batchSize must be a number from 1 to 500/);
  for (const given of [[known.key, known.url], [null], [[known]]]) {
    assert.throws(build(Mauve, ...given), /TypeError: options must be an object with key, url, /);
  }
  assert.ok(build(EdgeMauve, { ...known, spool: undefined })());
});

test("spoolMaxBytes is a number of at least 1 MiB", () => {
  for (const spoolMaxBytes of [0, Number.NaN, "64MB" as unknown as number]) {
    assert.throws(() => new Mauve({ key: "sk_live_test", url: "http://127.0.0.1:1", spoolMaxBytes }), TypeError);
  }
});

test("bodies from 1 KB on are compressed, unless that is switched off", async () => {
  await withService(async (url, received) => {
    for (const options of [{}, { compress: false }]) {
      for (const Kind of [Mauve, EdgeMauve]) {
        const mauve = new Kind({ key: "sk_live_test", url, ...options });
        mauve.track("small");
        await mauve.flush();
        mauve.track("large", { props: { text: "ä".repeat(480) } }); // 1 KB in bytes, and less in characters
        await mauve.close();
      }
    }
    const encodings = received.map(({ headers }) => headers["content-encoding"]);
    assert.deepEqual(encodings, [undefined, "gzip", undefined, "gzip", ...Array<undefined>(4).fill(undefined)]);
    assert.equal(received[1]!.headers.authorization, "Bearer sk_live_test");
  });
});

test("the key and the address come from the environment", async () => {
  await withService(async (url, received) => {
    Object.assign(process.env, { MAUVE_KEY: "sk_live_environment", MAUVE_INGEST_URL: url });
    const mauve = new Mauve();
    mauve.track("one");
    assert.equal(await mauve.close(), true);
    assert.equal(received[0]!.headers.authorization, "Bearer sk_live_environment");
    delete process.env["MAUVE_KEY"];
    delete process.env["MAUVE_INGEST_URL"];
    assert.throws(() => new Mauve(), /key is missing/);
  });
});
