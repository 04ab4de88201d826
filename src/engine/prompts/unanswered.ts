import { fieldsOf, isCount } from "../../util/checks.js";
import { createHash, randomUUID } from "node:crypto";
import type { TokenCount } from "../paid-engine.js";

/** Requests, and the most tokens that they may take. */
export interface RequestSum extends TokenCount {
  readonly requests: number;
}

export type MutableRequestSum = { -readonly [K in keyof RequestSum]: RequestSum[K] };

export function noRequests(): MutableRequestSum {
  return { requests: 0, prompt: 0, cached: 0, completion: 0 };
}

/** Adds requests to a sum, or with a sign of -1 takes them from it. */
export function addRequests(sum: MutableRequestSum, more: RequestSum, sign: 1 | -1 = 1): void {
  sum.requests += sign * more.requests;
  sum.prompt += sign * more.prompt;
  sum.cached += sign * more.cached;
  sum.completion += sign * more.completion;
}

/** A key of the journal that no request of a row has. */
export function ofNoRow(): string {
  return createHash("sha256").update(`no row ${randomUUID()}`).digest("hex");
}

/** A request whose answer was lost, as the journal has it: its worst case may have been paid for. */
export function lostText({ prompt, cached, completion }: TokenCount, worker: number): string {
  return JSON.stringify({ lost: [prompt, cached, completion], ...(worker === 0 ? {} : { worker }) });
}

/** How many requests an attempt may have sent, and how many of them are over, as the journal has it. */
export interface SentRecord {
  readonly attempt: string;
  /** Counts the records of the attempt: the last one holds. */
  readonly number: number;
  readonly worker: number;
  readonly sent: RequestSum;
  readonly ended: RequestSum;
}

export function sentText({ attempt, number, worker, sent, ended }: SentRecord): string {
  return JSON.stringify({
    sent: [sent.requests, sent.prompt, sent.completion],
    ended: [ended.requests, ended.prompt, ended.completion],
    attempt,
    number,
    ...(worker === 0 ? {} : { worker }),
  });
}

/** Requests of a run without a stored answer: those that were lost, and those that were under way at a kill. */
export interface Unanswered {
  /** Adds what a record of the journal says of them. Ignores other records. */
  add(this: void, text: string): void;
  /** The requests of all workers, or of one. */
  sum(worker?: number): RequestSum;
  /** How many requests a worker has sent one by one. */
  sentBy(worker: number): number;
}

export function createUnanswered(): Unanswered {
  const lost = new Map<number, MutableRequestSum>();
  const sent = new Map<string, SentRecord>();
  return {
    add(text) {
      const json = parsedFields(text);
      const worker = isCount(json["worker"]) ? json["worker"] : 0;
      const [tokens, record] = [countsIn(json["lost"]), sentIn(json, worker)];
      if (tokens !== undefined) {
        const [prompt, cached, completion] = tokens;
        const own = lost.get(worker) ?? noRequests();
        addRequests(own, { requests: 1, prompt, cached, completion });
        lost.set(worker, own);
      }
      if (record !== undefined && record.number > (sent.get(record.attempt)?.number ?? 0)) {
        sent.set(record.attempt, record);
      }
    },
    sum(worker) {
      const sum = noRequests();
      for (const [of, one] of lost) {
        addRequests(sum, worker === undefined || of === worker ? one : noRequests());
      }
      for (const one of sent.values()) {
        if (worker === undefined || one.worker === worker) {
          addRequests(sum, one.sent);
          addRequests(sum, one.ended, -1);
        }
      }
      return sum;
    },
    sentBy: (worker) =>
      [...sent.values()].reduce((sum, one) => sum + (one.worker === worker ? one.sent.requests : 0), 0),
  };
}

function sentIn(json: Json, worker: number): SentRecord | undefined {
  const { attempt, number } = json;
  const [sent, ended] = [countsIn(json["sent"]), countsIn(json["ended"])];
  return typeof attempt === "string" && isCount(number) && sent !== undefined && ended !== undefined
    ? { attempt, number, worker, sent: requestsOf(sent), ended: requestsOf(ended) }
    : undefined;
}

type Counts = readonly [number, number, number];

function requestsOf([requests, prompt, completion]: Counts): RequestSum {
  return { requests, prompt, cached: 0, completion };
}

function countsIn(value: unknown): Counts | undefined {
  const [one, two, three]: unknown[] = Array.isArray(value) ? value : [];
  return isCount(one) && isCount(two) && isCount(three) ? [one, two, three] : undefined;
}

type Json = Readonly<Record<string, unknown>>;

function parsedFields(text: string): Json {
  try {
    return fieldsOf(JSON.parse(text));
  } catch {
    return {};
  }
}
