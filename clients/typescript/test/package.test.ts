/** The package as users get it: packed, installed into an empty folder, and used, also by the programs of its README. */

import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import * as fs from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { compile, providePlatforms, README, SERVER_PROGRAMS, writePrograms } from "./readme.js";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const QUIET = ["--silent", "--no-audit", "--no-fund", "--offline"];
const SERVED = fileURLToPath(new URL("../../../../src/mauve/web/static/mauve.js", import.meta.url));
const run = promisify(execFile);

const PROGRAM = `
import { Mauve } from "mauve-metrics";
import { Mauve as EdgeMauve } from "mauve-metrics/edge";
import { Mauve as PageMauve } from "mauve-metrics/browser";
const mauve = new Mauve({ key: "sk_live_test", url: process.argv[2] });
mauve.track("installed");
const isAnswered = await mauve.close();
console.log(JSON.stringify([isAnswered, mauve.stats.accepted, typeof EdgeMauve, typeof PageMauve]));
`;

let folder: string;
before(() => {
  folder = fs.mkdtempSync(join(tmpdir(), "mauve-package-"));
  execFileSync("npm", ["pack", "--silent", "--pack-destination", folder], { cwd: ROOT });
  const [tarball] = fs.readdirSync(folder);
  fs.writeFileSync(join(folder, "package.json"), '{"type":"module"}');
  execFileSync("npm", ["install", ...QUIET, `./${tarball}`], { cwd: folder });
});
after(() => fs.rmSync(folder, { recursive: true }));

/** A service that accepts everything, and the names of what it got. */
const names: unknown[] = [];
let url: string;
const server = createServer((request, response) => {
  const chunks: Buffer[] = [];
  request.on("data", (chunk: Buffer) => chunks.push(chunk));
  request.on("end", () => {
    const items = JSON.parse(Buffer.concat(chunks).toString()) as Record<string, unknown>[];
    names.push(...items.map(({ name, type }) => name ?? type));
    response.writeHead(202).end('{"ok":true}');
  });
});
before(async () => {
  await new Promise<void>((resolved) => server.listen(0, "127.0.0.1", resolved));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
after(() => server.close());

test("the package installs without anything else, and sends an event", async () => {
  assert.deepEqual(fs.readdirSync(join(folder, "node_modules")).filter((name) => !name.startsWith(".")), ["mauve-metrics"]);
  const installed = join(folder, "node_modules", "mauve-metrics");
  assert.ok(fs.readFileSync(join(installed, "dist", "mauve.js")).equals(fs.readFileSync(SERVED)), "as the service serves it");
  fs.writeFileSync(join(folder, "program.js"), PROGRAM);
  const { stdout } = await run(process.execPath, ["program.js", url], { cwd: folder });
  assert.deepEqual(JSON.parse(stdout), [true, 1, "function", "function"]);
  assert.deepEqual(names.splice(0), ["installed"]);
});

test("every program of the README compiles with the settings that it names, and those for servers deliver", async () => {
  providePlatforms(folder);
  const files = writePrograms(folder);
  for (const settings of ["NodeNext", "Bundler"] as const) assert.deepEqual(compile(folder, files, settings), []);
  const env = { ...process.env, MAUVE_KEY: "sk_live_test", MAUVE_INGEST_URL: url };
  const sent: unknown[] = [];
  for (const { place, call } of SERVER_PROGRAMS) {
    const script = `globalThis.crypto ??= (await import("node:crypto")).webcrypto; globalThis.kept = [];
      const program = await import("./program${place}.js"); ${call}; await Promise.all(kept);`;
    await run(process.execPath, ["--input-type=module", "-e", script], { cwd: folder, env });
    sent.push(names.splice(0).sort());
  }
  const all = ["payment", "report_opened", "subscription", "user_signup"];
  assert.deepEqual(sent, [all, ["payment"], ["report_opened"], ["page_opened"], ["page_opened"], ["page_opened"]]);
});

test("the tag of the README is the one that the dashboard shows", () => {
  const template = fs.readFileSync(join(ROOT, "../../src/mauve/dashboard/templates/snippets.html"), "utf8");
  const shown = /&lt;script src=.*?(?=\{%- endcall)/s.exec(template)![0];
  const plain = shown
    .replaceAll("&lt;", "<")
    .replaceAll("&quot;", '"')
    .replace("{{ context.ingest_url }}", "https://metrics.example.com")
    .replace(/\{\{ key if [^}]*\}\}/, "pk_live_…");
  assert.equal(plain, /^```html\n(.*?)^```$/ms.exec(README)![1]);
});

test("the package has the version of the service", () => {
  const { version } = JSON.parse(fs.readFileSync(join(ROOT, "package.json"), "utf8")) as { version: string };
  const project = fs.readFileSync(fileURLToPath(new URL("../../../../pyproject.toml", import.meta.url)), "utf8");
  assert.equal(version, /^version = "(.*)"$/m.exec(project)![1]);
});

test("neither the package nor its lock file names another host", () => {
  const lock = fs.readFileSync(join(ROOT, "package-lock.json"), "utf8");
  assert.doesNotMatch(lock, /https?:/);
  const { dependencies } = JSON.parse(fs.readFileSync(join(ROOT, "package.json"), "utf8")) as { dependencies?: unknown };
  assert.equal(dependencies, undefined);
});

test("no module imports itself, directly or through others", () => {
  const source = join(ROOT, "src");
  const importsOf = (name: string) =>
    [...fs.readFileSync(join(source, name), "utf8").matchAll(/from "\.\/([a-z_]+)\.js"/g)].map((match) => `${match[1]}.ts`);
  const modules = fs.readdirSync(source).filter((name) => name.endsWith(".ts") && !name.endsWith(".d.ts"));
  const cycles = modules.filter((start) => {
    const reached = new Set<string>();
    const follow = (name: string): void => {
      for (const next of importsOf(name)) if (!reached.has(next)) follow((reached.add(next), next));
    };
    follow(start);
    return reached.has(start);
  });
  assert.ok(modules.length > 10);
  assert.deepEqual(cycles, []);
});
