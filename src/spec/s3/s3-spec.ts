import { z } from "../../util/zod.js";
import { isMlflowUri } from "../model-uri.js";
import { isS3Uri, otherStoreProblem, s3UriProblem } from "./s3-uri.js";
import { count, text } from "../values.js";

/** How a place in S3 is reached; credentials come from the environment, never from the spec. */
export interface S3Spec {
  /** URL of a store that is not AWS. */
  readonly endpoint?: string | undefined;
  readonly region?: string | undefined;
  /** bucket in the path of the URL instead of its host; default: where there is an endpoint. */
  readonly path_style?: boolean | undefined;
  readonly request_payer?: "requester" | undefined;
  /** Limits in seconds. */
  readonly timeouts?: { readonly connect: number; readonly silence: number; readonly request: number } | undefined;
}

export const needlessError = "only a path that starts with s3:// can have this key";
const endpointError = "expected a URL such as http://minio:9000, without user and password";

/** The keys of a place in S3. */
export const s3Keys = {
  endpoint: text
    .refine(isEndpoint, { error: endpointError })
    .optional()
    .describe("For S3: URL of a store that is not AWS. Default: AWS_ENDPOINT_URL_S3, else AWS."),
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
    .describe("Time limits of requests to S3."),
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
  input: S3Spec & { readonly path: unknown; readonly ready?: unknown },
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
  return elsewhere.length > 0 ? elsewhere : problemsAt("input", input, all);
}

/** Checks the place of the model. */
export function modelProblems(model: S3Spec & { readonly path?: unknown }): Problem[] {
  // MLflow's files may be in S3.
  return typeof model.path === "string" && isMlflowUri(model.path)
    ? []
    : problemsAt("model", model, [{ path: ["model", "path"], text: model.path }]);
}

/** Paths that are wrong, and keys that none of the paths needs. */
function problemsAt(key: string, place: S3Spec, paths: readonly Given[]): Problem[] {
  const inS3 = paths.flatMap(({ path, text: given }) =>
    typeof given === "string" && isS3Uri(given) ? [{ path, message: s3UriProblem(given) }] : [],
  );
  const needless = Object.keys(s3Keys).filter((name) => place[name as keyof S3Spec] !== undefined);
  return [
    ...inS3.flatMap(({ path, message }) => (message === undefined ? [] : [{ path, message }])),
    ...(inS3.length > 0 ? [] : needless).map((name) => ({
      path: [key, name],
      message: needlessError,
    })),
  ];
}
