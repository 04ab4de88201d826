import { type AnswerStore, type RunCount, type Spent, sumOfSpent, type TokenCount } from "../paid-engine.js";
import { createAnswerTexts } from "./texts/answer-texts.js";
import { createKeySet, type KeySet } from "./texts/key-set.js";
import { keptText, type ModelAnswer, type PaidAnswer, parseKept } from "./answer.js";
import { createJournalWriting, type JournalWriting } from "./journal-writing.js";
import { createSentRequests, type SentRequests } from "./sent-requests.js";
import { createUnanswered, lostText, ofNoRow, type RequestSum } from "./unanswered.js";

/** The answers of a run that this attempt knows: those that attempts have kept, and its own. */
export interface KeptAnswers extends Disposable {
  /** Answers that were kept before this attempt, and what they took. */
  readonly earlier: Spent;
  /** The part of it that this worker paid for. */
  readonly earlierByWorker: Spent;
  /** Requests of earlier attempts without a stored answer, of all workers, and of this one: a budget counts what they may have taken. */
  readonly earlierUnanswered: { readonly all: RequestSum; readonly byWorker: RequestSum };
  /** The requests of this attempt. */
  readonly requests: CountedRequests;
  find(request: string): ModelAnswer | undefined;
  has(request: string): boolean;
  /** Adds an answer, whose write begins `flushMs` later, or when the write before has ended. */
  add(request: string, answer: ModelAnswer): void;
  /** Adds an answer that another worker keeps. */
  borrow(request: string, answer: ModelAnswer): void;
  /**
   * Counts all answers that are kept now, and those that were borrowed. undefined: no answers are kept
   * @param own what this attempt paid for. If fewer are kept, another worker has finished the run and removed them
   */
  recount(own: Spent, onAnswer: (answer: ModelAnswer) => void): Promise<RunCount | undefined>;
  /** How many requests another worker has sent one by one since this attempt began. */
  sentSince(worker: number): Promise<number>;
  /** Takes over what is kept. @param worker index of this worker; @param onAnswer called with each answer */
  begin(store: AnswerStore, worker: number, onAnswer: (answer: ModelAnswer) => void): Promise<void>;
  /** Makes all answers so far durable. @throws the error of the store, from then on in each call */
  keep(): Promise<void>;
  /** @throws the error of the store if answers could not be kept */
  requireKept(): void;
}

/** The requests of an attempt, as the journal counts them. */
export interface CountedRequests {
  readonly sent: SentRequests;
  /** Requests whose answer was lost. */
  readonly lost: number;
  /** Adds a request whose answer was lost, which a later attempt must know of. @param worst what it may have taken */
  addLost(this: void, worst: TokenCount): void;
}

interface KeptOptions {
  /** How long an answer waits before it is written; undefined: the store says it. */
  readonly flushMs?: number | undefined;
  /** The share of the budget's rest that requests may take. Default: nothing is limited. */
  readonly shareOfBudget?: (requests: RequestSum) => number;
}

export function createKeptAnswers(options: KeptOptions = {}): KeptAnswers {
  const texts = createAnswerTexts();
  const [earlier, earlierByWorker] = [nothingSpent(), nothingSpent()];
  const earlierUnanswered = createUnanswered();
  let index = 0;
  /** Requests whose answers another worker keeps, and what these took. */
  const borrowed = { requests: createKeySet(), sum: nothingSpent() };
  const { writing, requests } = openWriting(options, () => index);
  return {
    earlier,
    earlierByWorker,
    get earlierUnanswered() {
      return { all: earlierUnanswered.sum(), byWorker: earlierUnanswered.sum(index) };
    },
    requests,
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
      const known = { spent: sumOfSpent(own, earlier), unanswered: earlierUnanswered.sum().requests + requests.lost };
      return await recountOf(writing.store, { known, borrowed, onAnswer });
    },
    sentSince: async (worker) => (await sentIn(writing.store, worker)) - earlierUnanswered.sentBy(worker),
    async begin(from, worker, onAnswer) {
      index = worker;
      for await (const { answer, request, text } of readKept(from, earlierUnanswered.add)) {
        count(earlier, answer);
        count(answer.worker === worker ? earlierByWorker : nothingSpent(), answer);
        onAnswer(answer);
        texts.set(request, text);
      }
      writing.store = from;
    },
    [Symbol.dispose]: () => texts[Symbol.dispose](),
  };
}

/** Writes a journal, and counts in it what is sent. @param worker returns the index of this worker, once it is known */
function openWriting(
  { flushMs, shareOfBudget = () => 0 }: KeptOptions,
  worker: () => number,
): { readonly writing: JournalWriting; readonly requests: CountedRequests } {
  const writing = createJournalWriting({ flushMs, alongside: (isAlone) => sent.record(isAlone) });
  const flush = (): Promise<void> | undefined => (writing.store === undefined ? undefined : writing.flush());
  const sent = createSentRequests({ flush, worker, shareOfBudget });
  let lost = 0;
  const requests: CountedRequests = {
    sent,
    get lost() {
      return lost;
    },
    addLost(worst) {
      lost += 1;
      writing.add({ request: ofNoRow(), answer: lostText(worst, worker()) });
    },
  };
  return { writing, requests };
}

/** How many requests a worker has sent one by one, as the journal has it. */
async function sentIn(store: AnswerStore | undefined, worker: number): Promise<number> {
  const unanswered = createUnanswered();
  for await (const { answer } of store?.read() ?? []) {
    unanswered.add(answer);
  }
  return unanswered.sentBy(worker);
}

function parsed(text: string | undefined): PaidAnswer | undefined {
  return text === undefined ? undefined : parseKept(text);
}

interface RecountOptions {
  readonly known: RunCount;
  readonly borrowed: { readonly requests: Pick<KeySet, "has">; readonly sum: Spent };
  readonly onAnswer: (answer: ModelAnswer) => void;
}

async function recountOf(
  store: AnswerStore | undefined,
  { known, borrowed, onAnswer }: RecountOptions,
): Promise<RunCount | undefined> {
  const all = store && mostOf(await countOthers(store, borrowed.requests, onAnswer), known);
  return all && { ...all, spent: sumOfSpent(all.spent, borrowed.sum) };
}

/** Adds up the answers of a store that were not borrowed. */
async function countOthers(
  store: AnswerStore,
  borrowed: Pick<KeySet, "has">,
  onAnswer: (answer: ModelAnswer) => void,
): Promise<RunCount> {
  const spent = nothingSpent();
  const unanswered = createUnanswered();
  for await (const { request, answer } of readKept(store, unanswered.add)) {
    if (!borrowed.has(request)) {
      count(spent, answer);
    }
    onAnswer(answer);
  }
  return { spent, unanswered: unanswered.sum().requests };
}

/** Returns the count with more answers: another worker may have removed the kept answers since. */
function mostOf(kept: RunCount, known: RunCount): RunCount {
  return kept.spent.answers < known.spent.answers ? known : kept;
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
