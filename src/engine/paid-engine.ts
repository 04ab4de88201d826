import type { NamedTensor } from "../columnar/tensor.js";
import type { AnswerFault } from "../columnar/types.js";
import type { JobError } from "../util/errors.js";

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
  /**
   * Requests of all attempts and workers that the run may have paid for without keeping an answer, at most: those whose
   * answer was lost, and those that were under way when their attempt was killed.
   */
  readonly unanswered: number;
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

/** What all attempts and workers of a run have paid for, and how many requests they may have paid for without a stored answer. */
export interface RunCount {
  readonly spent: Spent;
  readonly unanswered: number;
}

export interface Price {
  readonly input: number;
  readonly cached_input?: number | undefined;
  readonly output: number;
}

/** What an unfinished run has paid for and asked for so far. */
export interface PaidState {
  /** Answers that attempts have kept, and what they took; or why they cannot be read. */
  readonly kept: Spent | JobError;
  readonly price: Price | undefined;
  /** The batches of the run that the server has; undefined: rows are asked one by one. */
  readonly batches: readonly SentBatch[] | JobError | undefined;
}

/** A batch at the server. */
export interface SentBatch {
  readonly id: string;
  /** As the server names it, such as `in_progress`. */
  readonly status: string;
  readonly requests: number;
  /** Requests with an answer. */
  readonly answered: number;
  readonly hasEnded: boolean;
}

/** Looks at a run of a model whose answers cost money. Asks for nothing that costs money, and retries nothing. */
export type LookAtPaid = (run: Pick<BulkRun, "planId">, kept: AsyncIterable<KeptAnswer>) => Promise<PaidState>;

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
   * @param store undefined: the target keeps no answers, and a later attempt pays again
   * @param worker this process among those that share the budget
   * @throws JobError MODEL_CHANGED if kept answers are another model's; DISK, OBJECT_STORE, DATABASE
   */
  begin(
    store: AnswerStore | undefined,
    worker: { readonly index: number; readonly count: number },
  ): Promise<AsyncDisposable>;
  /** Makes the answers so far durable. @throws JobError DISK, OBJECT_STORE, DATABASE */
  keep(): Promise<void>;
  /**
   * Counts the answers of all workers, which they have kept.
   * @param recorded reads what another worker has counted, which may have removed the answers since
   * @throws JobError DISK, OBJECT_STORE, DATABASE
   */
  recount(recorded: () => Promise<RunCount | undefined>): Promise<void>;
  /** Asks for rows in bulk, before they are scored; undefined: each row is asked when it is scored. */
  readonly bulk?: BulkAsking | undefined;
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

/** Asks for many rows together, and keeps their answers; rows that are scored then find them there. */
export interface BulkAsking {
  /** The most requests that are sent together. */
  readonly mostRequests: number;
  /**
   * Takes up what earlier attempts of a run have asked for. Called once, after `begin` of the engine.
   * @param worker of several workers the first one asks for the rows of all; the others wait for its answers
   * @throws JobError NETWORK, PERMISSION, MODEL_INVALID, QUOTA, MODEL_CHANGED
   */
  begin(run: BulkRun, worker: { readonly index: number }): Promise<void>;
  /** Begins a pass over rows that are going to be scored. */
  pass(): BulkPass;
  /** What is known of a row. */
  stateOf(inputs: readonly NamedTensor[]): BulkRowState;
}

/** open: a row needs a request that has no answer yet; invalid: it is refused, or its answers are invalid. */
export type BulkRowState = "open" | "valid" | "invalid";

/** The run whose rows are asked for. */
export interface BulkRun {
  readonly runId: string;
  /** Tells it from all other runs. */
  readonly planId: string;
  /** Logs what becomes of the requests. */
  readonly log: (message: string) => void;
}

/** A pass over rows, in the order of the run. */
export interface BulkPass {
  /** Adds a row. It is sent when enough of them came, unless its answer is there. @throws JobError as `begin` */
  add(inputs: readonly NamedTensor[]): Promise<void>;
  /**
   * Sends what is left, and waits for all answers. Returns whether a row may still lack an answer: another pass over the
   * same rows asks for it.
   * @throws JobError as `begin`; BUDGET if the budget covers no more requests
   */
  end(): Promise<boolean>;
}

export interface SpendingLimits {
  readonly tokens: number | undefined;
  readonly cost: number | undefined;
  /** The cost of an hour, over which requests are spread. */
  readonly costPerHour: number | undefined;
}

/** The answers and tokens of both. */
export function sumOfSpent(one: Spent, other: Spent): Spent {
  return {
    answers: one.answers + other.answers,
    ...sumOfTokens(one, other),
  };
}

export function sumOfTokens(one: TokenCount, other: TokenCount): TokenCount {
  return {
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
