import { awaitedLater } from "../../util/promises.js";
import { createHash, randomUUID } from "node:crypto";
import { type AnswerStore, type KeptAnswer, type Spent, sumOfSpent, type TokenCount } from "../paid-engine.js";
import { createAnswerTexts } from "./texts/answer-texts.js";
import { createKeySet, type KeySet } from "./texts/key-set.js";
import { keptText, lostText, type ModelAnswer, type PaidAnswer, parseKept, parseLost } from "./answer.js";

/** The answers of a run that this attempt knows: those that attempts have kept, and its own. */
export interface KeptAnswers extends Disposable {
  /** Answers that were kept before this attempt, and what they took. */
  readonly earlier: Spent;
  /** The part of it that this worker paid for. */
  readonly earlierByWorker: Spent;
  /** What requests without an answer may have taken, of all workers, and of this one: a budget counts it. */
  readonly earlierLost: { readonly all: TokenCount; readonly byWorker: TokenCount };
  find(request: string): ModelAnswer | undefined;
  has(request: string): boolean;
  /** Adds an answer, whose write begins `flushMs` later, or when the write before has ended. */
  add(request: string, answer: ModelAnswer): void;
  /** Adds an answer that another worker keeps. */
  borrow(request: string, answer: ModelAnswer): void;
  /** Adds a request whose answer was lost, for the budget of later attempts. @param worst what it may have taken */
  addLost(worst: TokenCount): void;
  /**
   * Counts all answers that are kept now, and those that were borrowed. undefined: no answers are kept
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
  const [earlier, earlierByWorker] = [nothingSpent(), nothingSpent()];
  const earlierLost = { all: nothingSpent(), byWorker: nothingSpent() };
  let index = 0;
  /** Requests whose answers another worker keeps, and what these took. */
  const borrowed = { requests: createKeySet(), sum: nothingSpent() };
  const writing = createWriting(flushMs);
  return {
    earlier,
    earlierByWorker,
    earlierLost,
    addLost(worst) {
      writing.add({ request: ofNoRow(), answer: lostText(worst, index) });
    },
    keep: writing.flush,
    requireKept: writing.requireKept,
    has: (request) => texts.get(request) !== undefined,
    find: (request) => parsed(texts.get(request)),
    add(request, answer) {
      const text = keptText(answer, index);
      texts.set(request, text);
      writing.add({ request, answer: text });
    },
    borrow(request, answer) {
      texts.set(request, keptText(answer, index));
      borrowed.requests.add(request);
      count(borrowed.sum, answer);
    },
    async recount(own, onAnswer) {
      await writing.flush();
      const { store } = writing;
      const others = store && (await countOthers(store, borrowed.requests, onAnswer));
      return others && sumOfSpent(mostOf(others, sumOfSpent(own, earlier)), borrowed.sum);
    },
    async begin(from, worker, onAnswer) {
      index = worker;
      const onOther = (text: string): void => countLost(earlierLost, text, worker);
      for await (const { answer, request, text } of readKept(from, onOther)) {
        count(earlier, answer);
        countOf(worker, earlierByWorker, answer);
        onAnswer(answer);
        texts.set(request, text);
      }
      writing.store = from;
    },
    [Symbol.dispose]: () => texts[Symbol.dispose](),
  };
}

function parsed(text: string | undefined): PaidAnswer | undefined {
  return text === undefined ? undefined : parseKept(text);
}

/** Writes answers to a store, some at a time. */
interface Writing {
  store: AnswerStore | undefined;
  add(answer: KeptAnswer): void;
  flush(this: void): Promise<void>;
  requireKept(this: void): void;
}

function createWriting(flushMs: number | undefined): Writing {
  let pending: KeptAnswer[] = [];
  let timer: NodeJS.Timeout | undefined;
  let last = Promise.resolve();
  /** Whether `last` has not begun. It writes all that is pending then: writes that are slow become large, not many. */
  let isQueued = false;
  let failure: { readonly error: unknown } | undefined;
  const flush = (): Promise<void> => {
    clearTimeout(timer);
    timer = undefined;
    const { store } = writing;
    if (store !== undefined && pending.length > 0 && !isQueued) {
      isQueued = true;
      // Calls never overlap; after a failure each fails.
      last = last.then(() => {
        isQueued = false;
        const answers = pending;
        pending = [];
        return store.keep(answers);
      });
      last.catch((error: unknown) => {
        failure ??= { error };
        pending = []; // no write follows
      });
    }
    return last;
  };
  const writing: Writing = {
    store: undefined,
    flush,
    add(answer) {
      if (writing.store === undefined) {
        return; // a pipe keeps none
      }
      pending.push(answer);
      timer ??= setTimeout(() => void awaitedLater(flush()), flushMs ?? writing.store.pauseMs);
    },
    requireKept() {
      if (failure !== undefined) {
        throw failure.error;
      }
    },
  };
  return writing;
}

/** Adds up the answers of a store that were not borrowed. */
async function countOthers(
  store: AnswerStore,
  borrowed: Pick<KeySet, "has">,
  onAnswer: (answer: ModelAnswer) => void,
): Promise<Sum> {
  const all = nothingSpent();
  for await (const { request, answer } of readKept(store)) {
    if (!borrowed.has(request)) {
      count(all, answer);
    }
    onAnswer(answer);
  }
  return all;
}

/** What is kept, or what is known, if that is more: what was kept may be removed by now. */
function mostOf(kept: Spent, known: Spent): Spent {
  return kept.answers < known.answers ? known : kept;
}

/** Adds an answer to the sum of a worker if that worker paid for it. */
function countOf(worker: number, sum: Sum, answer: PaidAnswer): void {
  if (answer.worker === worker) {
    count(sum, answer);
  }
}

/** Yields the answers of a store that can be read. @param onOther called with each other text */
export async function* readKept(
  store: Pick<AnswerStore, "read">,
  onOther?: (text: string) => void,
): AsyncGenerator<{ readonly request: string; readonly text: string; readonly answer: PaidAnswer }> {
  for await (const { request, answer: text } of store.read()) {
    const answer = parseKept(text);
    if (answer === undefined) {
      onOther?.(text);
    } else {
      yield { request, text, answer };
    }
  }
}

/** A key that no request of a row has. */
function ofNoRow(): string {
  return createHash("sha256").update(`no row ${randomUUID()}`).digest("hex");
}

/** Adds a request whose answer was lost to sums. */
function countLost(sums: { readonly all: Sum; readonly byWorker: Sum }, text: string, worker: number): void {
  const lost = parseLost(text);
  if (lost !== undefined) {
    count(sums.all, lost);
    if (lost.worker === worker) {
      count(sums.byWorker, lost);
    }
  }
}

type Sum = { -readonly [K in keyof Spent]: Spent[K] };

/** No answers yet. */
export function nothingSpent(): Sum {
  return { answers: 0, prompt: 0, cached: 0, completion: 0 };
}

/** Adds an answer to a sum. */
export function count(sum: Sum, { tokens }: Pick<ModelAnswer, "tokens">): void {
  sum.answers += 1;
  sum.prompt += tokens?.prompt ?? 0;
  sum.cached += tokens?.cached ?? 0;
  sum.completion += tokens?.completion ?? 0;
}
