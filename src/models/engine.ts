import type { ModelSignature, NamedTensor, Tensor } from "../columns/tensor.js";
import type { AnswerFault } from "../columns/types.js";
import type { WorkerPort } from "../base/rpc.js";

/** One batch. The tensors' buffers go to the engine and are detached here. */
export interface EngineRequest {
  readonly inputs: readonly NamedTensor[];
  /** Names of the tensors wanted. */
  readonly outputs: readonly string[];
  /** The rows are made up, and a model may refuse them. */
  readonly isBlank?: true | undefined;
}

/** What became of a batch; `inputs` are the tensors of the request, back from the engine. */
export type EngineResponse =
  | {
      readonly kind: "done";
      /** The outputs in the requested order, with their actual shapes, not those that the model declares. */
      readonly outputs: readonly Tensor[];
      /** Milliseconds that the model took, without the wait for its turn. */
      readonly ms: number;
      /** The model's trees were compiled: ONNX Runtime did not compute them. */
      readonly byTrees?: boolean | undefined;
      /** The inputs, without tensors that cannot be used again. */
      readonly inputs: readonly NamedTensor[];
    }
  /** The model refuses the values of the batch: it is halved until the rows are found, which are bad rows. */
  | {
      readonly kind: "failed";
      readonly message: string;
      /** What is wrong with the answer of a language model; undefined: the model fails. */
      readonly reason?: AnswerFault | undefined;
      readonly inputs: readonly NamedTensor[];
    }
  /** The batch is too large. Fewer rows may fit, once a local engine is renewed. */
  | { readonly kind: "exhausted"; readonly message: string; readonly inputs: readonly NamedTensor[] };

/** Runs a session in its own thread, on tensors that stay the caller's. Rejects where the model fails. */
export type RunModel = (request: EngineRequest) => Promise<{
  readonly outputs: readonly Tensor[];
  readonly ms: number;
  readonly byTrees?: boolean | undefined;
}>;

/** What computes the trees of a model. */
export type TreesState =
  /** ONNX Runtime: the model has none, the spec asks for ONNX Runtime, or too few rows came so far. */
  | { readonly kind: "none" }
  | { readonly kind: "compiled" }
  /** ONNX Runtime: the trees cannot be compiled, or are slower when they are. */
  | { readonly kind: "onnxruntime"; readonly reason: string }
  /** ONNX Runtime: the compiled trees gave another score for a row. */
  | { readonly kind: "mismatch"; readonly reason: string };

/** How many of a model's operators run on each provider; undefined: all on the first one, or this is not known. */
export type Operators = Readonly<Record<string, number>> | undefined;

/** A model that can be asked for predictions: in this process, on a GPU or on a server. */
export interface Engine extends AsyncDisposable {
  readonly signature: ModelSignature;
  /** What computes, as reports and parts name it; of a local engine, the first execution provider in use. */
  readonly provider: string;
  /** The number of batches to send at once. More than this only wait. */
  readonly concurrency: number;
  /** The limit of rows in a call; undefined: only memory limits it. */
  readonly mostRows?: number | undefined;
  /**
   * Calls may overlap and are served in no particular order. A response is about the rows of the batch only. A failure
   * that no row causes is thrown and ends the attempt, and no row is rejected.
   * @throws JobError that ends with 75 where another attempt may succeed, after the engine's own retries (a device that
   * fails); any other JobError where none will
   */
  run(request: EngineRequest): Promise<EngineResponse>;
  /** The parts of an engine on this machine; undefined: the model is on a server. */
  readonly local?: LocalEngine | undefined;
  /** The requests to the server that has the model; undefined: the model is on this machine. */
  readonly traffic?: ServerTraffic | undefined;
  /** What is special where each answer costs money; undefined: predictions are free. */
  readonly paid?: PaidEngine | undefined;
}

/** The requests that an engine sent to the servers that have the model. */
export interface ServerTraffic {
  /** The number of all requests, retries included. */
  readonly requests: number;
  readonly retries: number;
  /** The most requests that were in flight at once. */
  readonly inFlight: number;
  /** The time that a share of the answers did not exceed, in milliseconds; null without answers. */
  latencyMs(share: number): number | null;
  /** Each server, if there are several. */
  readonly servers: readonly OneServersTraffic[];
}

interface OneServersTraffic {
  readonly url: string;
  readonly requests: number;
  /** Requests without answer, and those that an overloaded or failing server refused. */
  readonly failures: number;
  readonly inFlight: number;
  latencyMs(share: number): number | null;
}

/** The parts that only an engine on this machine has. */
export interface LocalEngine {
  /** Where the first execution provider in use computes, as messages name it: "cpu", "cuda:0". */
  readonly device: string;
  /** Execution providers that were asked for before it and that this machine cannot run. */
  readonly missing: readonly string[];
  /** Where the model's operators run. */
  readonly operators: Operators;
  /** Batches that are computed at once when all sessions are open; the engine is there when the first one is. */
  readonly sessions: number;
  /** Resolves when all sessions are open. @throws JobError MODEL_INVALID, MEMORY, MODEL_CHANGED */
  opened(): Promise<void>;
  /** What computes the model's trees, as the last session says that tried to compile them. */
  readonly trees: () => TreesState;
  /**
   * Tells how many rows will come, and how long a session takes for each: the sessions compile the model's trees where
   * that pays. Resolves when all of them have done so.
   */
  expect(rows: number, rowMs: number): Promise<void>;
  /**
   * Returns a port to each of the engine's workers, which read units and score their rows there, between the calls of
   * `run`. The ports end when the engine is renewed or closed. undefined: a device computes, which should not wait for
   * reading.
   */
  readonly unitPorts?: (() => readonly WorkerPort[]) | undefined;
  /**
   * Gives all memory back to the device, and loads the model anew. Calls under way are answered before; calls that
   * come meanwhile wait.
   * @throws JobError MEMORY when the model no longer fits
   */
  renew(): Promise<void>;
}

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

interface PaidState {
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
  /** Says that so many rows, which were asked, are asked for once more: they take answers that are theirs already. */
  asksAgain(rows: number): void;
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
