import { z } from "../util/zod.js";
import { isMlflowUri } from "./model-uri.js";
import { isObjectUri, objectUriProblem, otherStoreProblem, parseObjectUri, type StoreScheme } from "./object-uri.js";
import { count, text } from "./values.js";

/** How a place in a store is reached; credentials come from the environment, never from the spec. */
export interface StoreSpec {
  /** URL of a store that is not the one of AWS, Google or Azure. */
  readonly endpoint?: string | undefined;
  readonly region?: string | undefined;
  /** bucket in the path of the URL instead of its host; default: where there is an endpoint. */
  readonly path_style?: boolean | undefined;
  readonly request_payer?: "requester" | undefined;
  /** Limits in seconds. */
  readonly timeouts?: { readonly connect: number; readonly silence: number; readonly request: number } | undefined;
}

/** The stores whose paths take a key; all, if it is not named here. */
const storesOfKeys: Readonly<Record<string, readonly StoreScheme[]>> = {
  region: ["s3"],
  path_style: ["s3"],
  request_payer: ["s3"],
  sse: ["s3"],
};

/** Those of `keys` that none of the paths takes, each with what is wrong. */
export function needlessKeys(keys: readonly string[], paths: readonly string[]): { key: string; message: string }[] {
  const inStores = paths.filter((path) => isObjectUri(path) && objectUriProblem(path) === undefined);
  const used = new Set(inStores.map((path) => parseObjectUri(path).scheme));
  return keys.flatMap((key) => {
    const stores: readonly StoreScheme[] = storesOfKeys[key] ?? ["s3", "gs", "az"];
    const written = stores
      .map((scheme) => `${scheme}://`)
      .join(", ")
      .replace(/, (?=[^,]*$)/, " or ");
    return stores.some((scheme) => used.has(scheme))
      ? []
      : [{ key, message: `only a path that starts with ${written} can have this key` }];
  });
}

const endpointError = "expected a URL such as http://minio:9000, without user and password";

/** The keys of a place in a store. */
export const storeKeys = {
  endpoint: text
    .refine(isEndpoint, { error: endpointError })
    .optional()
    .describe(
      "For a store: its URL, if it is not the one of AWS, Google or Azure. Default for S3: AWS_ENDPOINT_URL_S3; for Google Cloud Storage: STORAGE_EMULATOR_HOST.",
    ),
  region: text
    .regex(/^[A-Za-z0-9-]+$/, "expected a region such as eu-central-1")
    .optional()
    .describe("For S3: region. Default: AWS_REGION, else the profile's region, else us-east-1."),
  path_style: z
    .boolean()
    .optional()
    .describe(
      "For S3: true puts the bucket into the path of the URL instead of its host name. Default: true if an endpoint is set.",
    ),
  request_payer: z.literal("requester").optional().describe("For S3: requester agrees to pay for the requests."),
  timeouts: z
    .strictObject({
      connect: count(1, 3600).default(10).describe("Seconds to connect. Default: 10."),
      silence: count(1, 3600).default(20).describe("Seconds without a byte before a request is retried. Default: 20."),
      request: count(1, 86_400)
        .default(300)
        .describe("Seconds for one request, which fetches at most 8 MiB. Default: 300."),
    })
    .optional()
    .describe("Time limits of requests to a store."),
};

function isEndpoint(given: string): boolean {
  try {
    const { protocol, username, password, search, hash } = new URL(given);
    return /^https?:$/.test(protocol) && [username, password, search, hash].every((part) => part === "");
  } catch {
    return false; // no URL: the schema says what is due
  }
}

export interface Problem {
  readonly path: (string | number)[];
  readonly message: string;
}

/** A path in the spec. Its type is unknown, because these checks also run on a spec with other problems. */
interface Given {
  readonly path: (string | number)[];
  readonly text: unknown;
}

/** Checks the places of the input. @param golden the file of golden rows, which is read like the input */
export function inputProblems(
  input: StoreSpec & { readonly path: unknown; readonly ready?: unknown },
  golden: unknown,
): Problem[] {
  const listed = [input.path].flat();
  const paths = listed.map((one, index) => ({
    path: listed.length === 1 ? ["input", "path"] : ["input", "path", index],
    text: one,
  }));
  const others = [
    { path: ["input", "ready"], text: input.ready },
    { path: ["checks", "golden", "path"], text: golden },
  ];
  const all = [...paths, ...others];
  const elsewhere = all.flatMap(({ path, text: given }) => {
    const message = typeof given === "string" ? otherStoreProblem(given) : undefined;
    return message === undefined ? [] : [{ path, message }];
  });
  if (elsewhere.length > 0) {
    return elsewhere;
  }
  const problems = problemsAt("input", input, all);
  return problems.length > 0 ? problems : severalStores(all, input.endpoint !== undefined);
}

/** One store at a time: the keys of the input, such as its endpoint, are those of all its paths. */
function severalStores(paths: readonly Given[], hasEndpoint: boolean): Problem[] {
  const inStores = paths.flatMap(({ path, text: given }) => {
    if (typeof given !== "string" || !isObjectUri(given)) {
      return [];
    }
    const { scheme, bucket } = parseObjectUri(given);
    // An endpoint is that of one account.
    const store = scheme === "az" && hasEndpoint ? `az://${bucket.split("/")[0]}` : `${scheme}://`;
    return [{ path, store }];
  });
  const [first] = inStores;
  const other = inStores.find(({ store }) => store !== first?.store);
  return first === undefined || other === undefined
    ? []
    : [
        {
          path: other.path,
          message: `expected a path on a disk or in the same store as ${first.path.join(".")}, which starts with ${first.store}`,
        },
      ];
}

/** Checks the place of the model. */
export function modelProblems(model: StoreSpec & { readonly path?: unknown }): Problem[] {
  // MLflow's files may be in S3.
  return typeof model.path === "string" && isMlflowUri(model.path)
    ? []
    : problemsAt("model", model, [{ path: ["model", "path"], text: model.path }]);
}

/** Paths that are wrong, and keys that none of the paths takes. */
function problemsAt(key: string, place: StoreSpec, paths: readonly Given[]): Problem[] {
  const wrong = paths.flatMap(({ path, text: given }) => {
    const message = typeof given === "string" && isObjectUri(given) ? objectUriProblem(given) : undefined;
    return message === undefined ? [] : [{ path, message }];
  });
  if (wrong.length > 0) {
    return wrong;
  }
  const keys = Object.keys(storeKeys).filter((name) => place[name as keyof StoreSpec] !== undefined);
  const given = paths.flatMap(({ text: path }) => (typeof path === "string" ? [path] : []));
  return needlessKeys(keys, given).map(({ key: name, message }) => ({ path: [key, name], message }));
}
