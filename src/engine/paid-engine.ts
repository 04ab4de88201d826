import type { NamedTensor } from "../columnar/tensor.js";
import type { AnswerFault } from "../columnar/types.js";

/** An answer that was paid for, as it is kept. */
export interface KeptAnswer {
  /** Hex SHA-256 of the request. */
  readonly request: string;
  /** JSON text. */
  readonly answer: string;
}

/** Keeps answers where all attempts of a run find them. */
export interface AnswerStore {
  /** How long an answer waits for others before it is written, in milliseconds, unless the spec says otherwise: longer where a write is dear. */
  readonly pauseMs: number;
  /** Yields the answers that attempts of the run have kept. */
  read(): AsyncIterable<KeptAnswer>;
  /** Makes answers durable; resolves when they are. Calls never overlap. */
  keep(answers: readonly KeptAnswer[]): Promise<void>;
}

/** What answers took, in tokens. */
export interface TokenCount {
  readonly prompt: number;
  /** The part of `prompt` that the server had cached. */
  readonly cached: number;
  readonly completion: number;
}

/** What a run has spent. */
export interface Spending {
  /** Answers that this attempt paid for, and what they took. */
  readonly own: Spent;
  /** Answers that attempts of the run had kept when this attempt started, and what they took. */
  readonly earlier: Spent;
  /** Answers of all attempts and workers: both of these, or what `recount` has found. */
  readonly run: Spent;
  /** Requests of this attempt whose answer was lost: they may have cost something. */
  readonly lost: number;
  /** Rows of this attempt that took an answer which was there already: kept, or of an equal prompt. */
  readonly reused: number;
  /** The price of a million tokens; undefined: costs are not computed. */
  readonly price: Price | undefined;
}

/** Answers and their tokens. */
export interface Spent extends TokenCount {
  readonly answers: number;
}

export interface Price {
  readonly input: number;
  readonly cached_input?: number | undefined;
  readonly output: number;
}

/** Adds up the answers that a run has kept. Asks for nothing. */
export type LookAtPaid = (kept: AsyncIterable<KeptAnswer>) => Promise<PaidState>;

/** What an unfinished run has paid for so far. */
export interface PaidState {
  readonly kept: Spent;
  readonly price: Price | undefined;
}

/** Counts the tokens of texts, each by itself. */
export type CountTokens = (
  texts: readonly string[],
  options: {
    /** Whether special tokens count that the tokenizer adds to a text, such as those of its beginning and end. */
    readonly withSpecial: boolean;
  },
) => Promise<number[]>;

/** The parts of an engine whose answers cost money. Each batch has one row. */
export interface PaidEngine {
  /**
   * Takes over what attempts of the run have kept, and keeps answers from now on. Called once, before rows are scored.
   * Disposing keeps what is left.
   * @param worker this process among those that share the budget
   * @throws JobError MODEL_CHANGED if kept answers are another model's; DISK, OBJECT_STORE, DATABASE
   */
  begin(store: AnswerStore, worker: { readonly index: number; readonly count: number }): Promise<AsyncDisposable>;
  /** Makes the answers so far durable. @throws JobError DISK, OBJECT_STORE, DATABASE */
  keep(): Promise<void>;
  /**
   * Counts the answers of all workers, which they have kept.
   * @param recorded reads what another worker has counted, which may have removed the answers since
   * @throws JobError DISK, OBJECT_STORE, DATABASE
   */
  recount(recorded: () => Promise<Spent | undefined>): Promise<void>;
  /** The texts of a row's prompt, a message each; none where the row is not asked. */
  promptTexts(inputs: readonly NamedTensor[]): readonly string[];
  /** Whether the server adds the special tokens of its tokenizer to a text: it does where no chat template has them. */
  readonly addsSpecialTokens: boolean;
  /** About how many tokens the server's chat template adds to a prompt. */
  readonly templateTokens: number;
  /** Why a row is rejected without being asked; undefined: it is asked. Default: each row is. */
  unaskable?(inputs: readonly NamedTensor[]): { readonly reason: AnswerFault; readonly message: string } | undefined;
  /** The most tokens of an answer; undefined: the spec has no limit. */
  readonly mostCompletionTokens: number | undefined;
  readonly spending: Spending;
  /** What a run may spend in all; undefined: no limit. */
  readonly limits: SpendingLimits;
}

export interface SpendingLimits {
  readonly tokens: number | undefined;
  readonly cost: number | undefined;
}

/** The answers and tokens of both. */
export function sumOfSpent(one: Spent, other: Spent): Spent {
  return {
    answers: one.answers + other.answers,
    prompt: one.prompt + other.prompt,
    cached: one.cached + other.cached,
    completion: one.completion + other.completion,
  };
}

/** The cost of tokens, in the currency of the price. */
export function costOf({ prompt, cached, completion }: TokenCount, price: Price): number {
  const { input, cached_input: cachedInput = input, output } = price;
  return ((prompt - cached) * input + cached * cachedInput + completion * output) / 1e6;
}
