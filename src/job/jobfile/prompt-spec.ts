import { columnsIn, parseTemplate, type ResponseColumn, type ResponseColumns } from "../../models/binding/prompt.js";
import { z } from "../../base/zod.js";
import type { ServerSpec } from "./server-spec.js";
import { anyNumber, attempt, checking, countFrom, name, type Refuse, text, tokenizerPath } from "./values.js";

/** What a model is asked for each row. Texts have places for values of columns: `{{column}}`. */
export interface PromptSpec {
  readonly system?: string | undefined;
  /** The question, instead of `input`. `file` names its file until the spec's files are read. */
  readonly user?: string | undefined;
  /** A file with the text of `user`, relative to the spec. */
  readonly file?: string | undefined;
  readonly input?: string | undefined;
  /** Rows whose prompt has more are rejected, or one of their values is cut: see `truncate`. Default: no limit. */
  readonly max_input_tokens?: number | undefined;
  readonly truncate?: TruncateSpec | undefined;
  /** A tokenizer.json, with which `plan` counts the tokens of prompts. It changes no request. Default: bytes are counted. */
  readonly tokenizer?: string | undefined;
  /** Columns of the output that tell about the answer of each row. Default: none. */
  readonly answer_columns?: readonly AnswerColumn[] | undefined;
}

interface TruncateSpec {
  readonly column: string;
  readonly side: "start" | "end";
}

const answerColumns = ["prompt_tokens", "completion_tokens", "finish_reason", "model"] as const;

type AnswerColumn = (typeof answerColumns)[number];

/** More keys of each request. Only those that are named are sent. */
export interface SamplingSpec {
  readonly max_tokens?: number | undefined;
  readonly max_completion_tokens?: number | undefined;
  readonly [key: string]: unknown;
}

/** What a run may spend, over all of its attempts and workers. */
interface BudgetSpec {
  readonly max_tokens?: number | undefined;
  readonly max_cost?: number | undefined;
  readonly price?: PriceSpec | undefined;
}

/** Prices of a million tokens. */
interface PriceSpec {
  readonly input: number;
  /** Default: as `input`. */
  readonly cached_input?: number | undefined;
  readonly output: number;
}

const template = text.superRefine((given, context) => {
  const parsed = parseTemplate(given);
  if ("problem" in parsed) {
    context.addIssue({ code: "custom", message: parsed.problem });
  }
});

const prompt = z
  .strictObject({
    system: template.optional().describe("Text of the system message. It may have {{column}}, too."),
    user: template
      .optional()
      .describe(
        'Text of the user message: "{{subject}}\\n\\n{{body}}". {{column}} stands for the row\'s value of a column, \\{{ for two braces. A row in which such a value is NULL is a bad row.',
      ),
    file: text.optional().describe("File with the text of the user message, relative to the spec, in place of user."),
    input: template
      .optional()
      .describe('Text to be embedded, as "{{body}}", in place of user: the output is a list column `embedding`.'),
    max_input_tokens: countFrom(1, 10_000_000)
      .optional()
      .describe(
        "Most tokens of a row's prompt, four bytes of its texts counted as one. A row with more is rejected as prompt_too_long, or cut: see truncate.",
      ),
    truncate: z
      .strictObject({
        column: text.describe("Column of the prompt whose value is cut, as {{column}} names it."),
        side: z.enum(["start", "end"]).default("end").describe("Side of the value that is cut off. Default: end."),
      })
      .optional()
      .describe("Cuts a value of prompts that have more than max_input_tokens, in place of rejecting their rows."),
    tokenizer: tokenizerPath
      .optional()
      .meta(attempt)
      .describe(
        "The model's tokenizer, with which plan counts the tokens of prompts; without it, plan takes four bytes for a token. A tokenizer.json, relative to the spec; in a store (s3://, gs://, az://); or on the Hugging Face Hub (hf://org/repo[@revision]/tokenizer.json). Only plan and validate read it.",
      ),
    answer_columns: z
      .array(z.enum(answerColumns))
      .min(1)
      .optional()
      .describe("Output columns about each row's answer: prompt_tokens, completion_tokens, finish_reason, model."),
  })
  .superRefine(
    checking(({ system, user, file, input, max_input_tokens: most, truncate }, wrong) => {
      if ([user, file, input].filter((given) => given !== undefined).length !== 1) {
        wrong([], "expected one of user, file and input");
      }
      if (input !== undefined && system !== undefined) {
        wrong(["system"], "a text that is embedded has no system message");
      }
      if (truncate !== undefined && most === undefined) {
        wrong(["truncate"], "expected max_input_tokens in the same prompt");
      }
      if (truncate !== undefined && file === undefined && !columnsIn([system, user, input]).includes(truncate.column)) {
        wrong(["truncate", "column"], `the prompt has no {{${truncate.column}}}`);
      }
      const parsed = parseTemplate(user ?? input ?? "{{}}");
      if (!("problem" in parsed) && parsed.columns.length === 0) {
        wrong(
          [user === undefined ? "input" : "user"],
          "expected a {{column}} in it: all rows would have the same prompt",
        );
      }
    }),
  )
  .describe(
    "What the model is asked for each row, with server.protocol: openai. See prompts.md.",
  ) satisfies z.ZodType<PromptSpec>;

/** Keys of requests that follow from other keys of the spec. */
const ownKeys = new Set(["model", "messages", "input", "stream", "stream_options", "n", "response_format"]);

const mostTokens = countFrom(1, 10_000_000);

const sampling = z
  .looseObject({
    max_tokens: mostTokens
      .optional()
      .describe("Most tokens of an answer. Servers that refuse this key are sent max_completion_tokens."),
    max_completion_tokens: mostTokens.optional().describe("Most tokens of an answer, reasoning included."),
    temperature: anyNumber.optional().describe("0 makes answers as repeatable as the server can."),
    top_p: anyNumber.optional(),
    seed: z.int().optional(),
  })
  .superRefine(
    checking((given, refuse) => {
      for (const key of Object.keys(given).filter((one) => ownKeys.has(one))) {
        refuse([key], "this key of requests comes from the rest of the spec");
      }
      if (given.max_tokens !== undefined && given.max_completion_tokens !== undefined) {
        refuse(["max_tokens"], "expected max_tokens or max_completion_tokens");
      }
    }),
  )
  .describe(
    "More keys of each request, as the server knows them. Only what is named here is sent.",
  ) satisfies z.ZodType<SamplingSpec>;

const money = anyNumber.refine((given) => given >= 0, "expected a number from 0");

const budget = z
  .strictObject({
    max_tokens: countFrom(1, Number.MAX_SAFE_INTEGER)
      .optional()
      .describe("Most tokens of prompts and answers, over all attempts and workers of a run."),
    max_cost: money
      .optional()
      .describe("Most that a run costs, in the currency of price: 20 with prices in dollars is 20 dollars."),
    price: z
      .strictObject({
        input: money.describe("Price of a million tokens of prompts."),
        cached_input: money.optional().describe("Price of those that the server had cached. Default: input."),
        output: money.describe("Price of a million tokens of answers."),
      })
      .optional()
      .describe("Prices of a million tokens, in any currency, from which costs are computed."),
  })
  .refine(({ max_cost: cost, price }) => cost === undefined || price !== undefined, {
    path: ["max_cost"],
    error: "expected model.budget.price as well: { input: 0.15, output: 0.60 }",
  })
  .meta(attempt)
  .describe(
    "What a run may spend. A request whose worst case does not fit is not sent: exit code 67, and what is answered is kept.",
  ) satisfies z.ZodType<BudgetSpec>;

const responseColumn = z
  .strictObject({
    type: z
      .enum(["string", "number", "integer", "boolean"])
      .default("string")
      .describe("Type of the column: text, float64, int64 or bool. Default: string."),
    enum: z.array(z.string()).min(1).max(1000).optional().describe("The texts that an answer may have."),
    minimum: anyNumber.optional().describe("Smallest number."),
    maximum: anyNumber.optional().describe("Largest number."),
    max_length: countFrom(1, 1_000_000).optional().describe("Most characters of a text."),
    description: z.string().optional().describe("Describes this column to the model."),
  })
  .superRefine(
    checking(({ type, enum: allowed, minimum, maximum, max_length: most }, wrong) => {
      const isNumber = type === "number" || type === "integer";
      if (type !== "string" && allowed !== undefined) {
        wrong(["enum"], `only a text has this key, and type is ${type}`);
      }
      if (type !== "string" && most !== undefined) {
        wrong(["max_length"], `only a text has this key, and type is ${type}`);
      }
      for (const [key, given] of Object.entries({ minimum, maximum })) {
        if (given !== undefined && !isNumber) {
          wrong([key], "only numbers have this key: type: number, or type: integer");
        }
      }
      if (minimum !== undefined && maximum !== undefined && minimum > maximum) {
        wrong(["minimum"], "expected no more than maximum");
      }
    }),
  ) satisfies z.ZodType<ResponseColumn>;

const response = z
  .record(name, responseColumn)
  .refine((given) => Object.keys(given).length > 0, "expected at least one column, or leave it out for one text column")
  .describe(
    "Output columns, which answers fill: { label: { enum: [billing, bug] }, confidence: { type: number, minimum: 0, maximum: 1 } }. The server is asked for JSON of this form, and each answer is checked. Default: one text column `response`.",
  ) satisfies z.ZodType<ResponseColumns>;

export interface PromptKeys {
  /** What it is asked for each row. `inputs` are its columns then. */
  readonly prompt?: PromptSpec | undefined;
  readonly sampling?: SamplingSpec | undefined;
  /** The columns that answers fill. Default: one text column. */
  readonly response?: ResponseColumns | undefined;
  readonly budget?: BudgetSpec | undefined;
}

export const promptKeys = {
  prompt: prompt.optional(),
  sampling: sampling.optional(),
  response: response.optional(),
  budget: budget.optional(),
};

interface GivenKeys extends PromptKeys {
  readonly server?: Pick<ServerSpec, "protocol"> | undefined;
  readonly inputs?: unknown;
  readonly outputs?: unknown;
}

export function checkPrompt(keys: GivenKeys, refuse: Refuse): void {
  if (keys.server?.protocol !== "openai") {
    for (const key of (["prompt", "sampling", "response", "budget"] as const).filter(
      (one) => keys[one] !== undefined,
    )) {
      refuse([key], "only a model with server.protocol: openai takes this key");
    }
    return;
  }
  const { prompt: asked, sampling: more = {}, response: columns, budget: limits, inputs, outputs } = keys;
  if (asked === undefined) {
    const message = 'expected the prompt of a row, such as { user: "{{body}}" }, since server.protocol is openai';
    refuse(["prompt"], message);
    return;
  }
  if (inputs !== undefined) {
    refuse(["inputs"], "the columns that model.prompt names are the model's inputs");
  }
  if (outputs !== undefined) {
    refuse(["outputs"], "the columns of model.response are the model's outputs");
  }
  if (columns !== undefined && asked.input !== undefined) {
    refuse(["response"], "a text that is embedded gives one list column, `embedding`");
  }
  const taken = asked.answer_columns?.find((column) => columns !== undefined && column in columns);
  if (taken !== undefined) {
    refuse(["prompt", "answer_columns"], `model.response has a column ${taken}, too`);
  }
  const isLimited = limits?.max_tokens !== undefined || limits?.max_cost !== undefined;
  const isBounded = more.max_tokens !== undefined || more.max_completion_tokens !== undefined;
  if (isLimited && !isBounded && asked.input === undefined) {
    refuse(["budget"], "expected model.sampling.max_tokens as well: the cost of a request is not bounded otherwise");
  }
}

export function withPromptInputs<T extends { readonly prompt?: PromptSpec | undefined }>(model: T): T {
  if (model.prompt === undefined) {
    return model;
  }
  const { system, user, input } = model.prompt;
  const columns = columnsIn([system, user, input]);
  return { ...model, inputs: Object.fromEntries(columns.map((column) => [column, [column]])) };
}

/** Whether a language model has a budget, which a pipe cannot follow: it stores no answers. */
export function hasBudget({
  budget: { max_tokens: tokens, max_cost: cost } = {},
}: Pick<PromptKeys, "budget">): boolean {
  return tokens !== undefined || cost !== undefined;
}
