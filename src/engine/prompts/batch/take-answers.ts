import { createHash } from "node:crypto";
import { assertNever, JobError } from "../../../util/errors.js";
import type { TokenCount } from "../../paid-engine.js";
import { MalformedAnswer } from "../../served/message.js";
import { refusalOf } from "../../served/server.js";
import type { ModelAnswer } from "../answer.js";
import { formWarning, requireModel } from "../ask-row.js";
import type { RowRefusal } from "../bulk.js";
import { count } from "../kept-answers.js";
import type { RequestForm } from "../request.js";
import { quotaError } from "./batch-api.js";
import type { Batch } from "./batch-object.js";
import { type LineOutcome, readResultLine } from "./result-line.js";
import { type BatchState, placeText, worstIn } from "./run-batches.js";

/** Batches in which the server may fail on a request before its row is rejected. */
const faultsOfRow = 3;
/** Equal refusals, before any answer, after which the requests are wrong and not the rows. */
const equalRefusals = 20;

/** What the files of a batch say, apart from its answers. */
interface Found {
  hasAnswers: boolean;
  readonly refused: Map<string, RowRefusal>;
  readonly faults: Map<string, string>;
  form: { readonly form: RequestForm; readonly message: string } | undefined;
  /** Ends the attempt, once the answers are kept. */
  error: unknown;
}

/**
 * Reads the output and error files of a batch that has ended, keeps its answers, and remembers what was refused. A batch
 * that expired or was cancelled has answers, too: they were paid for.
 * @param isEarlier an earlier attempt, or another worker, has seen the end: what ended that attempt may be mended by now.
 * A worker that sends nothing counts refusals that did not end it, as they are not asked again
 * @throws JobError QUOTA, MODEL_INVALID, MODEL_CHANGED, after the answers are kept
 */
export async function takeAnswers(state: BatchState, batch: Batch, isEarlier: boolean): Promise<void> {
  const found: Found = { hasAnswers: false, refused: new Map(), faults: new Map(), form: undefined, error: undefined };
  const { outputFile, errorFile, completed } = batch;
  const answersBefore = state.answers;
  const paying = state.prompts.budget.reserveSent({ prompt: 0, cached: 0, completion: 0 });
  const usual = usualTokens(batch);
  const take = (line: string): void => {
    const { key, outcome } = readLine(state, line);
    if (outcome.kind === "answered") {
      found.hasAnswers = true;
      keepAnswer(state, { key, answer: outcome.answer, usual, found }, (tokens) => paying.spent(tokens));
    } else {
      note(state, found, key, outcome);
    }
  };
  try {
    await (outputFile === undefined ? undefined : state.api.lines(outputFile, { take, atLeast: completed }));
    await (errorFile === undefined ? undefined : state.api.lines(errorFile, { take }));
  } finally {
    paying.end();
    await state.prompts.answers.keep();
  }
  const wrong = wrongRequests(found, answersBefore);
  apply(state, found, isEarlier && (state.isSubmitter ? isAllRefused(found) : wrong !== undefined));
  if (wrong !== undefined && !isEarlier) {
    throw wrongError(state, wrong);
  }
  if (found.error !== undefined && (!isEarlier || (found.error as JobError).code === "MODEL_CHANGED")) {
    throw found.error;
  }
}

function readLine({ prompts: { task, form, servers } }: BatchState, line: string): ReturnType<typeof readResultLine> {
  try {
    return readResultLine(line, task.kind, form);
  } catch (error) {
    if (error instanceof MalformedAnswer) {
      throw new JobError("MODEL_INVALID", `reading the answers of a batch of ${servers[0].model}: ${error.message}`, {
        hint: "check that model.server.url is a server with OpenAI's Batch API",
      });
    }
    throw error;
  }
}

/** The tokens of an answer that names none: an equal part of the most that the batch takes. */
function usualTokens(batch: Batch): TokenCount {
  const { prompt, completion } = worstIn(batch);
  const requests = Math.max(1, batch.total);
  return { prompt: Math.ceil(prompt / requests), cached: 0, completion: Math.ceil(completion / requests) };
}

interface TakenAnswer {
  readonly key: string;
  readonly answer: ModelAnswer;
  readonly usual: TokenCount;
  readonly found: Found;
}

/** Keeps an answer, unless it is kept. One of another model is counted, and ends the attempt. */
function keepAnswer(
  state: BatchState,
  { key, answer: given, usual, found }: TakenAnswer,
  spent: (tokens: TokenCount) => void,
): void {
  const { prompts } = state;
  const { answers, own, limits, fresh } = prompts;
  const error = errorOf(() => requireModel(prompts, given));
  found.error ??= error;
  const name = error === undefined ? key : createHash("sha256").update(`no row ${key}`).digest("hex");
  if (answers.has(name)) {
    return;
  }
  state.answers += 1;
  state.outcomes += 1;
  const isBounded = limits.tokens !== undefined || limits.cost !== undefined;
  const answer = { ...given, tokens: given.tokens ?? (isBounded ? usual : undefined) };
  if (!state.isSubmitter) {
    answers.borrow(name, answer);
    return;
  }
  spent(answer.tokens ?? usual);
  count(own, answer);
  answers.add(name, answer);
  fresh.add(name);
}

function note(state: BatchState, found: Found, key: string, outcome: Exclude<LineOutcome, { kind: "answered" }>): void {
  const { servers } = state.prompts;
  const doing = `asking ${placeText(state)} in a batch`;
  switch (outcome.kind) {
    case "row":
      found.refused.set(key, { reason: outcome.reason, message: outcome.message });
      break;
    case "form":
      found.form ??= outcome;
      break;
    case "fault":
      found.faults.set(key, outcome.message);
      break;
    case "quota":
      found.error ??= quotaError(doing, outcome.message);
      break;
    case "final":
      found.error ??= refusalOf(servers[0], doing, outcome);
      break;
    case "unasked":
    case "overloaded":
      break; // the request is sent again
    default:
      assertNever(outcome);
  }
}

/** @param isVoid its refusals do not count */
function apply(state: BatchState, { hasAnswers, refused, faults, form }: Found, isVoid: boolean): void {
  const { prompts } = state;
  if (form !== undefined) {
    const before = prompts.form;
    prompts.form = form.form;
    state.outcomes += 1;
    prompts.servers[0].retry.warn(formWarning(before, form));
  }
  if (isVoid) {
    return;
  }
  for (const [key, refusal] of refused) {
    state.outcomes += state.refused.has(key) ? 0 : 1;
    state.refused.set(key, refusal);
  }
  for (const [key, message] of hasAnswers ? faults : []) {
    const times = (state.faults.get(key) ?? 0) + 1;
    state.faults.set(key, times);
    state.outcomes += 1;
    if (times >= faultsOfRow) {
      state.refused.set(key, { reason: undefined, message });
    }
  }
}

/** So many refusals without an answer may be no fault of the rows. */
function isAllRefused({ refused, hasAnswers }: Found): boolean {
  return !hasAnswers && refused.size >= equalRefusals;
}

interface WrongRequests {
  readonly count: number;
  readonly message: string;
}

/** Why the requests are wrong: nothing was answered yet, and all were refused for one reason. undefined: they are not */
function wrongRequests(found: Found, answersBefore: number): WrongRequests | undefined {
  const all = [...found.refused.values()];
  const { message = "" } = all[0] ?? {};
  const isOne = all.every((refusal) => refusal.reason === undefined && refusal.message === message);
  return isAllRefused(found) && answersBefore === 0 && isOne ? { count: all.length, message } : undefined;
}

function wrongError(state: BatchState, { count: refusals, message }: WrongRequests): JobError {
  return new JobError(
    "MODEL_INVALID",
    `asking ${placeText(state)} in a batch: each of the first ${refusals} requests was refused: ${message}`,
    { hint: "check model.sampling, model.response and model.server.name: only what they name is sent" },
  );
}

function errorOf(work: () => void): unknown {
  try {
    work();
    return undefined;
  } catch (error) {
    return error;
  }
}
