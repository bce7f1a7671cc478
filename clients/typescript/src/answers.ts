/** Classify the answer to a batch: the whole table, as a pure function. */

export interface Answer {
  readonly status: number;
  readonly retryAfter: string | null;
  /** How many accepted items had a time that the service moved. */
  readonly moved: number;
  readonly body: string;
}

/** Takes the place of an answer if there was none. */
export interface NoAnswer {
  readonly error: string;
}

export type Outcome =
  /** Each item was accepted, or rejected with the reason at its index. */
  | { readonly action: "accept"; readonly rejected: ReadonlyMap<number, string> }
  /** No item can ever be accepted. A reason at an item's index overrides the common one. */
  | { readonly action: "drop"; readonly reason: string; readonly reasons: ReadonlyMap<number, string>; readonly advice?: string }
  /** The body was too large. */
  | { readonly action: "halve"; readonly reason: string }
  /** Keep the items, and retry after the delay. */
  | { readonly action: "wait"; readonly delay: number; readonly reason: string; readonly advice?: string };

/** Advice about failures that do not resolve automatically: a sentence for the log. */
const ADVICE = {
  reach: "Check url, and that the service is running there.",
  url: "This is not an answer from Mauve: check that url is its address.",
  cutOff: "Check the proxy in front of the service: it truncates answers.",
  key: "Check key: it may be mistyped, revoked or from another service. The dashboard lists and mints the keys of an app.",
  suspended: "The organization is suspended: the operator of the service can resume it.",
  capped: "The organization has reached its event cap: raise it in the dashboard, or wait for its reset.",
  failing: "The service or a proxy in front of it keeps failing: check its log.",
};

/** The inputs of the delay. */
export interface Attempt {
  /** The number of consecutive failures, including this one. */
  readonly failures: number;
  readonly now: number;
  /** From 0 to 1, to spread the retries of clients that failed simultaneously. */
  readonly random: number;
}

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const BACKOFF_MAX = 60 * SECOND;
const UNAUTHORIZED_MAX = 5 * MINUTE;
const SUSPENDED = 60 * SECOND;
const CAPPED_MAX = 10 * MINUTE;
const RETRY_AFTER_MAX = 60 * MINUTE;
/** A service that is restarting or busy fails a few times in a row. */
const ORDINARY_FAILURES = 4;
const REASON_CHARACTERS_MAX = 300;

export function classify(answer: Answer | NoAnswer, attempt: Attempt): Outcome {
  if ("error" in answer) return waitFor(backoff(attempt, BACKOFF_MAX), answer.error, ADVICE.reach);
  const body = parsed(answer.body);
  const isCutOff = body === undefined && answer.body.trimStart().startsWith("{"); // The list of rejected items may be missing.
  return classifyAnswer(answer, isCutOff, body ?? {}, attempt);
}

function classifyAnswer(answer: Answer, isCutOff: boolean, body: Record<string, unknown>, attempt: Attempt): Outcome {
  const { status } = answer;
  const reason = reasonOf(status, body);
  switch (status) {
    case 202:
      if (isCutOff) return waitFor(backoff(attempt, BACKOFF_MAX), "202: the answer was cut off", ADVICE.cutOff);
      return { action: "accept", rejected: reasonsIn(body) };
    case 400:
    case 415:
    case 422:
      return dropFor(reason, body);
    case 413:
      return { action: "halve", reason };
    case 401:
      return waitFor(backoff(attempt, UNAUTHORIZED_MAX), reason, ADVICE.key);
    case 402:
      return waitFor(SUSPENDED, reason, ADVICE.suspended);
    case 403:
      if (body["code"] !== "event_cap_reached") return dropFor(reason, body);
      return waitFor(untilReset(body["resets_at"], attempt), reason, ADVICE.capped);
    default:
      return waitFor(retryAfter(answer.retryAfter, attempt) ?? backoff(attempt, BACKOFF_MAX), reason, adviceOn(status, attempt));
  }
}

/** Return a random delay from 1 s to a bound that doubles with every failure. */
export function backoff({ failures, random }: Attempt, max: number): number {
  const bound = Math.min(max, SECOND * 2 ** Math.min(failures, 20));
  return SECOND + random * (bound - SECOND);
}

function waitFor(delay: number, reason: string, advice: string | undefined): Outcome {
  return { action: "wait", delay, reason, ...(advice === undefined ? {} : { advice }) };
}

function dropFor(reason: string, body: Record<string, unknown>): Outcome {
  return { action: "drop", reason, reasons: reasonsIn(body), ...("ok" in body ? {} : { advice: ADVICE.url }) };
}

/** Return advice about an answer that causes a retry; undefined while the failure is likely to be temporary. */
function adviceOn(status: number, { failures }: Attempt): string | undefined {
  if (status !== 429 && status < 500) return ADVICE.url;
  return failures > ORDINARY_FAILURES ? ADVICE.failing : undefined;
}

/** Return the reason for an answer as part of a log line. */
function reasonOf(status: number, { error }: Record<string, unknown>): string {
  const text = typeof error === "string" ? error : "no reason was given";
  return `${status}: ${text.replace(/\s+/g, " ").slice(0, REASON_CHARACTERS_MAX)}`;
}

/** Return the bounded wait until a cap resets. If the reset time has passed, the clocks differ. */
function untilReset(resetsAt: unknown, attempt: Attempt): number {
  if (typeof resetsAt !== "number" || !Number.isFinite(resetsAt)) return CAPPED_MAX;
  const delay = resetsAt - attempt.now;
  return delay > 0 ? clamped(delay, CAPPED_MAX) : backoff(attempt, BACKOFF_MAX);
}

/** Return the delay of a Retry-After header, given in seconds or as a future date; undefined if it has none. */
function retryAfter(header: string | null, { now }: Attempt): number | undefined {
  const text = header?.trim() ?? "";
  if (/^\d+$/.test(text)) return clamped(Number(text) * SECOND, RETRY_AFTER_MAX);
  const delay = /^[a-z]{3}/i.test(text) ? Date.parse(text) - now : NaN;
  return delay > 0 ? clamped(delay, RETRY_AFTER_MAX) : undefined;
}

function clamped(delay: number, max: number): number {
  return Math.min(max, Math.max(SECOND, delay));
}

/** Return the JSON object of a body, empty for other JSON values; undefined if the body is not JSON. */
function parsed(body: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(body);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return undefined;
  }
}

function reasonsIn(body: Record<string, unknown>): Map<number, string> {
  const errors = Array.isArray(body["errors"]) ? (body["errors"] as unknown[]) : [];
  const reasons = new Map<number, string>();
  for (const each of errors) {
    const { index, reason } = (each ?? {}) as { index?: unknown; reason?: unknown };
    if (typeof index === "number") reasons.set(index, typeof reason === "string" ? reason : "no reason was given");
  }
  return reasons;
}
