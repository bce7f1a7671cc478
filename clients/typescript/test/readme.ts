/** The programs of the README, and what the platforms that they are for provide. */

import * as fs from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import ts from "typescript";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
export const README = fs.readFileSync(join(ROOT, "README.md"), "utf8");
const PROGRAMS = [...README.matchAll(/^```ts\n(.*?)^```$/gms)].map((match) => match[1]!);

/** The programs that need no web page, and how their platform calls them. */
export const SERVER_PROGRAMS = PROGRAMS.map((program, place) => ({ place, call: callOf(program) })).filter(
  ({ call }) => call !== undefined,
);

function callOf(program: string): string | undefined {
  if (program.includes("mauve-metrics/browser")) return undefined;
  if (program.includes("export async function handler")) return 'await program.handler({ user: "ann" })';
  if (program.includes("export function GET")) return "program.GET()";
  if (!program.includes("export default")) return "";
  const context = "{ waitUntil: (promise) => kept.push(promise) }";
  return `await program.default.fetch(new Request("https://example.com/path"), process.env, ${context})`;
}

/** Their code keeps the promises until the program ends; their types are what the README relies on. */
const PLATFORMS = {
  "@vercel/functions": {
    file: "index",
    code: "export const waitUntil = (promise) => void globalThis.kept.push(promise);",
    types: "export declare function waitUntil(promise: Promise<unknown>): void;",
  },
  next: {
    file: "server",
    code: "export const after = (promise) => void globalThis.kept.push(promise);",
    types: "export declare function after<Value>(task: Promise<Value> | (() => Value | Promise<Value>)): void;",
  },
};

export function providePlatforms(folder: string): void {
  for (const [name, { file, code, types }] of Object.entries(PLATFORMS)) {
    const home = join(folder, "node_modules", name);
    const exports = { [file === "index" ? "." : `./${file}`]: `./${file}.js` };
    fs.mkdirSync(home, { recursive: true });
    fs.writeFileSync(join(home, "package.json"), JSON.stringify({ name, type: "module", exports }));
    fs.writeFileSync(join(home, `${file}.js`), code);
    fs.writeFileSync(join(home, `${file}.d.ts`), types);
  }
}

/** Write the programs, with a key and an address from the environment instead of the examples. Return their paths. */
export function writePrograms(folder: string): string[] {
  const example = 'key: "sk_live_…", url: "https://ingest.example.com"';
  const given = "key: process.env.MAUVE_KEY, url: process.env.MAUVE_INGEST_URL";
  return PROGRAMS.map((program, place) => {
    const path = join(folder, `program${place}.ts`);
    fs.writeFileSync(path, program.replace(example, given));
    return path;
  });
}

const SETTINGS = {
  NodeNext: { module: ts.ModuleKind.NodeNext },
  Bundler: { module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler, noEmit: true },
};

/** Compile files next to themselves. Return what is wrong with them. */
export function compile(folder: string, files: readonly string[], settings: keyof typeof SETTINGS): string[] {
  const types = { types: ["node"], typeRoots: [join(ROOT, "node_modules/@types")], skipLibCheck: true };
  const common = { ...types, strict: true, target: ts.ScriptTarget.ES2022, rootDir: folder };
  const program = ts.createProgram(files, { ...common, ...SETTINGS[settings] });
  const problems = [...ts.getPreEmitDiagnostics(program), ...program.emit().diagnostics];
  return problems.map(({ file, messageText }) => `${file?.fileName}: ${ts.flattenDiagnosticMessageText(messageText, "\n")}`);
}
