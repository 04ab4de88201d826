import { z } from "../../base/zod.js";
import { storeKeys, type StoreSpec } from "./input-spec.js";
import { checkPrompt, type PromptKeys, promptKeys, withPromptInputs } from "./prompt-spec.js";
import { withoutQuery } from "./secrets.js";
import { server, type ServerSpec } from "./server-spec.js";
import { isHttpUri, isMlflowUri, isPlainUrl, modelUriProblem } from "./uri.js";
import { anyNumber, attempt, checking, countFrom, name, type Refuse, text, tokenizerPath } from "./values.js";

export interface ModelSpec extends StoreSpec, PromptKeys {
  /** The model's path or URI. A spec has either this or `server`. */
  readonly path?: string | undefined;
  readonly server?: ServerSpec | undefined;
  /** The MLflow server with the model's registry. Default: MLFLOW_TRACKING_URI. */
  readonly registry?: { readonly url: string } | undefined;
  /** The SHA-256 that the file must have, in hexadecimal. */
  readonly sha256?: string | undefined;
  readonly inputs?: Readonly<Record<string, InputSource>> | undefined;
  /** Output column -> `tensor` or `tensor[i]`. */
  readonly outputs?: Readonly<Record<string, string>> | undefined;
  readonly cast: "exact" | "lossy";
  readonly missing: "bad_row" | "nan";
}

/** Columns in order; padded lists; tokens of texts; where such have elements; or token types of such texts. */
export type InputSource = readonly string[] | PaddedSource | TokensSource | MaskSource | TypesSource;

export interface PaddedSource {
  readonly column: string;
  readonly pad: PadSpec;
}

export interface PadSpec {
  /** The number of elements of each row. Default: the number in the model's shape. */
  readonly to?: number | undefined;
  readonly value: number;
  readonly side: "left" | "right";
  /** Whether a longer list is cut to its first elements; otherwise its row is rejected. */
  readonly truncate: boolean;
  /** Whether a batch is only as wide as its longest list. */
  readonly shrink: boolean;
}

export interface TokensSource {
  /** A text column. */
  readonly tokenize: string;
  /** A tokenizer.json, relative to the spec, or its URI. */
  readonly tokenizer: string;
  /** The greatest number of tokens of a text, special tokens included. Default: that of the tokenizer's file, else 64. */
  readonly max?: number | undefined;
  /** Batches are only as wide as their longest text. Default: where the model has a mask of the tokens. */
  readonly shrink?: boolean | undefined;
}

interface TypesSource {
  readonly types_of: string;
}

export interface MaskSource {
  readonly mask_of: string;
}

const longestRow = 1_048_576;

const pad = z.strictObject({
  to: countFrom(1, longestRow)
    .optional()
    .describe("Length to which each list is padded. Default: the length in the model's shape."),
  value: anyNumber.default(0).describe("Value that shorter lists are padded with. Default: 0."),
  side: z.enum(["left", "right"]).default("right").describe("Side on which padding is added."),
  truncate: z
    .boolean()
    .default(false)
    .describe("true keeps the first elements of a list that is too long; false makes its row a bad row."),
  shrink: z
    .boolean()
    .default(false)
    .describe("true pads each batch only to its longest list. For models that take any length and apply their mask."),
}) satisfies z.ZodType<PadSpec>;

const filled = z
  .strictObject({
    column: text.optional().describe("Column of lists of numbers."),
    pad: pad.optional(),
    tokenize: text.optional().describe("Text column whose token ids this input takes."),
    tokenizer: tokenizerPath
      .optional()
      .describe(
        "The tokenizer: a tokenizer.json, relative to the spec; in a store (s3://, gs://, az://); or on the Hugging Face Hub (hf://org/repo[@revision]/tokenizer.json).",
      ),
    max: countFrom(2, longestRow)
      .optional()
      .describe(
        "Most tokens of a text, special tokens included. Longer texts are truncated. Default: the length in the model's shape, else that in the tokenizer's file, else 64.",
      ),
    shrink: z
      .boolean()
      .optional()
      .describe(
        "true sorts texts by length and pads each call of the model only to its longest text. Default: true for a model that takes any length and has a mask of the tokens.",
      ),
    mask_of: text
      .optional()
      .describe(
        "Name of an input of lists or tokens. This input is its attention mask: 1 for elements, 0 for padding.",
      ),
    types_of: text.optional().describe("Name of an input of tokens. This input is their token types."),
  })
  .superRefine(checking(checkSource))
  .transform(({ column = "", pad: how = pad.parse({}), ...given }): Exclude<InputSource, readonly string[]> => {
    const { tokenize, tokenizer = "", mask_of: maskOf, types_of: typesOf, max, shrink } = given;
    return tokenize !== undefined
      ? { tokenize, tokenizer, ...(max === undefined ? {} : { max }), ...(shrink === undefined ? {} : { shrink }) }
      : typesOf !== undefined
        ? { types_of: typesOf }
        : maskOf === undefined
          ? { column, pad: how }
          : { mask_of: maskOf };
  });

type GivenSource = Readonly<
  Partial<Record<"column" | "pad" | "tokenize" | "tokenizer" | "max" | "shrink" | "mask_of" | "types_of", unknown>>
>;

const forms: readonly (readonly (keyof GivenSource)[])[] = [
  ["column", "pad"],
  ["tokenize", "tokenizer", "max", "shrink"],
  ["mask_of"],
  ["types_of"],
];

function checkSource(given: GivenSource, wrong: Refuse): void {
  const used = forms.filter((keys) => keys.some((key) => given[key] !== undefined));
  const [form = []] = used;
  if (used.length !== 1) {
    wrong([], "expected either column and pad, tokenize and tokenizer, mask_of, or types_of");
  } else if (form[0] === "column" && given.column === undefined) {
    wrong(["column"], "expected the column of lists to be padded");
  } else if (form[0] === "column" && given.pad === undefined) {
    wrong(["pad"], "expected how its lists are filled up, such as { to: 128 }");
  } else if (form[0] === "tokenize" && given.tokenize === undefined) {
    wrong(["tokenize"], "expected the text column to be tokenized");
  } else if (form[0] === "tokenize" && given.tokenizer === undefined) {
    wrong(["tokenizer"], "expected the tokenizer.json that belongs to the model, such as models/tokenizer.json");
  }
}

const inputSource = z.union([z.array(text).min(1), filled], {
  error: "expected a list of columns, { column, pad }, { tokenize, tokenizer }, { mask_of } or { types_of }",
}) satisfies z.ZodType<InputSource>;

const modelPath = text.superRefine((path, context) => {
  const message = modelUriProblem(path);
  if (message !== undefined) {
    context.addIssue({ code: "custom", message });
  }
});

const bindingKeys = {
  inputs: z
    .record(z.string(), inputSource)
    .optional()
    .describe(
      "What each model input is made from: columns in the model's order (struct fields as user.age), { column, pad } for lists of any length, { tokenize, tokenizer } for texts, { mask_of } for the mask of either, or { types_of } for token types. Default: the column of the input's name; for a single [N,F] input, the numeric columns in file order, except those in output.columns and those from folder names.",
    ),
  outputs: z
    .record(name, text)
    .refine(
      (outputs) => Object.keys(outputs).length > 0,
      "expected at least one output, or leave it out for all of them",
    )
    .optional()
    .describe(
      "Output columns: the name of an output tensor, or tensor[i] for one element of each row. Default: each tensor output under its own name.",
    ),
  cast: z
    .enum(["exact", "lossy"])
    .default("exact")
    .describe(
      "What happens to a number that the input's type cannot hold exactly. exact: an integer that a float type would round, or a fraction for an integer type, is a bad row; lossy: it is rounded. With both, a number outside the type's range is a bad row, and doubles and decimals are rounded for float inputs.",
    ),
  missing: z
    .enum(["bad_row", "nan"])
    .default("bad_row")
    .describe("bad_row makes a row with a NULL or NaN feature bad; nan passes NULL to the model as NaN."),
};

const modelSha256 = z.string().regex(/^[0-9a-f]{64}$/, "expected 64 lower-case hex digits");

export const model = z
  .strictObject({
    path: modelPath
      .optional()
      .describe(
        "ONNX file, relative to the spec; in a store (s3://bucket/key, gs://bucket/key, az://account/container/key); in MLflow's registry (models:/name@alias, models:/name/version); of an MLflow run (runs:/id/path); on the Hugging Face Hub (hf://org/repo[@revision]/path/model.onnx); or at a URL (https://…, with sha256).",
      ),
    server: server.optional(),
    ...promptKeys,
    registry: z
      .strictObject({
        url: text
          .refine(isPlainUrl, "expected a URL such as https://mlflow.example.com, without user and password")
          .meta(attempt)
          .describe(
            "URL of the MLflow server. Credentials come from MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD.",
          ),
      })
      .optional()
      .describe("The MLflow server for a path that starts with models:/ or runs:/. Default: MLFLOW_TRACKING_URI."),
    sha256: modelSha256.optional().describe("SHA-256 that the model file must have."),
    ...bindingKeys,
    ...storeKeys,
  })
  .superRefine(checking(checkPlace("model")))
  .superRefine(
    checking(({ path = "", sha256, registry }, refuse) => {
      if (registry !== undefined && !isMlflowUri(path)) {
        refuse(["registry"], "only a model whose path starts with models:/ or runs:/ can have this key");
      }
      if (isHttpUri(path) && sha256 === undefined) {
        const message =
          "expected the model's sha256 for a URL, because its server could send another file: `infer-batch inspect` shows it for a downloaded file";
        refuse(["sha256"], message);
      }
    }),
  )
  .superRefine(checking(checkPrompt))
  .transform((given) => withPromptInputs(given)) satisfies z.ZodType<ModelSpec>;

/** Expects either `path` or `server` of a key of the spec, and no digest of a file with a server. */
function checkPlace(key: string): (given: ModelPlaces, refuse: Refuse) => void {
  return ({ path, server: served, sha256, inputs }, refuse) => {
    if (path === undefined && served === undefined) {
      refuse(["path"], `expected a text; or write ${key}.server instead of ${key}.path`);
    } else if (path !== undefined && served !== undefined) {
      refuse(["server"], "expected either path or server");
    } else if (served !== undefined && sha256 !== undefined) {
      refuse(["sha256"], "only a model with a path can have this key");
    }
    for (const [input, source] of Object.entries(served === undefined ? {} : (inputs ?? {}))) {
      if ("tokenize" in source) {
        const message = "only a model with a path takes tokens: texts are tokenized where the model is";
        refuse(["inputs", input, "tokenize"], message);
      }
    }
  };
}

/** The URIs of the tokenizers of a model's inputs, each with the input that names it first. */
export function tokenizerUris({ inputs = {} }: Pick<ModelSpec, "inputs">): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const [input, source] of Object.entries(inputs)) {
    if ("tokenize" in source && !found.has(source.tokenizer)) {
      found.set(source.tokenizer, input);
    }
  }
  return found;
}

type ModelPlaces = Pick<ModelSpec, "path" | "server" | "sha256" | "inputs">;

/** The model as plans name it: its path, or protocol and name (json: path) of a model that a server has ("v2:churn"). */
export function modelUri({ path, server: served }: Pick<ModelSpec, "path" | "server">): string {
  return served === undefined ? (path ?? "") : `${served.protocol}:${served.name ?? withoutQuery(served.path ?? "")}`;
}

/** `probabilities[1]` -> tensor and element; undefined when the text is neither a name nor `name[i]`. */
export function parseOutputReference(reference: string): { tensor: string; element: number | undefined } | undefined {
  const [, tensor, element] = /^([^[\]]+)(?:\[(\d{1,9})\])?$/.exec(reference) ?? [];
  return tensor === undefined ? undefined : { tensor, element: element === undefined ? undefined : Number(element) };
}

/** A second model, whose predictions are compared with the champion's (`model`) and published nowhere. */
export interface ChallengerSpec
  extends Pick<ModelSpec, "path" | "server" | "sha256" | "inputs" | "outputs" | "cast" | "missing"> {
  /** Numbers that differ by more are counted. */
  readonly tolerance: number;
}

/** The challenger as a model of its own: what says how a registry or a store is reached holds for both. */
export function challengerModel(champion: ModelSpec, challenger: ChallengerSpec): ModelSpec {
  const { path, sha256, inputs, outputs, cast, missing } = challenger;
  return { ...champion, path, server: challenger.server, sha256, inputs, outputs, cast, missing };
}

export const challenger = z
  .strictObject({
    path: modelPath
      .optional()
      .describe("A second model, named as model.path names the first. Its predictions are not published."),
    server: server.optional(),
    sha256: modelSha256.optional().describe("SHA-256 that the challenger's file must have."),
    ...bindingKeys,
    cast: bindingKeys.cast.unwrap().optional().describe("As model.cast, which is the default."),
    missing: bindingKeys.missing.unwrap().optional().describe("As model.missing, which is the default."),
    tolerance: z
      .number("expected a number")
      .min(0, "expected 0 or more")
      .default(0.01)
      .describe(
        "Rows whose two predictions differ by more than this are counted, for outputs that are floating-point numbers.",
      ),
  })
  .superRefine(checking(checkPlace("challenger")))
  .superRefine(
    checking(({ path = "", sha256, server: served }, refuse) => {
      if (served?.protocol === "openai") {
        const message =
          "a language model cannot be a challenger: its answers would cost money, and would neither be stored nor counted against model.budget";
        refuse(["server", "protocol"], message);
      }
      if (isHttpUri(path) && sha256 === undefined) {
        refuse(["sha256"], "expected the challenger's sha256 next to a URL, whose server could send another file");
      }
    }),
  );

/** Says where keys of the challenger are, given as those of a model: `["model", "server"]` is `["challenger", "server"]`. */
export function challengerPlaces<T>(where: (path: readonly string[]) => T): (path: readonly string[]) => T {
  return ([first = "", ...others]) => where([first === "model" ? "challenger" : first, ...others]);
}

/** Rewrites keys of a model in a text as those of the challenger: `model.outputs.p` becomes `challenger.outputs.p`. */
export function challengerKeys(message: string): string {
  return message.replaceAll(
    /(?<![\w./-])model\.(?=(?:path|server|sha256|inputs|outputs|cast|missing)\b)/g,
    "challenger.",
  );
}
