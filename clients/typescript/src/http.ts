/** One request over `fetch`: with a time limit, a size limit on the answer, and no exceptions. */

import type { Answer, NoAnswer } from "./answers.js";
import type { Post } from "./platform.js";

export type Gzip = (text: string) => Promise<Uint8Array>;

const GZIP_BYTES_MIN = 1024;
const ANSWER_BYTES_MAX = 1024 * 1024;

export async function post(request: Post, gzip: Gzip | undefined): Promise<Answer | NoAnswer> {
  const timeout = new AbortController();
  const abort = () => timeout.abort();
  const timer = setTimeout(abort, request.timeout);
  request.signal.addEventListener("abort", abort, { once: true });
  try {
    return await exchange(request, gzip, timeout.signal);
  } catch (error) {
    return { error: timeout.signal.aborted ? `no answer within ${request.timeout} ms` : `no answer: ${causeOf(error)}` };
  } finally {
    clearTimeout(timer);
    request.signal.removeEventListener("abort", abort);
  }
}

async function exchange({ url, key, body, compress }: Post, gzip: Gzip | undefined, signal: AbortSignal): Promise<Answer> {
  const headers: Record<string, string> = { authorization: `Bearer ${key}`, "content-type": "application/json" };
  const compressed = gzip && compress && isAtLeast(body, GZIP_BYTES_MIN) ? await gzip(body) : undefined;
  if (compressed) headers["content-encoding"] = "gzip";
  const init = { method: "POST", headers, body: (compressed ?? body) as BodyInit, signal, redirect: "manual" as const };
  const response = await fetch(url, init);
  return {
    status: response.status,
    retryAfter: response.headers.get("retry-after"),
    moved: Number(response.headers.get("x-service-moved")) || 0,
    body: (await boundedText(response)).replaceAll(key, "…"), // It may be logged.
  };
}

/** A character takes at least one byte, so a long text need not be measured. */
function isAtLeast(text: string, bytes: number): boolean {
  return text.length >= bytes || new TextEncoder().encode(text).length >= bytes;
}

async function boundedText(response: Response): Promise<string> {
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  let text = "";
  let bytes = 0;
  for (;;) {
    const { done, value } = (await reader?.read()) ?? { done: true, value: undefined };
    if (done || value === undefined) return text + decoder.decode();
    bytes += value.byteLength;
    if (bytes > ANSWER_BYTES_MAX) {
      await reader?.cancel();
      return text;
    }
    text += decoder.decode(value, { stream: true });
  }
}

/** Return why `fetch` failed. A host with several addresses fails with a code and no message. */
function causeOf(error: unknown): string {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  const { message, code } = Object(cause) as { message?: unknown; code?: unknown };
  const text = String(message || code || cause).replace(/\s+/g, " ").trim();
  return isTlsFailure(text, code) ? `the port may not use TLS: check the port, or use http:// in url (${String(code)})` : text;
}

/** Return whether the TLS handshake failed. An untrusted certificate has other codes. */
function isTlsFailure(text: string, code: unknown): boolean {
  return String(code).startsWith("ERR_SSL_") || text.includes("before secure TLS connection");
}
