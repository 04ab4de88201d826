import type { BulkRun, TokenCount } from "../../paid-engine.js";
import { serverText } from "../../served/server.js";
import type { PromptState } from "../ask-row.js";
import type { Reservation } from "../budget.js";
import type { RowRefusal } from "../bulk.js";
import type { KeyList, KeySet } from "../texts/key-set.js";
import type { BatchApi } from "./batch-api.js";
import { type Batch, hasEnded } from "./batch-object.js";
import type { FileLimits } from "./input-file.js";

/** What the steps of asking in batches share. */
export interface BatchState {
  readonly prompts: PromptState;
  readonly api: BatchApi;
  readonly run: BulkRun;
  /** Whether this worker sends requests. */
  readonly isSubmitter: boolean;
  /** What a file may have; less than the server says where its queue is short. */
  readonly limits: FileLimits;
  /** Files of the run at the server: ids to names. */
  readonly files: Map<string, string>;
  /** Batches of the run that have not ended, by id. */
  readonly live: Map<string, LiveBatch>;
  /** Ids of batches whose answers were taken, or that had none. */
  readonly taken: Set<string>;
  /** Keys of requests in batches that have not ended. */
  readonly underWay: KeySet;
  /** Rows that the server refuses, by the keys of their requests. */
  readonly refused: Map<string, RowRefusal>;
  /** How often the server failed on a request. */
  readonly faults: Map<string, number>;
  /** Answers and refusals so far: what shows that asking again leads anywhere. */
  outcomes: number;
  /** Answers so far. */
  answers: number;
}

/** A batch that has not ended. */
export interface LiveBatch {
  readonly batch: Batch;
  /** The keys of its requests; undefined: they are not known. */
  readonly keys: KeyList | undefined;
  /** Of all its requests; undefined: this worker sends none, and pays for none. */
  readonly reservation: Reservation | undefined;
}

/** Keys of the metadata of a batch: it is found again by them. */
export const metadataKeys = {
  run: "infer_batch_run",
  plan: "infer_batch_plan",
  file: "infer_batch_file",
  worst: "infer_batch_most_tokens",
} as const;

/** The beginning of the names of a run's files. Servers that keep no metadata still name the file of a batch. */
export function filePrefix({ planId }: Pick<BulkRun, "planId">): string {
  return `infer-batch-${planId.slice(0, 24)}-`;
}

/** The most tokens of a batch, as its metadata says: prompt/completion. */
export function worstText({ prompt, completion }: TokenCount): string {
  return `${prompt}/${completion}`;
}

export function worstIn({ metadata }: Batch): TokenCount {
  const [, prompt = "0", completion = "0"] = /^(\d+)\/(\d+)$/.exec(metadata[metadataKeys.worst] ?? "") ?? [];
  return { prompt: Number(prompt), cached: 0, completion: Number(completion) };
}

/** Ends what a batch holds: its requests may be sent again, and what they did not spend is free. */
export function removeLive(state: BatchState, batch: Batch): void {
  state.live.get(batch.id)?.reservation?.end();
  detach(state, batch);
}

/** Forgets a batch, whose requests are sent again: its reservation stays. */
export function detach(state: BatchState, { id }: Batch): void {
  const { keys } = state.live.get(id) ?? {};
  state.live.delete(id);
  state.taken.add(id);
  if (keys !== undefined) {
    state.underWay.deleteAll(keys);
  }
}

const firstPauseMs = 250;
const longestPauseMs = 60_000;
const pauseGrowth = 1.5;

/** Pauses between requests for the state of batches; each is longer than the one before. */
export interface Pauses {
  next(): Promise<void>;
}

export function createPauses({ prompts }: Pick<BatchState, "prompts">): Pauses {
  const [{ retry }] = prompts.servers;
  let ms = firstPauseMs;
  return {
    async next() {
      await retry.sleep(ms);
      ms = Math.min(longestPauseMs, ms * pauseGrowth);
    },
  };
}

/** Asks for the batches that have not ended. Returns one that has, with its new state; undefined: none has. */
export async function endedBatch({ api, live }: BatchState): Promise<Batch | undefined> {
  for (const id of live.keys()) {
    const batch = await api.batch(id);
    if (hasEnded(batch)) {
      return batch;
    }
  }
  return undefined;
}

/** The server, as messages name it. */
export function placeText({ prompts: { servers } }: Pick<BatchState, "prompts">): string {
  return serverText(servers[0]);
}

const mostNamed = 3;

/** "1 batch (batch_1) is", "4 batches (batch_1, batch_2, batch_3, …) are" */
export function batchesText(ids: readonly string[]): string {
  const named = `${ids.slice(0, mostNamed).join(", ")}${ids.length > mostNamed ? ", …" : ""}`;
  return ids.length === 1 ? `1 batch (${named}) is` : `${ids.length} batches (${named}) are`;
}
