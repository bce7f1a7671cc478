/** A wrong address or key, over a real network: one line in the log says which address, why, and what to do. */

import assert from "node:assert/strict";
import { createServer, type RequestListener } from "node:http";
import { createServer as createTcpServer, type AddressInfo } from "node:net";
import { test, type TestContext } from "node:test";

import { Mauve } from "../src/node.js";
import { eventually } from "./service.js";

const KEY = "sk_live_secret";
const HTML = "<!doctype html><title>Welcome</title>";

async function listening(context: TestContext, answer: RequestListener): Promise<string> {
  const server = createServer((request, response) => {
    request.resume().on("end", () => answer(request, response));
  });
  await new Promise<void>((resolved) => server.listen(0, "127.0.0.1", resolved));
  context.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Return the address of a port that ends every connection. */
async function hangingUp(context: TestContext): Promise<string> {
  const server = createTcpServer((socket) => socket.on("error", () => undefined).once("data", () => socket.end()));
  await new Promise<void>((resolved) => server.listen(0, "127.0.0.1", resolved));
  context.after(() => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Return the address of a port on which nothing listens. */
async function closedPort(host: string): Promise<string> {
  const server = createServer();
  await new Promise<void>((resolved) => server.listen(0, "127.0.0.1", resolved));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolved) => server.close(resolved));
  return `http://${host}:${port}`;
}

/** Return the lines that an event and a subscription lead to, after two attempts or a drop of each. */
async function linesAbout(context: TestContext, url: string): Promise<string[]> {
  const lines: string[] = [];
  context.mock.method(console, "warn", (line: string) => lines.push(line));
  const mauve = new Mauve({ key: KEY, url, flushInterval: 1, timeout: 60_000 });
  mauve.track("one");
  mauve.subscription({ id: "sub-1", status: "active", mrr: 1, currency: "eur" });
  await eventually(async () => mauve.stats.retries >= 2 || mauve.stats.dropped === 2);
  const logged = lines.filter((line) => !/: dropped \d+ item/.test(line));
  await mauve.close(0);
  return logged;
}

const WRONG: Record<string, [(context: TestContext) => Promise<string>, RegExp]> = {
  "a closed port": [() => closedPort("127.0.0.1"), /no answer: .*ECONNREFUSED.* Check url, and that the service is running there\.$/],
  "a closed port of a host with two addresses": [() => closedPort("localhost"), /no answer: .*ECONNREFUSED.* Check url/],
  "TLS on a port without it": [
    async (context) => (await listening(context, (_, response) => response.end())).replace("http:", "https:"),
    /no answer: the port may not use TLS: check the port, or use http:\/\/ in url \(\w+\)\. Check url/,
  ],
  "TLS on a port that hangs up": [
    async (context) => (await hangingUp(context)).replace("http:", "https:"),
    /no answer: the port may not use TLS: check the port, or use http:\/\/ in url \(\w+\)\. Check url/,
  ],
  "an unknown host": [async () => "http://metrics.invalid", /no answer: .*metrics\.invalid.* Check url/],
  "a service without such a path": [
    (context) => listening(context, (_, response) => response.writeHead(404).end('{"error":{"code":"not_found"}}')),
    /404: no reason was given\. This is not an answer from Mauve: check that url/,
  ],
  "a web site": [
    (context) => listening(context, (_, response) => response.writeHead(200, { "content-type": "text/html" }).end(HTML)),
    /retried: .*200: no reason was given\. This is not an answer from Mauve/,
  ],
  "a proxy that refuses": [
    (context) => listening(context, (_, response) => response.writeHead(400, { "content-type": "text/html" }).end(HTML)),
    /dropped: .*400: no reason was given\. This is not an answer from Mauve/,
  ],
  "a wrong key": [
    (context) =>
      listening(context, (request, response) => {
        const error = `unauthorized: ${request.headers.authorization}`;
        response.writeHead(401).end(JSON.stringify({ ok: false, error }));
      }),
    /401: unauthorized: Bearer …\. Check key: .* dashboard/,
  ],
};

for (const [name, [open, expected]] of Object.entries(WRONG)) {
  test(`${name} is one line in the log, with the address and without the key`, async (context) => {
    const url = await open(context);
    const lines = await linesAbout(context, url);
    assert.equal(lines.length, 1, lines.join("\n"));
    assert.match(lines[0]!, expected);
    assert.ok(lines[0]!.includes(`${url}: `));
    assert.ok(!lines[0]!.includes(KEY));
  });
}
