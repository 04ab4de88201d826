import { awaitedLater } from "../../util/promises.js";
import type { AnswerStore, KeptAnswer, Spent } from "../paid.js";
import { keptText, type ModelAnswer, parseKept } from "./answer.js";

/** The answers of a run that this attempt knows: those that attempts have kept, and its own. */
export interface KeptAnswers {
  /** Answers that were kept before this attempt, and what they took. */
  readonly earlier: Spent;
  find(request: string): ModelAnswer | undefined;
  /** Adds an answer, which is durable `flushMs` later at most. */
  add(request: string, answer: ModelAnswer): void;
  /** Counts all answers that are kept now. undefined: no answers are kept */
  recount(): Promise<Spent | undefined>;
  /** Takes over what is kept. @param onAnswer called with each answer */
  begin(store: AnswerStore, onAnswer: (answer: ModelAnswer) => void): Promise<void>;
  /** Makes all answers so far durable. @throws the error of the store, from then on in each call */
  keep(): Promise<void>;
  /** @throws the error of the store if answers could not be kept */
  requireKept(): void;
}

/** @param flushMs after which an answer is durable */
export function createKeptAnswers(flushMs: number): KeptAnswers {
  const texts = new Map<string, string>();
  const earlier = nothingSpent();
  let store: AnswerStore | undefined;
  let pending: KeptAnswer[] = [];
  let timer: NodeJS.Timeout | undefined;
  let writing = Promise.resolve();
  let failure: { readonly error: unknown } | undefined;
  const keep = (): Promise<void> => {
    clearTimeout(timer);
    timer = undefined;
    const [answers, to] = [pending, store];
    if (to !== undefined && answers.length > 0) {
      pending = [];
      writing = writing.then(() => to.keep(answers));
      writing.catch((error: unknown) => {
        failure ??= { error };
      });
    }
    return writing;
  };
  return {
    earlier,
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
      const text = keptText(answer);
      texts.set(request, text);
      pending.push({ request, answer: text });
      timer ??= setTimeout(() => void awaitedLater(keep()), flushMs);
    },
    async recount() {
      if (store === undefined) {
        return undefined;
      }
      await keep();
      const all = nothingSpent();
      for await (const { answer: text } of store.read()) {
        const answer = parseKept(text);
        if (answer !== undefined) {
          count(all, answer);
        }
      }
      return all;
    },
    async begin(from, onAnswer) {
      for await (const { request, answer: text } of from.read()) {
        const answer = parseKept(text);
        if (answer !== undefined) {
          onAnswer(answer);
          texts.set(request, text);
          count(earlier, answer);
        }
      }
      store = from;
    },
  };
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
