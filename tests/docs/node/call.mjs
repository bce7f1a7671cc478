// Import a module and call what a platform would call: a route's POST, or the fetch of an edge function.
const { MAUVE_KEY, MAUVE_INGEST_URL } = process.env;
const module = await import(process.argv[2]);
const request = new Request("http://127.0.0.1/", { method: "POST" });
const waiting = [];

await module.POST?.(request);
const waitUntil = (promise) => waiting.push(promise);
await module.default?.fetch?.(request, { MAUVE_KEY, MAUVE_INGEST_URL }, { waitUntil });
await Promise.all(waiting);
