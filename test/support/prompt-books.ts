import { createHash } from "node:crypto";
import type { BilledRequest, Billed, PromptServer } from "./prompt-server.js";

/** A client that was killed. */
export interface PromptKill {
  /** Milliseconds of the wall clock, right after the client had ended. */
  readonly at: number;
  /** Keys of the answers that were at the target then. */
  readonly kept: ReadonlySet<string>;
}

/** What the answers of a run cost, by the books of the server, and which of them the client cannot know. */
export interface AuditedBooks {
  /** What the client knows of: answers that came whole, and were not lost in a kill. */
  readonly known: Omit<Billed, "cost">;
  /** Answers whose connection was cut, or whose client was gone. */
  readonly undelivered: number;
  /** Answers that came whole, and were not durable when their client was killed; by kill, how long before it they came. */
  readonly unkept: readonly (readonly number[])[];
}

/** The key under which the `nth` known answer to a request is kept, from 1. */
function keyOf(request: string, nth: number): string {
  return nth === 1 ? request : createHash("sha256").update(`${request} ${nth}`).digest("hex");
}

/** Compares the books of a server with what was at the target at each kill, answer by answer. */
export async function auditBooks(server: PromptServer, kills: readonly PromptKill[]): Promise<AuditedBooks> {
  const known = { requests: 0, prompt_tokens: 0, cached_tokens: 0, completion_tokens: 0 };
  const unkept: number[][] = kills.map(() => []);
  let undelivered = 0;
  for (const one of await server.requests()) {
    for (const { outcome, kill, before } of outcomesOf(one, kills)) {
      if (outcome === "known") {
        known.requests += 1;
        known.prompt_tokens += one.usage.prompt_tokens;
        known.cached_tokens += one.usage.cached_tokens;
        known.completion_tokens += one.usage.completion_tokens;
      } else if (outcome === "undelivered") {
        undelivered += 1;
      } else {
        unkept[kill]?.push(before);
      }
    }
  }
  return { known, undelivered, unkept };
}

interface Outcome {
  readonly outcome: "known" | "undelivered" | "unkept";
  readonly kill: number;
  readonly before: number;
}

function outcomesOf({ request, times }: BilledRequest, kills: readonly PromptKill[]): Outcome[] {
  let nth = 1;
  return times.map(({ at, how }) => {
    const kill = kills.findIndex((one) => at <= one.at);
    const before = kill < 0 ? 0 : (kills[kill]?.at ?? 0) - at;
    if (how !== "whole") {
      return { outcome: "undelivered", kill, before };
    }
    if (kill >= 0 && kills[kill]?.kept.has(keyOf(request, nth)) === false) {
      return { outcome: "unkept", kill, before };
    }
    nth += 1;
    return { outcome: "known", kill, before };
  });
}
