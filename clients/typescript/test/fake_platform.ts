/** A platform whose time, chance and network belong to the test. */

import type { Answer, NoAnswer } from "../src/answers.js";
import type { Platform, Post } from "../src/platform.js";

interface Timer {
  readonly at: number;
  readonly run: () => void;
}

export const START = Date.UTC(2026, 10, 16);

export class FakePlatform implements Platform {
  time = START;
  readonly posts: Post[] = [];
  readonly warnings: string[] = [];
  /** Of every timer. */
  readonly delays: number[] = [];
  /** What the service answers, in order; the last one stays. */
  answers: (Answer | NoAnswer | "never")[] = [accepted()];
  openSpool?: NonNullable<Platform["openSpool"]>;
  #timers = new Set<Timer>();
  #ids = 0;

  now(): number {
    return this.time;
  }

  random(): number {
    return 0.5;
  }

  newId(): string {
    this.#ids += 1;
    return `00000000-0000-4000-8000-${String(this.#ids).padStart(12, "0")}`;
  }

  setTimer(run: () => void, delay: number): () => void {
    const timer = { at: this.time + delay, run };
    this.delays.push(delay);
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  async post(request: Post): Promise<Answer | NoAnswer> {
    this.posts.push(request);
    const answer = this.answers.length > 1 ? this.answers.shift()! : this.answers[0]!;
    return answer === "never" ? new Promise(() => undefined) : answer;
  }

  warn(message: string): void {
    this.warnings.push(message);
  }

  /** Turn the clock, and run what becomes due on the way. */
  async pass(milliseconds: number): Promise<void> {
    const end = this.time + milliseconds;
    for (;;) {
      await settled();
      const due = [...this.#timers].filter((timer) => timer.at <= end).sort((one, other) => one.at - other.at)[0];
      if (due === undefined) break;
      this.time = Math.max(this.time, due.at);
      this.#timers.delete(due);
      due.run();
    }
    this.time = end;
  }

  /** Return the items of a request. */
  items(place: number): Record<string, unknown>[] {
    return JSON.parse(this.posts[place]!.body) as Record<string, unknown>[];
  }
}

/** Wait until everything that needs no timer has happened. */
export async function settled(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
}

export function accepted(errors: { index: number; reason: string }[] = []): Answer {
  const body = { ok: true, rejected: errors.length, ...(errors.length > 0 ? { errors } : {}) };
  return { status: 202, retryAfter: null, moved: 0, body: JSON.stringify(body) };
}

export function answer(status: number, body: object = { ok: false, error: "no" }, retryAfter: string | null = null): Answer {
  return { status, retryAfter, moved: 0, body: JSON.stringify(body) };
}
