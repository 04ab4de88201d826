/**
 * URIs of objects in stores: the one place that knows which store a scheme names, and how its URIs are written. What is
 * reached at such a URI is opened by `stores/objects/open.ts`.
 */

export type StoreScheme = "s3" | "gs" | "az";

export interface ObjectUri {
  readonly scheme: StoreScheme;
  /** In Azure `account/container`. */
  readonly bucket: string;
  /** The key without escapes. */
  readonly key: string;
}

interface StoreForm {
  readonly form: string;
  readonly pattern: RegExp;
  readonly bucket: RegExp;
  readonly bucketRule: string;
}

const forms: Readonly<Record<StoreScheme, StoreForm>> = {
  s3: {
    form: "s3://bucket/key",
    pattern: /^s3:\/\/([^/]*)(?:\/(.*))?$/s,
    // Names that AWS gives, and the older and looser ones of other stores.
    bucket: /^[A-Za-z0-9][A-Za-z0-9._-]{1,254}$/,
    bucketRule: "the bucket's name may have letters, digits, dots, - and _, and no wildcards",
  },
  gs: {
    form: "gs://bucket/key",
    pattern: /^gs:\/\/([^/]*)(?:\/(.*))?$/s,
    bucket: /^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$/,
    bucketRule: "the bucket's name may have small letters, digits, dots, - and _, and no wildcards",
  },
  az: {
    form: "az://account/container/key",
    pattern: /^az:\/\/([^/]*\/[^/]*)(?:\/(.*))?$/s,
    bucket: /^[a-z0-9]{3,24}(?:\.[a-z0-9.-]+)?\/(?:[a-z0-9][a-z0-9-]{1,61}[a-z0-9]|\$root|\$web)$/,
    bucketRule:
      "names of accounts and containers have small letters and digits, those of containers also -, and no wildcards",
  },
};

const schemes = Object.keys(forms) as StoreScheme[];

/** How Hadoop and Spark write a place in Azure: the container, the account's host, the key. */
const hadoopAzure = /^(?:abfss|wasbs):\/\/([^/@]*)@([^/]*)(?:\/(.*))?$/is;

/** Whether a path of a spec is meant to be in a store of objects, rightly written or not. */
export function isObjectUri(path: string): boolean {
  return /^(s3|gs|az|abfss|wasbs):/i.test(path);
}

function split(path: string): ObjectUri | undefined {
  const [whole, container, host = "", inContainer = ""] = hadoopAzure.exec(path) ?? [];
  if (whole !== undefined) {
    const account = host.replace(".dfs.", ".blob.").replace(/\.blob\.core\.windows\.net$/, "");
    return { scheme: "az", bucket: `${account}/${container}`, key: inContainer };
  }
  for (const scheme of schemes) {
    const [, bucket, key = ""] = forms[scheme].pattern.exec(path) ?? [];
    if (bucket !== undefined && bucket !== "") {
      return { scheme, bucket, key };
    }
  }
  return undefined;
}

/** Reads the URI of an object, of a folder, or of a whole bucket. @throws Error where `objectUriProblem` says something */
export function parseObjectUri(path: string): ObjectUri {
  const uri = split(path);
  if (uri === undefined) {
    throw new Error(`not the URI of an object: ${path}`);
  }
  return uri;
}

/** The one way in which a URI is written here. */
export function objectUriText({ scheme, bucket, key }: ObjectUri): string {
  return `${scheme}://${bucket}${key === "" ? "" : `/${key}`}`;
}

/** How Hadoop, Spark and OpenLineage name a bucket. */
export function bucketName({ scheme, bucket }: ObjectUri): string {
  const [account = "", container = ""] = bucket.split("/");
  const host = account.includes(".") ? account.replace(".blob.", ".dfs.") : `${account}.dfs.core.windows.net`;
  return scheme === "az" ? `abfss://${container}@${host}` : `${scheme}://${bucket}`;
}

export function objectFolder(path: string): string {
  return objectUriText(parseObjectUri(path)).replace(/\/$/, "");
}

const otherStores: readonly (readonly [RegExp, string])[] = [
  [/^s3[an]:/i, "this is Hadoop's name of a place in S3; write s3:// in its place"],
  [/^gcs:/i, "write gs:// in its place"],
  [
    /^(abfs|wasb|adl|azure):/i,
    "write az://account/container/path, or abfss://container@account.dfs.core.windows.net/path",
  ],
  [
    /^(hdfs|dbfs|viewfs):/i,
    "this file system is not supported; copy the files to a disk or to a store such as S3, or mount it and name the path",
  ],
  [/^file:/i, "expected a path without file://"],
];

/** What is wrong with a URI of a store that is neither a disk nor a store of objects that is supported, or undefined. */
export function otherStoreProblem(path: string): string | undefined {
  return otherStores.find(([store]) => store.test(path))?.[1];
}

const keyLimitBytes = 1024;

/** A signature in what was pasted from a signed URL. A URI becomes part of the plan, which is stored at the target. */
const signature = /[?&](?:sig|X-(?:Amz|Goog)-Signature)=/i;

export function objectUriProblem(path: string): string | undefined {
  const uri = split(path);
  const scheme = uri?.scheme ?? schemes.find((one) => path.toLowerCase().startsWith(`${one}:`)) ?? "az";
  const { form, bucket, bucketRule } = forms[scheme];
  if (signature.test(path)) {
    return `expected ${form} without a signature, which would be stored in the plan; give credentials by the environment`;
  }
  if (/^(?:abfss|wasbs):/i.test(path) && uri === undefined) {
    return "expected abfss://container@account.dfs.core.windows.net/key";
  }
  if (uri === undefined) {
    return path.startsWith(`${scheme}://`) ? `expected ${form}; ${bucketRule}` : `expected ${form}, in lower case`;
  }
  if (!bucket.test(uri.bucket)) {
    return `expected ${form}; ${bucketRule}`;
  }
  if (uri.key === "") {
    return `expected ${form}: after the ${scheme === "az" ? "container" : "bucket"} the name of an object is missing`;
  }
  if (uri.key.split("/").some((segment) => segment === "." || segment === "..")) {
    return "expected a key without . or .. between slashes: in a store they are names, not folders";
  }
  if (scheme === "az" && uri.key.includes("\\")) {
    return "expected a name without \\, which Azure turns into /";
  }
  return new TextEncoder().encode(uri.key).length > keyLimitBytes
    ? `expected a key of at most ${keyLimitBytes} bytes`
    : undefined;
}

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

export function isRegistryUri(path: string): boolean {
  return isHttpUri(path) || isHubUri(path) || isMlflowUri(path);
}

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
