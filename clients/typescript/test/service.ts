/** A real service, and a proxy in front of it that fails as networks and services do. */

import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import * as fs from "node:fs";
import * as http from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";

export const PATIENCE = 240_000;
const MAUVE = process.env["MAUVE_COMMAND"] ?? fileURLToPath(new URL("../../../../.venv/bin/mauve", import.meta.url));
/** The Python that the service runs with. */
export const PYTHON = join(dirname(MAUVE), "python");

export class Service {
  private constructor(
    private readonly process: ChildProcess,
    private readonly folder: string,
    readonly url: string,
    readonly key: string,
  ) {}

  static async start(): Promise<Service> {
    if (!fs.existsSync(MAUVE)) throw new Error(`${MAUVE} does not exist: run make setup, or set MAUVE_COMMAND`);
    const folder = fs.mkdtempSync(join(tmpdir(), "mauve-client-"));
    const data = join(folder, "data");
    const env = { ...process.env, MAUVE_READ_CACHE_SECONDS: "0", MAUVE_INGEST_FLUSH_SECONDS: "0.4" };
    const options = ["serve", "--data", data, "--port", "0", "--ingest-port", "0", "--workers", "1", "--json"];
    const child = spawn(MAUVE, options, { env, stdio: ["ignore", "pipe", "ignore"] });
    const line = await new Promise<string>((found) => createInterface(child.stdout!).once("line", found));
    const { url } = JSON.parse(line) as { url: string };
    const command = (...words: string[]) =>
      JSON.parse(execFileSync(MAUVE, [...words, "--data", data, "--json"], { encoding: "utf8" })) as Record<string, string>;
    command("org", "create", "Acme");
    const app = command("app", "create", "My app");
    return new Service(child, folder, url, app["sk_key"]!);
  }

  async stop(): Promise<void> {
    const ended = new Promise((resolved) => this.process.once("exit", resolved));
    this.process.kill("SIGTERM");
    await ended;
    fs.rmSync(this.folder, { recursive: true });
  }

  /** Return the sum of a column of a metric. */
  async sum(metric: string, column: string, query = ""): Promise<number> {
    const headers = { authorization: `Bearer ${this.key}` };
    const response = await fetch(`${this.url}/v1/metrics/${metric}${query}`, { headers });
    const { data = [] } = (await response.json()) as { data?: Record<string, number>[] };
    return data.reduce((sum, row) => sum + row[column]!, 0);
  }
}

export async function eventually(check: () => Promise<boolean>): Promise<void> {
  for (const endsAt = Date.now() + PATIENCE; Date.now() < endsAt; ) {
    if (await check()) return;
    await new Promise((resolved) => setTimeout(resolved, 100));
  }
  throw new Error("the condition was not met in time");
}

export function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Answers that lead to a loss, which the proxy gives only for items that the service cannot have. */
const DROPPING = [400, 403, 415, 422];
const WAITING = [200, 204, 301, 401, 402, 404, 413, 429, 500, 502, 503, 504];
const CAPPED = JSON.stringify({ ok: false, error: "cap", code: "event_cap_reached", cap_events: 1, resets_at: 0 });

export class Proxy {
  /** While true every request is passed on. */
  isCalm = false;
  requests = 0;
  /** The ids that the service accepted, whether or not the client got the answer. */
  readonly stored = new Set<string>();
  readonly #maybeStored = new Set<string>();
  readonly #server: http.Server;

  constructor(
    private readonly target: string,
    private readonly random: () => number,
  ) {
    this.#server = http.createServer((request, response) => {
      const chunks: Buffer[] = [];
      request.on("error", () => undefined);
      request.on("data", (chunk: Buffer) => chunks.push(chunk));
      request.on("end", () => void this.#answer(request, Buffer.concat(chunks), response));
    });
  }

  async start(): Promise<string> {
    await new Promise<void>((resolved) => this.#server.listen(0, "127.0.0.1", resolved));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  stop(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  async #answer(request: http.IncomingMessage, body: Buffer, response: http.ServerResponse): Promise<void> {
    this.requests += 1;
    const chance = this.isCalm ? 1 : this.random();
    if (chance < 0.1) return void response.destroy();
    if (chance < 0.25) return this.#passOn(request, body, response, true);
    if (chance < 0.35) return respond(response, 403, CAPPED);
    if (chance < 0.5) return respond(response, pick(WAITING, this.random), '{"ok":false,"error":"wait"}');
    const dropping = pick(DROPPING, this.random);
    if (chance < 0.6 && !this.#mayBeStored(request, body)) return respond(response, dropping, '{"ok":false,"error":"never"}');
    if (chance < 0.7) await new Promise((resolved) => setTimeout(resolved, 300 * this.random()));
    return this.#passOn(request, body, response, false);
  }

  /** Pass a request on, and cut the connection instead of the answer if `isCut`. */
  async #passOn(request: http.IncomingMessage, body: Buffer, response: http.ServerResponse, isCut: boolean): Promise<void> {
    const ids = idsOf(request, body);
    for (const id of ids) this.#maybeStored.add(id);
    const { authorization, "content-type": type, "content-encoding": encoding } = request.headers;
    const headers = { authorization: authorization!, "content-type": type!, ...(encoding ? { "content-encoding": encoding } : {}) };
    try {
      const answer = await fetch(this.target + request.url, { method: "POST", headers, body: new Uint8Array(body) });
      const text = await answer.text();
      if (answer.status === 202) for (const id of ids) this.stored.add(id);
      if (isCut) response.destroy();
      else respond(response, answer.status, text);
    } catch {
      response.destroy();
    }
  }

  #mayBeStored(request: http.IncomingMessage, body: Buffer): boolean {
    return idsOf(request, body).some((id) => this.#maybeStored.has(id));
  }
}

function idsOf(request: http.IncomingMessage, body: Buffer): string[] {
  const text = request.headers["content-encoding"] === "gzip" ? gunzipSync(body) : body;
  return (JSON.parse(text.toString()) as { id: string }[]).map((item) => item.id);
}

function respond(response: http.ServerResponse, status: number, body: string): void {
  response.writeHead(status, { "content-type": "application/json" }).end(status === 204 ? undefined : body);
}

function pick<Value>(values: readonly Value[], random: () => number): Value {
  return values[Math.floor(random() * values.length)]!;
}
