import { z } from "zod";
import { isS3Uri, s3UriProblem } from "./s3-uri.js";
import { count, text } from "./values.js";

/** How a place in S3 is reached; credentials come from the environment, never from the spec. */
export interface S3Spec {
  /** URL of a store that is not AWS. */
  readonly endpoint?: string | undefined;
  readonly region?: string | undefined;
  /** bucket in the path of the URL instead of its host; default: where there is an endpoint. */
  readonly path_style?: boolean | undefined;
  readonly request_payer?: "requester" | undefined;
  /** Seconds. */
  readonly timeouts?: { readonly connect: number; readonly silence: number; readonly request: number } | undefined;
}

const endpointError = "expected a URL such as http://minio:9000, without user and password";

/** The keys of a place in S3. */
export const s3Keys = {
  endpoint: text
    .refine(isEndpoint, { error: endpointError })
    .optional()
    .describe("in S3: URL of a store that is not AWS; default: AWS_ENDPOINT_URL_S3, else AWS"),
  region: text
    .regex(/^[A-Za-z0-9-]+$/, "expected a region such as eu-central-1")
    .optional()
    .describe("in S3: default: AWS_REGION, else that of the profile, else us-east-1"),
  path_style: z
    .boolean()
    .optional()
    .describe("in S3: true: bucket in the URL's path, not in its host; default: true where there is an endpoint"),
  request_payer: z.literal("requester").optional().describe("in S3: agrees to pay for the requests"),
  timeouts: z
    .strictObject({
      connect: count(1, 3600).default(10).describe("seconds"),
      silence: count(1, 3600).default(20).describe("seconds without a byte, before a request is made anew"),
      request: count(1, 86_400).default(300).describe("seconds for one request, which is for 8 MiB at most"),
    })
    .optional()
    .describe("in S3"),
};

function isEndpoint(given: string): boolean {
  try {
    const { protocol, username, password, search, hash } = new URL(given);
    return /^https?:$/.test(protocol) && [username, password, search, hash].every((part) => part === "");
  } catch {
    return false;
  }
}

export interface S3Problem {
  readonly path: (string | number)[];
  readonly message: string;
}

/** What is wrong with the paths of a place, or with keys that none of its paths needs. Paths are below the place. */
export function s3Problems(place: S3Spec, paths: readonly { path: (string | number)[]; text: string }[]): S3Problem[] {
  const problems: S3Problem[] = [];
  for (const { path, text: given } of paths) {
    const problem = isS3Uri(given) ? s3UriProblem(given) : undefined;
    if (problem !== undefined) {
      problems.push({ path, message: problem });
    }
  }
  if (paths.every(({ text: given }) => !isS3Uri(given))) {
    for (const key of Object.keys(s3Keys)) {
      if (place[key as keyof S3Spec] !== undefined) {
        problems.push({ path: [key], message: "only a path that starts with s3:// takes this key" });
      }
    }
  }
  return problems;
}
