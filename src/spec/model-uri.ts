import { isS3Uri } from "./s3-uri.js";

/** Whether `model.path` is a URL, rightly written or not. */
export function isHttpUri(path: string): boolean {
  return /^https?:/i.test(path);
}

/** Whether `model.path` is on the Hugging Face Hub, rightly written or not. */
export function isHubUri(path: string): boolean {
  return /^hf:/i.test(path);
}

/** Whether `model.path` is a URI of any kind, not a file of this machine. */
export function isModelUri(path: string): boolean {
  return isS3Uri(path) || isHttpUri(path) || isHubUri(path);
}

/** A file on the Hugging Face Hub: `hf://org/repo[@revision]/path/model.onnx`. */
export interface HubUri {
  /** `org/repo` */
  readonly repo: string;
  /** A branch, tag or commit; undefined: `main`. A slash in it is written %2F. */
  readonly revision: string | undefined;
  /** Below the root of the repository. */
  readonly path: string;
}

const hubUri = /^hf:\/\/([\w.-]+\/[\w.-]+)(?:@([^/]+))?\/(.+)$/;

/** @throws Error where `modelUriProblem` finds one */
export function parseHubUri(uri: string): HubUri {
  const [, repo, revision, path] = hubUri.exec(uri) ?? [];
  if (repo === undefined || path === undefined) {
    throw new Error(`not a URI of the Hugging Face Hub: ${uri}`);
  }
  return { repo, revision: revision === undefined ? undefined : decodeURIComponent(revision), path };
}

/** Registries that are not read, and how their models get here. */
const others: readonly (readonly [RegExp, string])[] = [
  [
    /^(models|runs):/i,
    "MLflow's registry is not read; download the model (mlflow artifacts download) and name its file",
  ],
  [/^azureml:/i, "Azure's registry is not read; download the model (az ml model download) and name its file"],
  [/^arn:/i, "SageMaker's registry is not read; name the model's file in S3"],
  [/^gs:/i, "Google Cloud Storage is not read; download the model (gcloud storage cp) and name its file"],
  [/^(abfss?|wasbs?|az):/i, "Azure's storage is not read; download the model (azcopy) and name its file"],
];

/** Parts of a query that are secrets. A URI becomes part of the plan, which is stored at the target. */
const secretQuery = /(?:^|[?&])[^=&]*(?:sig|signature|token|key|secret|password|credential)[^=&]*=/i;

/** What is wrong with `model.path` as a URI, or undefined. URIs in S3 are checked by `s3UriProblem`. */
export function modelUriProblem(path: string): string | undefined {
  const [, told] = others.find(([scheme]) => scheme.test(path)) ?? [];
  if (told !== undefined) {
    return told;
  }
  if (isHubUri(path)) {
    const segments = new Set(path.split("/").slice(2));
    return hubUri.test(path) && !segments.has("..") && !segments.has(".")
      ? undefined
      : "expected hf://org/repo/path/model.onnx, or hf://org/repo@revision/path/model.onnx";
  }
  return isHttpUri(path) ? urlProblem(path) : undefined;
}

function urlProblem(path: string): string | undefined {
  if (!URL.canParse(path)) {
    return "expected a URL such as https://models.example.com/churn.onnx";
  }
  const { username, password, search } = new URL(path);
  if (username !== "" || password !== "") {
    return "expected a URL without a user name and password: the URL is stored in the plan";
  }
  return secretQuery.test(search)
    ? "expected a URL without a secret in its query: the URL is stored in the plan"
    : undefined;
}
