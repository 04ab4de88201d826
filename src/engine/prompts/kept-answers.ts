import { awaitedLater } from "../../util/promises.js";
import type { AnswerStore, KeptAnswer, Spent } from "../paid.js";
import { keptText, type ModelAnswer, type PaidAnswer, parseKept } from "./answer.js";

/** The answers of a run that this attempt knows: those that attempts have kept, and its own. */
export interface KeptAnswers {
  /** Answers that were kept before this attempt, and what they took. */
  readonly earlier: Spent;
  /** The part of it that this worker paid for. */
  readonly earlierByWorker: Spent;
  find(request: string): ModelAnswer | undefined;
  /** Adds an answer, which is durable `flushMs` later at most. */
  add(request: string, answer: ModelAnswer): void;
  /** Counts all answers that are kept now. undefined: no answers are kept */
  recount(onAnswer: (answer: ModelAnswer) => void): Promise<Spent | undefined>;
  /** Takes over what is kept. @param worker index of this worker; @param onAnswer called with each answer */
  begin(store: AnswerStore, worker: number, onAnswer: (answer: ModelAnswer) => void): Promise<void>;
  /** Makes all answers so far durable. @throws the error of the store, from then on in each call */
  keep(): Promise<void>;
  /** @throws the error of the store if answers could not be kept */
  requireKept(): void;
}

/** @param flushMs after which an answer is durable */
export function createKeptAnswers(flushMs: number): KeptAnswers {
  /** Buffers, which are outside V8's heap: the vectors of a table may not fit into the heap. */
  const texts = new Map<string, Buffer>();
  const earlier = nothingSpent();
  const earlierByWorker = nothingSpent();
  let index = 0;
  const writing = createWriting(flushMs);
  return {
    earlier,
    earlierByWorker,
    keep: writing.flush,
    requireKept: writing.requireKept,
    find(request) {
      const text = texts.get(request);
      return text === undefined ? undefined : parseKept(text.toString("utf8"));
    },
    add(request, answer) {
      const text = keptText(answer, index);
      texts.set(request, Buffer.from(text, "utf8"));
      writing.add({ request, answer: text });
    },
    async recount(onAnswer) {
      const { store } = writing;
      if (store === undefined) {
        return undefined;
      }
      await writing.flush();
      return await countAll(store, onAnswer);
    },
    async begin(from, worker, onAnswer) {
      index = worker;
      for await (const { request, answer: text } of from.read()) {
        const answer = countText(earlier, text);
        if (answer !== undefined) {
          if (answer.worker === worker) {
            count(earlierByWorker, answer);
          }
          onAnswer(answer);
          texts.set(request, Buffer.from(text, "utf8"));
        }
      }
      writing.store = from;
    },
  };
}

/** Writes answers to a store, some at a time. */
interface Writing {
  store: AnswerStore | undefined;
  add(answer: KeptAnswer): void;
  flush(this: void): Promise<void>;
  requireKept(this: void): void;
}

function createWriting(flushMs: number): Writing {
  let pending: KeptAnswer[] = [];
  let timer: NodeJS.Timeout | undefined;
  let last = Promise.resolve();
  let failure: { readonly error: unknown } | undefined;
  const flush = (): Promise<void> => {
    clearTimeout(timer);
    timer = undefined;
    const [answers, { store }] = [pending, writing];
    if (store !== undefined && answers.length > 0) {
      pending = [];
      last = last.then(() => store.keep(answers)); // calls never overlap; after a failure each fails
      last.catch((error: unknown) => {
        failure ??= { error };
      });
    }
    return last;
  };
  const writing: Writing = {
    store: undefined,
    flush,
    add(answer) {
      pending.push(answer);
      timer ??= setTimeout(() => void awaitedLater(flush()), flushMs);
    },
    requireKept() {
      if (failure !== undefined) {
        throw failure.error;
      }
    },
  };
  return writing;
}

/** Adds up all answers of a store. */
async function countAll(store: AnswerStore, onAnswer: (answer: ModelAnswer) => void): Promise<Spent> {
  const all = nothingSpent();
  for await (const { answer: text } of store.read()) {
    const answer = countText(all, text);
    if (answer !== undefined) {
      onAnswer(answer);
    }
  }
  return all;
}

/** Adds a kept answer to a sum. undefined: it is none. */
function countText(sum: Sum, text: string): PaidAnswer | undefined {
  const answer = parseKept(text);
  if (answer !== undefined) {
    count(sum, answer);
  }
  return answer;
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
