import { JobError } from "../../../util/errors.js";
import type { Reservation } from "../budget.js";
import { quotaError } from "./batch-api.js";
import { type Batch, hasEnded } from "./batch-object.js";
import { createInputFile, endpointOf, type FiledRequest, type InputFile, worstOf } from "./input-file.js";
import {
  type BatchState,
  createPauses,
  detach,
  endedBatch,
  filePrefix,
  metadataKeys,
  placeText,
  removeLive,
  worstText,
} from "./run-batches.js";
import { keyList } from "../texts/key-set.js";
import { takeAnswers } from "./take-answers.js";
import { takeUp } from "./take-up.js";

/** Sends files of requests, each as a batch. */
export interface Submitter {
  /**
   * Makes a batch of a file. Where the account's queue is full, it waits for a batch of the run to end, or divides the
   * file.
   * @param reservation of all its requests; it ends with the batch
   * @throws JobError NETWORK, PERMISSION, MODEL_INVALID, QUOTA
   */
  submit(file: InputFile, reservation: Reservation): Promise<void>;
}

export function createSubmitter(state: BatchState): Submitter {
  return { submit: (file, reservation) => submit(state, file, reservation) };
}

/** What a batch fails with when the account has too many tokens in its queue. */
const queueFull = /token_limit_exceeded|enqueued tokens?/i;
const noMoney = /billing|insufficient_quota|quota/i;

async function submit(state: BatchState, file: InputFile, reservation: Reservation): Promise<void> {
  const digest = file.digest();
  const name = `${filePrefix(state.run)}${digest.slice(0, 32)}.jsonl`;
  const id = uploadedId(state, name) ?? (await state.api.upload(name, piecesOf(file)));
  state.files.set(id, name);
  const pauses = createPauses(state);
  const { nowMs, maxSeconds } = state.prompts.servers[0].retry;
  const startedMs = nowMs();
  // A process that was started twice as this worker may have created batches meanwhile: the next pass sends what is left.
  if ((await takeUp(state)).found > 0) {
    reservation.end();
    return;
  }
  for (;;) {
    const ended = await createBatch(state, { file, reservation, digest, fileId: id });
    if (ended?.status !== "failed") {
      await (ended === undefined ? undefined : finish(state, ended));
      return;
    }
    const { code = "", message = "" } = ended.error ?? {};
    detach(state, ended);
    if (!queueFull.test(`${code} ${message}`)) {
      throw failedError(state, ended);
    }
    if (state.live.size > 0) {
      await finishOne(state);
    } else if (file.requests.length > 1) {
      state.run.log(
        `the queue of ${placeText(state)} has no room for ${file.requests.length} requests: they are sent in smaller batches`,
      );
      const half = Math.ceil(file.requests.length / 2);
      state.limits.requests = half;
      await submitParts(state, [file.requests.slice(0, half), file.requests.slice(half)], reservation);
      return;
    } else if (nowMs() - startedMs > maxSeconds * 1000) {
      throw new JobError("NETWORK", `creating a batch of ${placeText(state)}: its queue is full: ${message}`, {
        hint: "run the same command again when the account's other batches have ended",
      });
    } else {
      await pauses.next();
    }
  }
}

/** Submits the parts of a file, whose reservation they divide. */
async function submitParts(
  state: BatchState,
  parts: readonly (readonly FiledRequest[])[],
  reservation: Reservation,
): Promise<void> {
  const files = parts.map((requests) => createInputFile(requests));
  const reservations = files.map((file) => state.prompts.budget.reserveSent(worstOf(file)));
  reservation.end();
  for (const [index, file] of files.entries()) {
    await submit(state, file, reservations[index] as Reservation);
  }
}

function uploadedId({ files }: BatchState, wanted: string): string | undefined {
  for (const [id, name] of files) {
    if (name === wanted) {
      return id;
    }
  }
  return undefined;
}

/** Lines are joined: a socket is slow with many small pieces. */
const linesOfPiece = 500;

function piecesOf({ requests }: InputFile): Buffer[] {
  const pieces: Buffer[] = [];
  for (let start = 0; start < requests.length; start += linesOfPiece) {
    pieces.push(Buffer.concat(requests.slice(start, start + linesOfPiece).map(({ line }) => line)));
  }
  return pieces;
}

interface NewFile {
  readonly file: InputFile;
  readonly reservation: Reservation;
  readonly digest: string;
  readonly fileId: string;
}

/** Creates a batch, and waits until the server has checked it. Returns it if it has ended by then. */
async function createBatch(
  state: BatchState,
  { file, reservation, digest, fileId }: NewFile,
): Promise<Batch | undefined> {
  const { api, run, prompts, live, taken, underWay } = state;
  const worst = worstText(worstOf(file));
  const metadata = {
    [metadataKeys.run]: run.runId.slice(-500),
    [metadataKeys.plan]: run.planId,
    [metadataKeys.file]: digest,
    [metadataKeys.worst]: worst,
  };
  const request = {
    input_file_id: fileId,
    endpoint: endpointOf(prompts.task.kind),
    completion_window: "24h",
    metadata,
  } as const;
  const isSame = ({ id, inputFile }: Batch): boolean => inputFile === fileId && !taken.has(id) && !live.has(id);
  const created = await api.create(request, async () => (await api.batches()).find(isSame));
  let batch: Batch = { ...created, metadata };
  const keys = keyList(file.requests.map(({ key }) => key));
  live.set(batch.id, { batch, keys, reservation });
  underWay.addAll(keys);
  run.log(`batch ${batch.id}: ${keys.length} requests are sent to ${placeText(state)}`);
  const pauses = createPauses(state);
  while (batch.status === "validating") {
    await pauses.next();
    batch = await api.batch(batch.id);
  }
  return hasEnded(batch) ? batch : undefined;
}

function failedError(state: BatchState, { id, error }: Batch): JobError {
  const { code = "", message = "" } = error ?? {};
  const doing = `asking ${placeText(state)} in batch ${id}`;
  const found = `the server did not take it: ${[code, message].filter((one) => one !== "").join(": ") || "it failed"}`;
  return noMoney.test(code)
    ? quotaError(doing, found)
    : new JobError("MODEL_INVALID", `${doing}: ${found}`, {
        hint: "check that this model may be asked in batches, and model.sampling; or leave out model.server.transport",
      });
}

/** Waits until a batch has ended, and takes its answers. */
export async function finishOne(state: BatchState): Promise<void> {
  const pauses = createPauses(state);
  for (;;) {
    const ended = await endedBatch(state);
    if (ended !== undefined) {
      await finish(state, ended);
      return;
    }
    await pauses.next();
  }
}

/** Takes the answers of a batch that has ended. */
async function finish(state: BatchState, batch: Batch): Promise<void> {
  const before = state.answers;
  try {
    if (batch.status === "failed") {
      throw failedError(state, batch);
    }
    await takeAnswers(state, batch, false);
  } finally {
    removeLive(state, batch);
  }
  const { status, total, id } = batch;
  state.run.log(`batch ${id}: ${status}, ${state.answers - before} answers to ${total} requests`);
}
