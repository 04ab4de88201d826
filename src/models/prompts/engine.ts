import { decodeTexts, encodeTexts, type ModelSignature, type NamedTensor, type Tensor } from "../../columns/tensor.js";
import { type ResponseColumn, wholeAnswer } from "../binding/prompt.js";
import { assertNever, JobError } from "../../base/errors.js";
import { sha256Of } from "../../base/sha256.js";
import {
  type Engine,
  type PaidEngine,
  type Price,
  type SpendingLimits,
  type Spent,
  sumOfSpent,
  type TokenCount,
} from "../engine.js";
import { type ModelServers, serversText } from "../served/server.js";
import { type Asked, type ControlRequest, createBudget, openPromptClient } from "./client.js";
import { addAnswer, createKeptAnswers, emptyAnswer, keyOfNoRow, nothingSpent } from "./kept-answers.js";
import {
  type AnswerColumn,
  type AskedPrompt,
  askPrompt,
  bytesPerToken,
  firstForm,
  fitPrompt,
  judgeAnswer,
  type ModelAnswer,
  mostCompletionTokens,
  type PromptFault,
  type PromptTask,
  promptTexts,
  type PromptValues,
  templateTokens,
} from "./task.js";

interface PromptEngineOptions {
  readonly task: PromptTask;
  readonly servers: ModelServers;
  /** The name of the model that answers must have; "*": any; undefined: that of the first answer. */
  readonly version: string | undefined;
  /** How often a row is asked until its answer is valid. */
  readonly tries: number;
  /** How long an answer waits before it is written, at most; undefined: the store says it. */
  readonly flushMs: number | undefined;
  readonly limits: SpendingLimits;
  readonly price: Price | undefined;
}

/** What became of a row. `ms`: milliseconds that its requests took. */
type AnsweredRow = (PromptFault | (PromptValues & { readonly answer: ModelAnswer })) & { readonly ms: number };

/**
 * Asks a language model for each row. A batch is one row: rows are answered, and rejected, one by one. The answer to a row
 * is kept, or that to an equal prompt under way, or asked for.
 */
export function openPromptEngine(options: PromptEngineOptions): Engine {
  const { task, servers, version, tries, limits, price } = options;
  const [{ model, most, retry }] = servers;
  const doing = `asking ${serversText(servers)}`;
  const client = openPromptClient(task.kind, servers, () => controlRequest());
  const budget = createBudget(doing, limits, price);
  const answers = createKeptAnswers(options.flushMs);
  const own = nothingSpent();
  /** Requests that are under way, so that equal ones are sent once. */
  const underWay = new Map<string, Promise<AnsweredRow>>();
  let form = firstForm(task);
  /** The model in the answers so far. */
  let answered = version === "*" ? undefined : version;
  /** Values of the vectors so far. */
  let width: number | undefined;
  /** What all workers have spent, once it was counted. */
  let ofRun: Spent | undefined;
  let [lost, reused, again] = [0, 0, 0];

  /** @throws JobError MODEL_CHANGED if another model has answered before */
  const requireModel = ({ model: named }: ModelAnswer): void => {
    if (named === undefined || version === "*") {
      return;
    }
    answered ??= named;
    if (named !== answered) {
      const due = version === undefined ? "earlier answers of this run name" : "model.server.version is";
      throw new JobError("MODEL_CHANGED", `${doing}: the answer names model ${named}, and ${due} ${answered}`, {
        hint: 'serve that model again and run the same command; abandon this run with --new-run; or allow any name with model.server.version: "*"',
      });
    }
  };

  /** Counts an answer that is of no row: what is kept is what was spent. */
  const countAnswer = ({ tokens }: ModelAnswer): void => {
    const answer = { ...emptyAnswer, tokens };
    addAnswer(own, answer);
    answers.add(keyOfNoRow(), answer);
  };

  /** Counts a request whose answer was lost: it may have been paid for. @param worst the most that it may have taken */
  const countLost = (worst: TokenCount): void => {
    lost += 1;
    answers.addLost(worst);
  };

  /** A request of a few tokens, of no row. */
  const controlRequest = (): ControlRequest => {
    const sampling = task.kind === "embedding" ? task.sampling : { [form.tokensKey]: 1 };
    const small = { ...task, system: undefined, text: { texts: ["1"], columns: [] }, sampling, response: undefined };
    const asked = askPrompt(small, model, form, new Map());
    return { asked, answered: countAnswer, onLost: () => countLost(worstCase(asked, 1)) };
  };

  /** Sends a request within the budget. @param key under which the answer is kept */
  const send = async (asked: AskedPrompt, key: string): Promise<Asked & { readonly ms: number }> => {
    answers.requireKept();
    const worst = worstCase(asked, mostCompletionTokens(task) ?? 0);
    const reservation = await budget.reserve(worst);
    const onLost = (): void => {
      reservation.lost();
      countLost(worst);
    };

    try {
      const outcome = await client.ask({ asked, form, ready: reservation.ready, onLost, tokens: likelyTokens(worst) });
      if (outcome.kind !== "answered") {
        return outcome;
      }

      // Where the server names no tokens, a later attempt must find what the budget has counted.
      const isBounded = limits.tokens !== undefined || limits.cost !== undefined;
      const answer = { ...outcome.answer, tokens: outcome.answer.tokens ?? (isBounded ? worst : undefined) };
      reservation.spent(answer.tokens ?? worst);
      try {
        requireModel(answer);
      } catch (error) {
        countAnswer(answer);
        throw error;
      }
      addAnswer(own, answer);
      answers.add(key, answer);
      return { ...outcome, answer };
    } finally {
      reservation.end();
    }
  };

  /** Asks once, in the form that the server takes; or takes the answer that is kept. @param number counts tries from 1 */
  const askOnce = async (
    values: ReadonlyMap<string, string>,
    number: number,
  ): Promise<Exclude<Asked, { readonly kind: "form" }> & { readonly ms: number }> => {
    for (;;) {
      const before = form;
      const asked = askPrompt(task, model, before, values);
      const key = number === 1 ? asked.sha256 : sha256Of(`${asked.sha256} ${number}`);
      const kept = answers.find(key);
      if (kept !== undefined) {
        reused += number === 1 ? 1 : 0;
        return { kind: "answered", answer: kept, ms: 0 };
      }

      const outcome = await send(asked, key);
      if (outcome.kind !== "form") {
        return outcome;
      }
      if (form === before) {
        form = outcome.form;
        retry.warn(
          before.isStructured === form.isStructured
            ? `the server takes no max_tokens (${outcome.message}): max_completion_tokens is sent in its place`
            : `the server takes no response_format (${outcome.message}): answers are checked, but the server does not hold the model to the columns; tell it in model.prompt to answer in JSON`,
        );
      }
    }
  };

  const askUntilValid = async (values: ReadonlyMap<string, string>): Promise<AnsweredRow> => {
    let ms = 0;
    for (let number = 1; ; number += 1) {
      const asked = await askOnce(values, number);
      ms += asked.ms;
      const judged =
        asked.kind === "answered"
          ? judgeAnswer(task, asked.answer, (found) => (width ??= found))
          : ({ kind: "fault", reason: asked.reason, message: asked.message } as const);
      if (judged.kind === "values" && asked.kind === "answered") {
        return { ...judged, answer: asked.answer, ms };
      }
      if (judged.kind === "fault" && (judged.reason !== "answer_invalid" || number >= tries)) {
        return { ...judged, ms };
      }
    }
  };

  const answerOf = async (values: ReadonlyMap<string, string>): Promise<AnsweredRow> => {
    // In the first form, whichever is sent: it names rows that are equal.
    const { sha256: request } = askPrompt(task, model, firstForm(task), values);
    const same = underWay.get(request);
    if (same !== undefined) {
      reused += 1;
      return await same;
    }

    const asking = askUntilValid(values);
    underWay.set(request, asking);
    try {
      return await asking;
    } finally {
      underWay.delete(request);
    }
  };

  const paid: PaidEngine = {
    limits,
    get spending() {
      const { earlier } = answers;
      const ofOthers = Math.max(0, reused - again);
      return { own: { ...own }, earlier, run: ofRun ?? sumOfSpent(own, earlier), lost, reused: ofOthers, price };
    },
    asksAgain(rows) {
      again += rows;
    },
    async recount(recorded) {
      const found = await answers.recount(own, requireModel);
      const other = await recorded(); // read later: who finishes the run records this before it removes the answers
      ofRun = found && other && other.answers > found.answers ? other : found;
    },
    keep: () => answers.keep(),
    promptTexts(inputs) {
      const fitted = fitPrompt(task, valuesOf(inputs));
      return fitted.kind === "values" ? promptTexts(task, fitted.values) : []; // it is not asked
    },
    addsSpecialTokens: task.kind === "embedding",
    ...(task.mostTokens === undefined
      ? {}
      : {
          unaskable(inputs) {
            const fitted = fitPrompt(task, valuesOf(inputs));
            return fitted.kind === "too long" ? { reason: "prompt_too_long", message: fitted.message } : undefined;
          },
        }),
    templateTokens: templateTokens(task),
    mostCompletionTokens: mostCompletionTokens(task),
    async begin(store, worker) {
      await answers.begin(store, worker.index, requireModel);
      budget.begin(answers.before, worker.count);
      return {
        async [Symbol.asyncDispose]() {
          await answers.keep().catch(() => undefined); // a commit has reported the error, or another one ends the attempt
        },
      };
    },
  };

  return {
    signature: promptSignature(task),
    provider: "openai",
    // More rows than requests in flight: those that wait for a retry must not hold up others.
    concurrency: 2 * most,
    mostRows: 1,
    traffic: client.traffic,
    paid,
    async run({ inputs, outputs, isBlank }) {
      if (isBlank === true) {
        return { kind: "failed", message: "made-up rows are not asked: answers cost money", inputs };
      }
      const values = valuesOf(inputs);
      const fitted = fitPrompt(task, values);
      if (fitted.kind === "too long") {
        return { kind: "failed", message: fitted.message, reason: "prompt_too_long", inputs };
      }

      const answer = await answerOf(fitted.values).catch((error: unknown) => {
        client.stop(error);
        throw error;
      });
      if (answer.kind === "fault") {
        const message = withoutValues(answer.message, [values, fitted.values]);
        return { kind: "failed", message, reason: answer.reason, inputs };
      }
      return { kind: "done", outputs: outputs.map((name) => tensorOf(task, answer, name)), ms: answer.ms, inputs };
    },
    [Symbol.asyncDispose]() {
      answers[Symbol.dispose]();
      return Promise.resolve();
    },
  };
}

function valuesOf(inputs: readonly NamedTensor[]): ReadonlyMap<string, string> {
  return new Map(inputs.map((input) => [input.name, textOf(input)]));
}

/** Tokens that chat templates add, at most. */
const mostTemplateTokens = 64;

/** The most tokens that a request can take: a token has at least one byte. */
function worstCase({ body }: AskedPrompt, completion: number): TokenCount {
  return { prompt: body.length + mostTemplateTokens, cached: 0, completion };
}

/** Tokens as servers count them before they answer: a token has about four bytes, and the answer may be as long as allowed. */
function likelyTokens({ prompt, completion }: TokenCount): number {
  return Math.ceil(prompt / bytesPerToken) + completion;
}

/** Values of so many characters are removed from messages: shorter ones may be parts of other words. */
const quotedLength = 8;
/** A text that begins with so many characters of a value counts as the beginning of the value. */
const beginning = 24;

/**
 * What a server said, without values of the row that it may quote: they belong in no log.
 * @param values those of the row, and those that were sent: one of them may be cut
 */
function withoutValues(message: string, values: readonly ReadonlyMap<string, string>[]): string {
  let text = message;
  for (const value of new Set(values.flatMap((one) => [...one.values()]))) {
    for (const form of [value, JSON.stringify(value).slice(1, -1)]) {
      const plain = form.replaceAll(/\s+/g, " ").trim(); // as the message was made
      if (plain.length >= quotedLength) {
        text = text.replaceAll(plain, "…");
        const begun = text.indexOf(plain.slice(0, beginning)); // the message may end within it
        text = plain.length > beginning && begun >= 0 ? `${text.slice(0, begun)}…` : text;
      }
    }
  }
  return text;
}

const embeddingColumn = "embedding";

/** The inputs and outputs of a task: its columns, each a text, and those that answers fill. */
export function promptSignature({ kind, system, text, response, answerColumns = [] }: PromptTask): ModelSignature {
  const columns = [...new Set([...(system?.columns ?? []), ...text.columns])];
  const inputs = columns.map((name) => ({ name, dtype: "string", shape: [null] }));
  const outputs =
    kind === "embedding"
      ? [{ name: embeddingColumn, dtype: "float32", shape: [null, null] }]
      : Object.entries(response ?? { [wholeAnswer]: { type: "string" } as const }).map(([name, { type }]) => ({
          name,
          dtype: dtypes[type],
          shape: [null],
        }));
  const about = answerColumns.map((name) => ({ name, dtype: answerDtypes[name], shape: [null] }));
  return { inputs, outputs: [...outputs, ...about] };
}

const dtypes = { string: "string", number: "float64", integer: "int64", boolean: "bool" } as const satisfies Record<
  ResponseColumn["type"],
  string
>;

const answerDtypes = {
  prompt_tokens: "int64",
  completion_tokens: "int64",
  finish_reason: "string",
  model: "string",
} as const satisfies Record<AnswerColumn, string>;

function textOf(tensor: NamedTensor): string {
  const [text = ""] = tensor.dtype === "string" ? decodeTexts(tensor.data) : [];
  return text;
}

function tensorOf(
  { response, answerColumns = [] }: PromptTask,
  { values, embedding, answer }: PromptValues & { readonly answer: ModelAnswer },
  name: string,
): Tensor {
  const about = answerColumns.find((column) => column === name);
  if (embedding !== undefined && about === undefined) {
    return { dtype: "float32", dims: [1, embedding.length], data: embedding };
  }
  const value = about === undefined ? values.get(name) : aboutAnswer(answer)[about];
  const dtype = about === undefined ? dtypes[response?.[name]?.type ?? "string"] : answerDtypes[about];
  if (value === undefined) {
    throw new RangeError(`no answer has a column ${name}`);
  }
  switch (dtype) {
    case "string":
      return { dtype, dims: [1], data: encodeTexts([String(value)]) };
    case "bool":
      return { dtype, dims: [1], data: Uint8Array.of(Number(value)) };
    case "int64":
      return { dtype, dims: [1], data: BigInt64Array.of(BigInt(value)) };
    case "float64":
      return { dtype, dims: [1], data: Float64Array.of(Number(value)) };
    default:
      return assertNever(dtype);
  }
}

function aboutAnswer({ tokens, finish, model }: ModelAnswer): Readonly<Record<AnswerColumn, string | number>> {
  return {
    prompt_tokens: tokens?.prompt ?? 0,
    completion_tokens: tokens?.completion ?? 0,
    finish_reason: finish ?? "",
    model: model ?? "",
  };
}
