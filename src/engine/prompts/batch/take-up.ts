import { JobError } from "../../../util/errors.js";
import type { BulkRun } from "../../paid-engine.js";
import type { BatchApi } from "./batch-api.js";
import { type Batch, hasEnded } from "./batch-object.js";
import { keyIn } from "./input-file.js";
import { type BatchState, filePrefix, metadataKeys, worstIn } from "./run-batches.js";
import { type KeyList, keyList } from "../texts/key-set.js";
import { takeAnswers } from "./take-answers.js";

/** Batches of the run that were taken up. */
interface TakenUp {
  /** Those that this attempt did not know. */
  readonly found: number;
  /** Those that have ended: their answers were taken. */
  readonly ended: number;
}

/**
 * Takes up the batches of the run that this attempt does not know. A worker that sends nothing also takes the answers of
 * those that have ended since.
 */
export async function takeUp(state: BatchState): Promise<TakenUp> {
  const { live, taken } = state;
  let [found, ended] = [0, 0];
  const batches = await state.api.batches();
  await listFiles(state); // after the batches: the file of each is there by now
  for (const batch of batchesOfRun(state, batches)) {
    const isNew = !live.has(batch.id) && !taken.has(batch.id);
    found += isNew ? 1 : 0;
    if (isNew && !hasEnded(batch)) {
      await addLive(state, batch);
    } else if (hasEnded(batch) && (isNew || (live.has(batch.id) && !state.isSubmitter))) {
      const before = state.answers;
      await (batch.status === "failed" ? undefined : takeAnswers(state, batch, true));
      logEnd(state, batch, state.answers - before);
      live.delete(batch.id);
      taken.add(batch.id);
      ended += 1;
    }
  }
  return { found, ended };
}

/** Says what a batch has answered, unless all of it is kept already. */
function logEnd({ run, isSubmitter }: BatchState, { id, status, total }: Batch, answers: number): void {
  if (answers > 0) {
    const sender = isSubmitter ? "an earlier attempt" : "worker 0";
    run.log(`batch ${id} of ${sender}: ${status}, ${answers} answers to ${total} requests`);
  }
}

/** Adds the files of the run that are at the server: another process may have uploaded some. */
async function listFiles({ api, run, files }: BatchState): Promise<void> {
  for (const [id, name] of await filesOfRun(api, run)) {
    files.set(id, name);
  }
}

/** The ids and names of the files of a run that are at the server. */
export async function filesOfRun(
  api: Pick<BatchApi, "files">,
  run: Pick<BulkRun, "planId">,
): Promise<(readonly [id: string, name: string])[]> {
  const prefix = filePrefix(run);
  const files = await api.files();
  return files.filter(({ name }) => name.startsWith(prefix)).map(({ id, name }) => [id, name] as const);
}

/** Those of the account's batches that are of a run. */
export function batchesOfRun(
  { run, files }: { readonly run: Pick<BulkRun, "planId">; readonly files: ReadonlyMap<string, string> },
  batches: readonly Batch[],
): Batch[] {
  return batches.filter(
    ({ metadata, inputFile }) =>
      metadata[metadataKeys.plan] === run.planId || (inputFile !== undefined && files.has(inputFile)),
  );
}

/** Adds a batch that an earlier attempt has created: its requests are not sent again. */
async function addLive(state: BatchState, batch: Batch): Promise<void> {
  if (!state.isSubmitter) {
    state.live.set(batch.id, { batch, keys: undefined, reservation: undefined });
    return;
  }
  const reservation = state.prompts.budget.reserveSent(worstIn(batch));
  const keys = await keysOf(state, batch);
  state.live.set(batch.id, { batch, keys, reservation });
  if (keys !== undefined) {
    state.underWay.addAll(keys);
  }
}

/** The keys in the input file of a batch. undefined: the server does not give it */
async function keysOf({ api }: BatchState, { inputFile, total }: Batch): Promise<KeyList | undefined> {
  const keys = new Set<string>();
  const take = (line: string): void => {
    const key = keyIn(line);
    if (key !== undefined) {
      keys.add(key);
    }
  };
  try {
    await (inputFile === undefined ? undefined : api.lines(inputFile, { take, atLeast: total }));
  } catch (error) {
    if (!(error instanceof JobError) || (error.code !== "MODEL_INVALID" && error.code !== "PERMISSION")) {
      throw error;
    }
    return undefined;
  }
  return keys.size === 0 ? undefined : keyList([...keys]);
}
