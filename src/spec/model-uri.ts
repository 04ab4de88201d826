import { isObjectUri, otherStoreProblem } from "./object-uri.js";

/** Whether `model.path` is a URL, rightly written or not. */
export function isHttpUri(path: string): boolean {
  return /^https?:/i.test(path);
}

/** Whether `model.path` names the Hugging Face Hub. The rest of it may be wrong. */
export function isHubUri(path: string): boolean {
  return /^hf:/i.test(path);
}

/** Whether `model.path` names MLflow's registry or an MLflow run. The rest of it may be wrong. */
export function isMlflowUri(path: string): boolean {
  return /^(models|runs):/i.test(path);
}

/** Whether only a server can resolve `model.path`. */
export function isRegistryUri(path: string): boolean {
  return isHttpUri(path) || isHubUri(path) || isMlflowUri(path);
}

/** Whether the model of a plan is on a server. */
export function isServedUri(uri: string): boolean {
  return /^(v[12]|json|openai):/.test(uri);
}

/** Whether a model's path is a URI, not a file on this machine. */
export function isModelUri(uri: string): boolean {
  return isObjectUri(uri) || isRegistryUri(uri) || isServedUri(uri);
}

/** Whether a text is an HTTP URL without user and password. */
export function isPlainUrl(given: string): boolean {
  if (!URL.canParse(given)) {
    return false;
  }
  const { protocol, username, password } = new URL(given);
  return /^https?:$/.test(protocol) && username === "" && password === "";
}

/** A model of MLflow, from a URI. */
export type MlflowUri =
  | { readonly kind: "alias"; readonly name: string; readonly alias: string }
  | { readonly kind: "version"; readonly name: string; readonly version: string }
  | { readonly kind: "latest"; readonly name: string }
  /** A logged model, `models:/m-<id>`. */
  | { readonly kind: "logged"; readonly id: string }
  | { readonly kind: "run"; readonly runId: string; readonly path: string };

/** @throws Error where `modelUriProblem` finds one */
export function parseMlflowUri(uri: string): MlflowUri {
  const parsed = mlflowUriOf(uri);
  if (parsed === undefined) {
    throw new Error(`not a URI of MLflow: ${uri}`);
  }
  return parsed;
}

function mlflowUriOf(uri: string): MlflowUri | undefined {
  const [, runId, path] = /^runs:\/([\w-]+)\/([^?#]+?)\/?$/.exec(uri) ?? [];
  if (runId !== undefined && path !== undefined) {
    return { kind: "run", runId, path };
  }
  const [, id] = /^models:\/(m-[0-9a-f]+)$/.exec(uri) ?? [];
  if (id !== undefined) {
    return { kind: "logged", id };
  }
  const [, name, mark, rest] = /^models:\/([^/:@]+)([@/])([^/:@]+)$/.exec(uri) ?? [];
  if (name === undefined || rest === undefined) {
    return undefined;
  }
  return mark === "@"
    ? { kind: "alias", name, alias: rest }
    : rest === "latest"
      ? { kind: "latest", name }
      : { kind: "version", name, version: rest };
}

function mlflowProblem(uri: string): string | undefined {
  const expected =
    "expected models:/name@alias, models:/name/version, models:/name/latest, models:/m-id or runs:/id/path";
  const parsed = mlflowUriOf(uri);
  if (
    /^models:\/\/[^/]*databricks/i.test(uri) ||
    (parsed !== undefined && "name" in parsed && isCatalogName(parsed.name))
  ) {
    return `the registry of Unity Catalog is not supported; download the model (MLFLOW_REGISTRY_URI=databricks-uc mlflow artifacts download -u ${uri} -d model) and name its file`;
  }
  if (parsed?.kind === "version" && /^(none|staging|production|archived)$/i.test(parsed.version)) {
    return `stages are not supported, since MLflow has replaced them by aliases; write models:/${parsed.name}@${parsed.version.toLowerCase()}`;
  }
  const segments = parsed?.kind === "run" ? parsed.path.split("/") : [];
  return parsed === undefined || segments.includes("..") || segments.includes(".") ? expected : undefined;
}

/** Whether a name is one of Unity Catalog, with three parts: catalog.schema.model. */
function isCatalogName(name: string): boolean {
  return /^[^.]+\.[^.]+\.[^.]+$/.test(name);
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
  [/^azureml:/i, "Azure's registry is not read; download the model (az ml model download) and name its file"],
  [/^arn:/i, "SageMaker's registry is not read; name the model's file in S3"],
];

/** Parts of a query that are secrets. A URI becomes part of the plan, which is stored at the target. */
const secretQuery = /(?:^|[?&])[^=&]*(?:sig|signature|token|key|secret|password|credential)[^=&]*=/i;

/** What is wrong with `model.path` as a URI, or undefined. URIs of objects are checked by `objectUriProblem`. */
export function modelUriProblem(path: string): string | undefined {
  const [, registry] = others.find(([scheme]) => scheme.test(path)) ?? [];
  const problem = registry ?? otherStoreProblem(path);
  if (problem !== undefined) {
    return problem;
  }
  if (isHubUri(path)) {
    const segments = new Set(path.split("/").slice(2));
    return hubUri.test(path) && !segments.has("..") && !segments.has(".")
      ? undefined
      : "expected hf://org/repo/path/model.onnx, or hf://org/repo@revision/path/model.onnx";
  }
  if (isMlflowUri(path)) {
    return mlflowProblem(path);
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
