import { sha256Of } from "../../util/sha256.js";
import { randomUUID } from "node:crypto";
import { awaitedLater } from "../../util/promises.js";
import {
  type AnswerStore,
  type KeptAnswer,
  type LookAtPaid,
  type Price,
  type Spent,
  sumOfSpent,
  type TokenCount,
} from "../paid-engine.js";
import { keptText, type ModelAnswer, type PaidAnswer, parseKept } from "./answer.js";
import { createAnswerTexts } from "./answer-texts.js";

/** The answers of a run that this attempt knows: those that attempts have kept, and its own. */
export interface KeptAnswers extends Disposable {
  /** Answers that were kept before this attempt, and what they took. */
  readonly earlier: Spent;
  /** What a budget must count of earlier attempts: that, and the most that requests may have taken whose answers were lost. */
  readonly before: { readonly all: TokenCount; readonly byWorker: TokenCount };
  find(request: string): ModelAnswer | undefined;
  /** Adds an answer, whose write begins `flushMs` later, or when the write before has ended. */
  add(request: string, answer: ModelAnswer): void;
  /** Adds a request whose answer was lost, for the budgets of later attempts. @param worst the most that it may have taken */
  addLost(worst: TokenCount): void;
  /**
   * Counts all answers that are kept now. undefined: no answers are kept
   * @param own what this attempt paid for. If fewer are kept, another worker has finished the run and removed them
   */
  recount(own: Spent, onAnswer: (answer: ModelAnswer) => void): Promise<Spent | undefined>;
  /** Takes over what is kept. @param worker index of this worker; @param onAnswer called with each answer */
  begin(store: AnswerStore, worker: number, onAnswer: (answer: ModelAnswer) => void): Promise<void>;
  /** Makes all answers so far durable. @throws the error of the store, from then on in each call */
  keep(): Promise<void>;
  /** @throws the error of the store if answers could not be kept */
  requireKept(): void;
}

/** @param flushMs how long an answer waits before it is written; undefined: the store says it */
export function createKeptAnswers(flushMs?: number): KeptAnswers {
  const texts = createAnswerTexts();
  const earlier = nothingSpent();
  const before = { all: nothingSpent(), byWorker: nothingSpent() };
  /** undefined: a pipe keeps none. */
  let store: AnswerStore | undefined;
  let workerIndex = 0;
  let pending: KeptAnswer[] = [];
  let timer: NodeJS.Timeout | undefined;
  let lastWrite = Promise.resolve();
  /** Whether `lastWrite` has not begun. It writes all that is pending then: slow writes become large, not many. */
  let isQueued = false;
  let failure: { readonly error: unknown } | undefined;

  const write = async (to: AnswerStore): Promise<void> => {
    isQueued = false;
    const records = pending;
    pending = [];
    await (records.length === 0 ? undefined : to.keep(records));
  };

  const keep = (): Promise<void> => {
    clearTimeout(timer);
    timer = undefined;
    const to = store;
    if (to !== undefined && !isQueued) {
      isQueued = true;
      lastWrite = lastWrite.then(() => write(to)); // calls never overlap; after a failure each fails
      lastWrite.catch((error: unknown) => {
        failure ??= { error };
        pending = []; // no write follows
      });
    }
    return lastWrite;
  };

  const addRecord = (request: string, answer: string): void => {
    if (store !== undefined) {
      pending.push({ request, answer });
      timer ??= setTimeout(() => void awaitedLater(keep()), flushMs ?? store.pauseMs);
    }
  };

  return {
    earlier,
    before,
    keep,
    requireKept() {
      if (failure !== undefined) {
        throw failure.error;
      }
    },
    find(request) {
      const text = texts.get(request);
      return text === undefined ? undefined : parseKept(text);
    },
    add(request, answer) {
      const text = keptText(answer, workerIndex);
      texts.set(request, text);
      addRecord(request, text);
    },
    addLost(tokens) {
      addRecord(keyOfNoRow(), keptText({ ...emptyAnswer, finish: lostFinish, tokens }, workerIndex));
    },
    async recount(own, onAnswer) {
      await keep();
      if (store === undefined) {
        return undefined;
      }
      const kept = nothingSpent();
      for await (const { answer } of readKept(store.read())) {
        count(kept, answer);
        onAnswer(answer);
      }
      const known = sumOfSpent(own, earlier);
      return kept.answers < known.answers ? known : kept;
    },
    async begin(from, worker, onAnswer) {
      workerIndex = worker;
      for await (const { answer, request, text } of readKept(from.read())) {
        count(earlier, answer);
        addTokens(before.all, answer);
        addTokens(answer.worker === worker ? before.byWorker : nothingSpent(), answer);
        onAnswer(answer);
        texts.set(request, text);
      }
      store = from;
    },
    [Symbol.dispose]: () => texts[Symbol.dispose](),
  };
}

/** Adds up the answers that a run has kept. */
export function lookAtRun(price: Price | undefined): LookAtPaid {
  return async (kept) => {
    const sum = nothingSpent();
    for await (const { answer } of readKept(kept)) {
      count(sum, answer);
    }
    return { kept: sum, price };
  };
}

async function* readKept(
  kept: AsyncIterable<KeptAnswer>,
): AsyncGenerator<{ readonly request: string; readonly text: string; readonly answer: PaidAnswer }> {
  for await (const { request, answer: text } of kept) {
    const answer = parseKept(text);
    if (answer !== undefined) {
      yield { request, text, answer };
    }
  }
}

type Sum = { -readonly [K in keyof Spent]: Spent[K] };

/** No answers yet. */
export function nothingSpent(): Sum {
  return { answers: 0, prompt: 0, cached: 0, completion: 0 };
}

/** An answer that says nothing. */
export const emptyAnswer: ModelAnswer = {
  content: undefined,
  embedding: undefined,
  finish: null,
  isRefusal: false,
  model: undefined,
  tokens: undefined,
};

/** In the place of the reason why an answer ended: it never came. */
const lostFinish = "lost";

/** A key of the journal that no request of a row has. */
export function keyOfNoRow(): string {
  return sha256Of(`no row ${randomUUID()}`);
}

/** Adds an answer to a sum, unless it was lost. */
export function count(sum: Sum, answer: Pick<ModelAnswer, "tokens" | "finish">): void {
  if (answer.finish !== lostFinish) {
    sum.answers += 1;
    addTokens(sum, answer);
  }
}

function addTokens(sum: Sum, { tokens }: Pick<ModelAnswer, "tokens">): void {
  sum.prompt += tokens?.prompt ?? 0;
  sum.cached += tokens?.cached ?? 0;
  sum.completion += tokens?.completion ?? 0;
}
