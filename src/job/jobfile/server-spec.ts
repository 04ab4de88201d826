import { isTensorType, type ModelSignature, numericTensorTypes, type TensorSignature } from "../../columns/tensor.js";
import { z } from "../../base/zod.js";
import { isPlainUrl } from "./uri.js";
import { attempt, autoOrCount, checking, countFrom, plan, type Refuse, secret, text } from "./values.js";

/** The body of a request: JSON in which a text `{{NAME}}` stands for values of the batch. */
type RequestTemplate = Readonly<Record<string, unknown>>;

const layouts = ["instances", "records", "inputs", "dataframe_split"] as const;
const requestError = `expected instances, inputs, dataframe_split, or a mapping such as { input_data: "{{instances}}" }`;

const requestForm = z.union([z.enum(["instances", "inputs", "dataframe_split"]), z.record(z.string(), z.unknown())], {
  error: requestError,
});

/** The template that a form of requests stands for. */
export function templateOf(form: string | RequestTemplate): RequestTemplate {
  return typeof form === "string" ? { [form]: `{{${form}}}` } : form;
}

function templateProblem(template: RequestTemplate, inputs: readonly string[]): string | undefined {
  const known: readonly string[] = [...layouts, ...inputs];
  const { names, isKey } = placeholdersIn(template);
  const unknown = names.find((name) => !known.includes(name));
  if (isKey) {
    return "expected placeholders as values, not as keys";
  }
  if (unknown !== undefined) {
    return `\`{{${unknown}}}\` is no placeholder; they are ${known.map((name) => `{{${name}}}`).join(", ")}`;
  }
  return names.length === 0 ? `expected a placeholder in it, such as "{{instances}}"` : undefined;
}

function placeholdersIn(value: unknown): { readonly names: readonly string[]; readonly isKey: boolean } {
  const texts: string[] = [];
  let isKey = false;
  // Visits each value; a placeholder is a text of its own.
  JSON.stringify(value, (key, one: unknown) => {
    isKey ||= /^\{\{.*\}\}$/.test(key);
    if (typeof one === "string") {
      texts.push(one);
    }
    return one;
  });
  const names = texts.flatMap((given) => /^\{\{([^{}"\\]+)\}\}$/.exec(given)?.[1] ?? []);
  return { names, isKey };
}

const types = [...numericTensorTypes, "string"].join(", ");
const tensorError = `expected a type such as float32, "float32[10]" for 10 values in a row, or "float32[]" for any number; types are ${types}`;

/** A tensor as a spec describes it: its type, and the values of a row. */
const tensor = z
  .string({ error: tensorError })
  .regex(/^[a-z0-9]+(\[\d{0,7}\])?$/, tensorError)
  .transform(tensorOf)
  .refine(({ dtype }) => isTensorType(dtype), { error: tensorError, params: { showFound: true } });

function tensorOf(given: string): Omit<TensorSignature, "name"> {
  const [, dtype = "", isList, width = ""] = /^([a-z0-9]+)(\[(\d*)\])?$/.exec(given) ?? [];
  return { dtype, shape: isList === undefined ? [null] : [null, width === "" ? null : Number(width)] };
}

const tensors = z
  .record(z.string().min(1), tensor)
  .refine((given) => Object.keys(given).length > 0, "expected at least one entry")
  .transform((given) => Object.entries(given).map(([name, { dtype, shape }]) => ({ name, dtype, shape })));

/** The inputs and outputs of a model whose server does not describe them. */
const signature = z.strictObject({
  inputs: tensors.describe(
    "Inputs by name, in the model's order, each with the type of a row's value: float32, string, or \"float32[10]\" for a list of 10 values.",
  ),
  outputs: tensors.describe('Outputs by name, written as inputs are; "float32[]" is a list of any length.'),
}) satisfies z.ZodType<ModelSignature>;

export interface ServerTlsSpec {
  readonly ca?: string | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
}

export interface ServerSpec {
  readonly protocol: "v2" | "v1" | "json" | "openai";
  /** At least one; all have the same model. */
  readonly url: readonly string[];
  /** Files in PEM, relative to the spec. */
  readonly tls?: ServerTlsSpec | undefined;
  /** v2, v1, openai: the model's name at the server. */
  readonly name?: string | undefined;
  /** json: the path of predictions. */
  readonly path?: string | undefined;
  /** Default: the version that the server names. */
  readonly version?: string | undefined;
  /** v1, json: the layout of requests, or a template of their body. Default: instances. */
  readonly request?: string | RequestTemplate | undefined;
  /** v1, json: where answers have the predictions. Default: predictions, or outputs for v1 with inputs. */
  readonly response?: readonly (string | number)[] | undefined;
  readonly signature?: ModelSignature | undefined;
  /** How requests are authorised. Default: bearer with a token, else by the headers alone. */
  readonly auth?: "bearer" | "sigv4" | undefined;
  /** A secret: sent as `Authorization: Bearer`. */
  readonly token?: string | undefined;
  /** More headers of each request. Their values are secrets. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Seconds that a request may take. Default: 60; openai: 600. */
  readonly timeout?: number | undefined;
  /** The limit of requests in flight. */
  readonly concurrency: number | "auto";
  /** openai: how often a row is asked until its answer is valid. Default: 2. */
  readonly tries?: number | undefined;
  /** openai: seconds after which answers are durable. Default: 2. */
  readonly flush_seconds?: number | undefined;
}

/** Names and versions are segments of the protocol's paths. */
const pathPart = (what: string): z.ZodString =>
  text.regex(/^[^/?#\s]{1,255}$/, `expected the ${what} as in the server's paths, without / and blanks`);

/** Names of language models may have slashes: they are sent in the body. */
const modelName = text.regex(/^[^?#\s]{1,255}$/, "expected the model's name as the server has it, without blanks");

/** Headers that requests have anyway, or that are about the connection. */
const ownHeaders: ReadonlySet<string> = new Set([
  "accept-encoding",
  "connection",
  "content-encoding",
  "content-length",
  "content-type",
  "expect",
  "host",
  "inference-header-content-length",
  "transfer-encoding",
]);

const headerError = "expected the name of an HTTP header that requests do not have anyway, such as api-key";

/** What HTTP allows in a header: Latin-1 without control characters. The value itself is a secret. */
const headerValue = z
  .string()
  .min(1)
  .regex(/^[\t -~\u0080-\u00ff]*$/, "expected characters of Latin-1 on one line, as HTTP sends them");

/** Their values are secrets. */
const requestHeaders = z.record(
  z
    .string()
    .refine(
      (name) => /^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}$/.test(name) && !ownHeaders.has(name.toLowerCase()),
      headerError,
    ),
  headerValue,
);

const pathError =
  "expected a path such as predictions, data.scores or outputs[0].data; a dot alone is the whole answer";

/** Where an answer has its predictions: names of keys and indices of lists; none: the answer is the predictions. */
const responsePath = z
  .string({ error: pathError })
  .regex(/^(\.|[^.[\]\s]+(\[\d{1,6}\])*(\.[^.[\]\s]+(\[\d{1,6}\])*)*)$/, pathError)
  .transform((given): readonly (string | number)[] =>
    (given.match(/\[\d+\]|[^.[\]]+/g) ?? []).map((part) => (part.startsWith("[") ? Number(part.slice(1, -1)) : part)),
  );

const url = text.refine(isPlainUrl, "expected a URL such as http://triton:8000, without user and password");

const tls = z
  .strictObject({
    ca: text
      .optional()
      .describe("File in PEM with certificates of authorities, in place of those that Node.js trusts."),
    cert: text.optional().describe("File in PEM with the certificate that is shown to the server; with key."),
    key: text.optional().describe("File in PEM with the private key of cert, without a passphrase."),
  })
  .refine(({ cert, key }) => (cert === undefined) === (key === undefined), "expected cert and key together")
  .refine((given) => Object.keys(given).length > 0, "expected ca, or cert and key") satisfies z.ZodType<ServerTlsSpec>;

export const server = z
  .strictObject({
    protocol: z
      .enum(["v2", "v1", "json", "openai"])
      .meta(plan)
      .describe(
        "v2 is the Open Inference Protocol over HTTP, of Triton, KServe, MLServer and others; v1 is the REST API of TensorFlow Serving and KServe; json is any server that answers a POST of rows in JSON with predictions in JSON; openai is a language model behind /v1/chat/completions or /v1/embeddings, of OpenAI, vLLM, llama.cpp, TGI and gateways: see prompts.md.",
      ),
    url: z
      .union([url.transform((one) => [one]), z.array(url).min(1).max(64)], {
        error: "expected a URL such as http://triton:8000, or a list of them",
      })
      .describe(
        "URL of the server, without /v2 or /v1; or a list of servers that have the same model. For openai also the base URL that clients of OpenAI take, as https://api.openai.com/v1.",
      ),
    tls: tls.optional(),
    name: modelName.optional().meta(plan).describe("For v2, v1 and openai: name of the model at the server."),
    path: text
      .regex(/^\/[^\s#]*$/, "expected a path such as /invocations")
      .optional()
      .meta(plan)
      .describe("For json: path of the predictions at the server, such as /invocations."),
    version: pathPart("version")
      .optional()
      .meta(plan)
      .describe(
        'For v2 and v1: version of the model. Default: the one that the server names when the run is planned. For openai: the name of the model that answers must have, such as gpt-4o-mini-2024-07-18; "*" allows any. Default: the name in the first answer.',
      ),
    request: requestForm
      .optional()
      .meta(plan)
      .describe(
        'For v1 and json: instances sends a list of rows, inputs a list for each input, dataframe_split (json) the rows and the names of the inputs. For json also a mapping that is the body of requests, in which "{{instances}}", "{{records}}", "{{inputs}}", "{{dataframe_split}}" or the name of an input in such braces stands for values. Default: instances.',
      ),
    response: responsePath
      .optional()
      .meta(plan)
      .describe(
        "For v1 and json: where answers have the predictions, as data.scores. Default: predictions; for v1 with request: inputs, outputs.",
      ),
    signature: signature.optional().meta(plan),
    auth: z
      .enum(["bearer", "sigv4"])
      .optional()
      .describe(
        "bearer sends token. For json also sigv4: requests are signed for AWS (SageMaker, API Gateway), with the credentials of the environment as for S3. Default: bearer with a token, else headers alone.",
      ),
    token: text
      .optional()
      .meta(secret)
      .describe("Token that requests carry as Authorization: Bearer, best from the environment."),
    headers: requestHeaders
      .optional()
      .meta(secret)
      .describe("More headers of each request, as api-key: ${API_KEY}. Their values are treated as secrets."),
    timeout: countFrom(1, 3600)
      .optional()
      .describe(
        "Time limit of a request, in seconds. A request that takes longer is retried until retry.max_seconds. Default: 60; for openai 600.",
      ),
    tries: countFrom(1, 10)
      .optional()
      .describe("For openai: how often a row is asked until its answer is as model.response says. Default: 2."),
    flush_seconds: z
      .number()
      .min(0.05)
      .max(3600)
      .optional()
      .describe(
        "For openai: seconds that an answer waits at most before it is written to the target. A killed attempt pays again for the answers of this time. Default: 0.2 in Postgres, 1 in files.",
      ),
    concurrency: autoOrCount(1, 1024)
      .default("auto")
      .describe(
        "Requests in flight, at most, to all servers together. auto finds the number with the highest throughput, up to 128, or 256 for openai. Fewer are sent while the server is overloaded.",
      ),
  })
  .superRefine(checking(checkKeys))
  .meta(attempt)
  .describe("A model that a server has, in place of path. See served-models.md.") satisfies z.ZodType<ServerSpec>;

const protocolsOf = {
  name: ["v2", "v1", "openai"],
  version: ["v2", "v1", "openai"],
  path: ["json"],
  request: ["v1", "json"],
  response: ["v1", "json"],
  signature: ["v1", "json"],
  tries: ["openai"],
  flush_seconds: ["openai"],
} as const satisfies Partial<Record<keyof ServerSpec, readonly ServerSpec["protocol"][]>>;

function checkKeys(given: ServerSpec, refuse: Refuse): void {
  const { protocol, request, signature: { inputs } = { inputs: [] } } = given;
  const wrong = (key: string, message: string): void => refuse([key], message);
  for (const [key, protocols] of Object.entries(protocolsOf) as [keyof typeof protocolsOf, readonly string[]][]) {
    if (given[key] !== undefined && !protocols.includes(protocol)) {
      wrong(key, `only protocol ${protocols.join(" or ")} takes this key`);
    }
  }
  for (const key of protocol === "json" ? (["path", "signature"] as const) : (["name"] as const)) {
    if (given[key] === undefined) {
      wrong(key, `expected this key, since the protocol is ${protocol}`);
    }
  }
  if (protocol !== "openai" && given.name?.includes("/") === true) {
    wrong("name", "expected the model's name as in the server's paths, without /");
  }
  if (protocol === "v1" && request !== undefined && request !== "instances" && request !== "inputs") {
    wrong("request", "expected instances or inputs, since the protocol is v1");
  } else if (protocol === "json" && request !== undefined) {
    const problem = templateProblem(
      templateOf(request),
      inputs.map(({ name }) => name),
    );
    if (problem !== undefined) {
      wrong("request", problem);
    }
  }
  checkLogin(given, wrong);
}

function checkLogin(
  { protocol, auth, token, headers = {} }: ServerSpec,
  wrong: (key: string, message: string) => void,
): void {
  const names = Object.keys(headers).map((name) => name.toLowerCase());
  const isSigned = auth === "sigv4";
  if (new Set(names).size < names.length || ((token !== undefined || isSigned) && names.includes("authorization"))) {
    wrong("headers", "a header comes twice; token and auth: sigv4 are the header authorization");
  }
  if (auth === "bearer" && token === undefined) {
    wrong("token", "expected this key, since auth is bearer");
  } else if (isSigned && protocol !== "json") {
    wrong("auth", "only protocol json takes sigv4");
  } else if (isSigned && token !== undefined) {
    wrong("token", "expected no token, since auth is sigv4");
  }
}
