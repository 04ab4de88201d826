import { createHash, randomUUID } from "node:crypto";
import type { NamedTensor } from "../../../columnar/tensor.js";
import { JobError } from "../../../util/errors.js";
import type { BulkPass, BulkRowState } from "../../paid-engine.js";
import type { Reservation } from "../budget.js";
import { keyOfTry, type PromptState, valuesOf, worstCase } from "../ask-row.js";
import { controlOf } from "../control-request.js";
import { fitPrompt } from "../fit-prompt.js";
import { judgeAnswer } from "../judge-answer.js";
import { type AskedPrompt, askPrompt, mostCompletionTokens } from "../request.js";
import { createInputFile, type InputFile, lineOf, worstOf } from "./input-file.js";
import { type BatchState, createPauses, placeText } from "./run-batches.js";
import { finishOne, type Submitter } from "./submit.js";

/** What is known of a row, and the request that it needs while it is open: its first one that has no answer. */
type RowKnowledge =
  | { readonly state: Exclude<BulkRowState, "open"> }
  | { readonly state: "open"; readonly asked: AskedPrompt; readonly key: string };

function knownOf({ prompts, refused }: BatchState, inputs: readonly NamedTensor[]): RowKnowledge {
  const asked = requestOf(prompts, inputs);
  if (asked === undefined) {
    return { state: "invalid" };
  }
  for (let number = 1; number <= prompts.tries; number += 1) {
    const key = keyOfTry(asked.sha256, number);
    const kept = prompts.answers.find(key);
    if (kept === undefined) {
      return refused.has(key) ? { state: "invalid" } : { state: "open", asked, key };
    }
    const judged = judgeAnswer(prompts.task, kept, (width) => (prompts.width ??= width));
    if (judged.kind === "values") {
      return { state: "valid" };
    }
    if (judged.reason !== "answer_invalid") {
      return { state: "invalid" };
    }
  }
  return { state: "invalid" };
}

/** What is known of a row from the answers of batches. */
export function stateOfRow(state: BatchState, inputs: readonly NamedTensor[]): BulkRowState {
  return knownOf(state, inputs).state;
}

/** undefined: the prompt is too long, and is not asked */
function requestOf(
  { task, servers: [{ model }], form }: PromptState,
  inputs: readonly NamedTensor[],
): AskedPrompt | undefined {
  const fitted = fitPrompt(task, valuesOf(inputs));
  return fitted.kind === "too long"
    ? undefined
    : askPrompt(task, { model, form, valueOf: (column) => fitted.values.get(column) ?? "" });
}

/** A pass of the worker that sends requests. */
interface Sending {
  file: InputFile;
  /** One for each request of the file. */
  reserved: Reservation[];
  /** Requests that were sent, and batches that were waited for. */
  waitedFor: number;
  /** Requests that the budget did not cover. */
  tooDear: number;
}

/** The share of the requests that the budget must cover: a batch for the last few of many is not worth a day. */
const leastCovered = 0.1;

/** A pass that sends the requests which rows need, a file at a time, and then waits for all batches. */
export function sendingPass(state: BatchState, submitter: Submitter): BulkPass {
  const sending: Sending = { file: createInputFile(), reserved: [], waitedFor: 0, tooDear: 0 };
  const outcomesBefore = state.outcomes;
  let begun: Promise<void> | undefined;
  return {
    async add(inputs) {
      await (begun ??= endUnknown(state, sending));
      await addRow(state, { submitter, sending, inputs });
    },
    async end() {
      if (sending.waitedFor === 0) {
        requireBudget(state, sending);
      }
      warnOfBudget(state, sending);
      await send(state, submitter, sending);
      sending.waitedFor += state.live.size;
      while (state.live.size > 0) {
        await finishOne(state);
      }
      if (sending.waitedFor > 0 && state.outcomes === outcomesBefore) {
        throw new JobError("NETWORK", `asking ${placeText(state)} in batches: none of the requests was answered`, {
          hint: "run the same command again later: what is not answered is not paid for, and is asked again",
        });
      }
      return sending.waitedFor > 0;
    },
  };
}

/** Waits for batches whose requests are not known: those must not be sent again. */
async function endUnknown(state: BatchState, sending: Sending): Promise<void> {
  const { live } = state;
  const unknown = [...live.values()].filter(({ keys }) => keys === undefined);
  sending.waitedFor += unknown.length;
  while (unknown.some(({ batch }) => live.has(batch.id))) {
    await finishOne(state);
  }
}

interface AddedRow {
  readonly submitter: Submitter;
  readonly sending: Sending;
  readonly inputs: readonly NamedTensor[];
}

/** Adds the request that a row needs to the file, and sends the file first if it is full. */
async function addRow(state: BatchState, { submitter, sending, inputs }: AddedRow): Promise<void> {
  const { prompts, underWay, limits } = state;
  const known = knownOf(state, inputs);
  if (known.state !== "open" || underWay.has(known.key) || sending.file.has(known.key)) {
    return;
  }
  const { asked, key } = known;
  const line = lineOf(key, prompts.task.kind, asked);
  if (!sending.file.fits(line, limits)) {
    await send(state, submitter, sending);
  }
  const worst = worstCase(asked, mostCompletionTokens(prompts.task) ?? 0);
  const reservation = prompts.budget.tryReserve(worst);
  if (reservation === undefined) {
    sending.tooDear += 1;
  } else {
    sending.file.add({ key, line, worst });
    sending.reserved.push(reservation);
  }
}

/** @throws JobError BUDGET if the budget covers too few of the requests that are left, or none, and nothing is under way */
function requireBudget({ prompts, live }: BatchState, { file: { requests }, reserved, tooDear }: Sending): void {
  const isCovered = requests.length >= leastCovered * (requests.length + tooDear);
  if (tooDear > 0 && live.size === 0 && (requests.length === 0 || !isCovered)) {
    for (const reservation of reserved) {
      reservation.end();
    }
    throw prompts.budget.spentError();
  }
}

/** Each further batch may take a day. */
function warnOfBudget({ prompts: { servers } }: BatchState, { tooDear }: Pick<Sending, "tooDear">): void {
  if (tooDear > 0) {
    servers[0].retry.warn(
      `model.budget does not cover all prompts at once: ${tooDear} are sent only when the batches before them have ended; a larger budget sends them together`,
    );
  }
}

async function send(state: BatchState, submitter: Submitter, sending: Sending): Promise<void> {
  addControl(state, sending);
  const { file, reserved } = sending;
  [sending.file, sending.reserved] = [createInputFile(), []];
  sending.waitedFor += file.requests.length;
  if (file.requests.length > 0) {
    // One for all: those of each request would fill the memory while many batches are under way.
    const reservation = state.prompts.budget.reserveSent(worstOf(file));
    for (const one of reserved) {
      one.end();
    }
    await submitter.submit(file, reservation);
  }
}

/** Adds a small request to a file of rows on which the server has failed: its answer shows that the server works. */
function addControl({ prompts, faults }: BatchState, { file, reserved }: Sending): void {
  const { budget, task } = prompts;
  const control = controlOf(prompts);
  const worst = worstCase(control, 1);
  const areFaults = file.requests.length > 0 && file.requests.every(({ key }) => faults.has(key));
  const reservation = areFaults ? budget.tryReserve(worst) : undefined;
  if (reservation !== undefined) {
    const key = createHash("sha256").update(`control ${randomUUID()}`).digest("hex"); // of no row, but it is paid for
    file.add({ key, line: lineOf(key, task.kind, control), worst });
    reserved.push(reservation);
  }
}

/**
 * A pass of a worker that sends nothing: it waits until all its rows are answered.
 * @param takeUp looks for batches of the run, and takes the answers of those that have ended
 */
export function waitingPass(state: BatchState, takeUp: () => Promise<{ readonly ended: number }>): BulkPass {
  let open = 0;
  return {
    add(inputs) {
      open += stateOfRow(state, inputs) === "open" ? 1 : 0;
      return Promise.resolve();
    },
    async end() {
      if (open === 0) {
        return false;
      }
      state.run.log(`waiting for worker 0, which asks ${placeText(state)} for ${open} rows of this worker`);
      await untilEnded(state, takeUp);
      return true;
    },
  };
}

/** Waits until a batch has ended. @throws JobError NETWORK if there has been none for `retry.max_seconds` */
async function untilEnded(state: BatchState, takeUp: () => Promise<{ readonly ended: number }>): Promise<void> {
  const { nowMs, maxSeconds } = state.prompts.servers[0].retry;
  const pauses = createPauses(state);
  let aliveMs = nowMs();
  while ((await takeUp()).ended === 0) {
    aliveMs = state.live.size > 0 ? nowMs() : aliveMs;
    if (nowMs() - aliveMs > maxSeconds * 1000) {
      throw await noBatches(state, maxSeconds);
    }
    await pauses.next();
  }
}

/** The error for a worker whose rows no batch asks for. */
async function noBatches(state: BatchState, seconds: number): Promise<JobError> {
  const doing = "waiting for the batches of worker 0";
  const isOnline = (await state.prompts.answers.sentSince(0)) > 0;
  return isOnline
    ? new JobError("NETWORK", `${doing}: worker 0 has transport: online and sends no batches`, {
        hint: "give all workers the same model.server.transport and run the same command again. online: each worker asks for its own rows. batch: worker 0 asks for the rows of all",
      })
    : new JobError("NETWORK", `${doing}: it has sent no batch to ${placeText(state)} for ${seconds} s`, {
        hint: "with transport: batch, worker 0 asks for the rows of all workers: start it, and this one again; or run the command without --worker, which asks for all rows that are left",
      });
}
