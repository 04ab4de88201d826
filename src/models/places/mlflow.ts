import { readFile } from "node:fs/promises";
import { posix } from "node:path";
import { parse } from "yaml";
import { type HttpAnswer, type HttpEndpoint, downloadTo, readJson, readText } from "../../base/http/http.js";
import type { TlsSettings } from "../../base/http/request.js";
import { parseJson } from "../../run/plan/parse-plan.js";
import type { ModelOrigin } from "../../run/plan/plan.js";
import { isRecord } from "../../base/guards.js";
import { JobError, assertNever, errnoOf, messageOf } from "../../base/errors.js";
import { sha256Of } from "../../base/sha256.js";
import { printable } from "../../base/texts.js";
import { type Artifacts, fetchedModels, type RemoteModel, type RemoteOptions } from "./cache.js";
import { refuseOutside } from "./model-file.js";
import type { ModelSource } from "./place.js";
import {
  type MlflowUri,
  isObjectUri,
  isPlainUrl,
  objectFolder,
  objectUriProblem,
  parseMlflowUri,
} from "../../job/jobfile/uri.js";
import type { DeclaredField, DeclaredSignature } from "../binding/signatures.js";

interface MlflowModelOptions extends RemoteOptions {
  /** `model.registry.url`, before what the environment names. */
  readonly registryUrl: string | undefined;
  /** The environment, which has the login, too. It is read only when a request is needed. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Opens a folder of files in a store of objects. @param model the model as messages name it */
  readonly openStore: (uri: string, model: string) => Promise<Artifacts>;
}

/**
 * Opens the source of models of MLflow: `models:/name@alias`, `models:/name/version`, `models:/m-id`, `runs:/id/path`.
 * The protocol is the REST API of MLflow 2 and 3. GitLab's registry has the same API.
 * @throws JobError as `ModelSource`; SPEC_INVALID, USAGE if spec and environment name no server, or no login that can be sent
 */
export function mlflowModels(options: MlflowModelOptions): ModelSource {
  const { cache, retry, signal, findProxy } = options;
  return fetchedModels(cache, async (uri, pinned) => {
    const { url, headers, tls } = await serverOf(uri, options);
    const doing = `loading model ${uri}`;
    const place: HttpEndpoint = {
      doing,
      retry,
      signal,
      headers,
      tls,
      findProxy,
      hint: `when ${url} is reachable again, run the same command again`,
      refused: (answer) => refusedBy(answer, doing, url, headers["authorization"] !== undefined),
    };
    const { version, origin, ...located } = await locate({ url, place }, parseMlflowUri(uri), pinned?.version);
    const artifacts = await openArtifacts(options, { url, place }, located, uri);
    try {
      const text = await artifacts.readText("MLmodel");
      const mlModel = parseMlModel(text);
      if (mlModel?.onnxFile === undefined) {
        throw notOnnxError(doing, uri, mlModel?.flavors);
      }
      refuseOutside(uri, mlModel.onnxFile);

      const { onnxFile, signature } = mlModel;
      const pathOf = (location?: string): string =>
        location === undefined ? posix.normalize(onnxFile) : posix.join(posix.dirname(onnxFile), location);
      const remote: RemoteModel = {
        // MLmodel contains an id and a time, which change when a model is logged again.
        place: `${artifacts.place} ${sha256Of(text)}`,
        stateOf: (location) => artifacts.stateOf(pathOf(location)),
        fetch: (path, location) => artifacts.fetch(pathOf(location), path),
        close: () => artifacts.close?.(),
      };
      return { remote, version, signature, origin };
    } catch (error) {
      artifacts.close?.();
      throw error;
    }
  });
}

async function openArtifacts(
  { openStore }: MlflowModelOptions,
  { url, place }: Registry,
  { artifactUri, servedAt }: Pick<LocatedModel, "artifactUri" | "servedAt">,
  model: string,
): Promise<Artifacts> {
  const [, host, root] = /^mlflow-artifacts:(?:\/\/([^/]*))?\/*(.*?)\/*$/.exec(artifactUri) ?? [];
  if (root !== undefined) {
    if (host !== undefined && host !== "" && host !== new URL(url).host) {
      throw unreadable(place, artifactUri);
    }
    return proxiedArtifacts({ url, place }, root);
  }
  if (isObjectUri(artifactUri) && objectUriProblem(artifactUri) === undefined) {
    return await openStore(objectFolder(artifactUri).replace(/\/+$/, ""), model);
  }
  if (servedAt === undefined) {
    throw unreadable(place, artifactUri);
  }
  return shownArtifacts(servedAt, place);
}

function unreadable({ doing }: HttpEndpoint, artifactUri: string): JobError {
  return new JobError("MODEL_INVALID", `${doing}: its files are at ${artifactUri}, which this program cannot read`, {
    hint: "start the server with --serve-artifacts; or download the model (mlflow artifacts download) and name its file",
  });
}

/** @param flavors undefined: MLmodel cannot be read */
function notOnnxError(doing: string, uri: string, flavors: readonly string[] | undefined): JobError {
  if (flavors === undefined) {
    return new JobError("MODEL_INVALID", `${doing}: its MLmodel is damaged`, { hint: "log the model again" });
  }
  const has = flavors.length === 0 ? "no flavor at all" : flavors.join(", ");
  const [, name = "NAME"] = /^models:\/([^/@]+)/.exec(uri) ?? [];
  return new JobError("MODEL_INVALID", `${doing}: it has no flavor onnx, but ${has}`, {
    hint: `convert it in Python (docs/converters.md), log it with mlflow.onnx.log_model(onx, name="model", registered_model_name="${name}"), and set model.path to the new version`,
  });
}

function refusedBy({ status, said, place }: HttpAnswer, doing: string, url: string, hasLogin: boolean): JobError {
  const answer = parseJson(said);
  const message = isRecord(answer) && typeof answer["message"] === "string" ? firstLine(answer["message"]) : undefined;
  if (status === 401) {
    return new JobError(
      "PERMISSION",
      `${doing}: ${url} ${hasLogin ? "refuses the login" : "asks for a login"} (HTTP 401)`,
      {
        hint: "set MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
      },
    );
  }
  if (status === 403) {
    const why = message ?? firstLine(said);
    return new JobError("PERMISSION", `${doing}: ${url} refuses it (HTTP 403)${why === "" ? "" : `: ${why}`}`, {
      hint: /host header/i.test(why)
        ? "start the server with --allowed-hosts and the name that the URL has"
        : "the user needs the permission to read this model",
    });
  }
  // MLflow answers 400 to an alias that does not exist.
  if (message !== undefined) {
    return new JobError("FILE_MISSING", `${doing}: ${message} (${url})`, {
      hint: "set model.path to a model that the registry has, with an alias or a version of it",
    });
  }
  return new JobError("FILE_MISSING", `${doing}: the server answered ${place} with HTTP ${status}`, {
    hint: "set model.registry.url or MLFLOW_TRACKING_URI to the URL of an MLflow server, with its path if it has one",
  });
}

const shownCharacters = 300;

function firstLine(text: string): string {
  const [first = ""] = text.trim().split(/\r?\n/, 1);
  return printable(first.slice(0, shownCharacters).replace(/\.$/, ""));
}

/** A folder of the tracking server's own store, `mlflow-artifacts:/…`, by its path below the store's root. */
function proxiedArtifacts({ url, place }: Registry, root: string): Artifacts {
  const base = `${url}/api/2.0/mlflow-artifacts/artifacts`;
  const urlOf = (path: string): string => `${base}/${`${root}/${path}`.split("/").map(encodeURIComponent).join("/")}`;
  const folders = new Map<string, Promise<ReadonlyMap<string, number>>>();

  /** The sizes of a folder's files by name. Without a listing, a missing file may look like a fault of the server. */
  const sizesIn = async (folder: string): Promise<ReadonlyMap<string, number>> => {
    const asked = new URLSearchParams({ path: posix.join(root, folder) }).toString();
    const sizes = folders.get(folder) ?? readJson(`${base}?${asked}`, place).then(sizesOf);
    folders.set(folder, sizes);
    return await sizes;
  };

  const sizeOf = async (path: string): Promise<number | undefined> =>
    (await sizesIn(posix.dirname(path))).get(posix.basename(path));
  const require = async (path: string): Promise<number> => {
    const size = await sizeOf(path);
    if (size === undefined) {
      throw new JobError("FILE_MISSING", `${place.doing}: the registry has no file ${root}/${path}`, {
        hint: "its files were removed, or were never uploaded: log the model again",
      });
    }
    return size;
  };

  return {
    place: `${url} ${root}`,
    // The files of a version are never changed, so the size identifies a file.
    stateOf: async (path) => (await sizeOf(path))?.toString(),
    async readText(path) {
      await require(path);
      return await readText(urlOf(path), place);
    },
    async fetch(path, to) {
      const expected = await require(path);
      const { sizeBytes } = await downloadTo(urlOf(path), place, to);
      if (sizeBytes !== expected) {
        const found = `${path} has ${sizeBytes} bytes, but the registry lists ${expected}`;
        throw new JobError("NETWORK", `${place.doing}: ${found}`, { hint: "run the same command again" });
      }
      return String(expected);
    },
  };
}

function sizesOf(answer: unknown): ReadonlyMap<string, number> {
  const files = isRecord(answer) && Array.isArray(answer["files"]) ? answer["files"] : [];
  return new Map(
    files
      .filter(isRecord)
      .flatMap(({ path, is_dir: isFolder, file_size: size }): [string, number][] =>
        typeof path === "string" && isFolder !== true ? [[posix.basename(path), Number(size)]] : [],
      ),
  );
}

/** A folder whose files the server only serves one by one, as its web pages do. */
function shownArtifacts(urlOf: (path: string) => string, place: HttpEndpoint): Artifacts {
  return {
    place: urlOf(""),
    stateOf: () => Promise.resolve("written once"),
    readText: async (path) => await readText(urlOf(path), place),
    async fetch(path, to) {
      await downloadTo(urlOf(path), place, to);
      return "written once";
    },
  };
}

/** Where MLflow's server is, and the headers that log in, as its Python client finds them. */
async function serverOf(
  uri: string,
  { registryUrl, env }: MlflowModelOptions,
): Promise<{ readonly url: string; readonly headers: Readonly<Record<string, string>>; readonly tls: TlsSettings }> {
  const read = (name: string): string | undefined => (env[name] === "" ? undefined : env[name]);
  const names = uri.startsWith("models:") ? ["MLFLOW_REGISTRY_URI", "MLFLOW_TRACKING_URI"] : ["MLFLOW_TRACKING_URI"];
  const url = registryUrl ?? names.map(read).find((named) => named !== undefined);
  if (url === undefined) {
    throw new JobError("SPEC_INVALID", `loading model ${uri}: no registry is named`, {
      hint: "set model.registry.url, or MLFLOW_TRACKING_URI, to the URL of the MLflow server",
    });
  }
  if (!isPlainUrl(withoutLogin(url))) {
    throw notServed(uri, url);
  }
  const { username, password } = new URL(url);
  const user = username === "" ? read("MLFLOW_TRACKING_USERNAME") : decodeURIComponent(username);
  const secret = username === "" ? read("MLFLOW_TRACKING_PASSWORD") : decodeURIComponent(password);
  const token = read("MLFLOW_TRACKING_TOKEN")?.trim();
  if (token !== undefined && !/^[\x21-\x7e]+$/.test(token)) {
    throw new JobError("USAGE", "reading MLFLOW_TRACKING_TOKEN: it is not a token", {
      hint: "a token is one word of ASCII characters",
    });
  }
  const authorization =
    user !== undefined && secret !== undefined
      ? `Basic ${Buffer.from(`${user}:${secret}`).toString("base64")}`
      : token === undefined
        ? undefined
        : `Bearer ${token}`;
  const insecure = /^(true|1)$/i.test(read("MLFLOW_TRACKING_INSECURE_TLS") ?? "");
  return {
    url: withoutLogin(url).replace(/\/+$/, ""),
    headers: authorization === undefined ? {} : { authorization },
    tls: insecure
      ? { rejectUnauthorized: false }
      : { ca: await readAuthorities(uri, read("MLFLOW_TRACKING_SERVER_CERT_PATH")) },
  };
}

function withoutLogin(url: string): string {
  return url.replace(/^(https?:\/\/)[^/@]*@/i, "$1");
}

function notServed(uri: string, url: string): JobError {
  const isDatabricks = /^databricks/i.test(url);
  return new JobError(
    "SPEC_INVALID",
    `loading model ${uri}: the registry ${isDatabricks ? "of Databricks" : url} is not supported; use an MLflow server at an http: or https: URL`,
    {
      hint: `download the model (mlflow artifacts download -u ${uri} -d model) and name its file`,
    },
  );
}

async function readAuthorities(uri: string, path: string | undefined): Promise<string | undefined> {
  try {
    return path === undefined ? undefined : await readFile(path, "utf8");
  } catch (cause) {
    throw new JobError("FILE_MISSING", `loading model ${uri}: reading ${path}: ${errnoOf(cause) ?? messageOf(cause)}`, {
      hint: "set MLFLOW_TRACKING_SERVER_CERT_PATH to a file of certificates that this user can read",
      cause,
    });
  }
}

interface LocatedModel {
  /** A version in the registry ("7"), the id of a logged model ("m-…"), or the id of a run. */
  readonly version: string;
  /** The folder of MLmodel, as the server names it: `mlflow-artifacts:/…`, `s3://…`. */
  readonly artifactUri: string;
  /** The URL at which the MLflow server serves a file from any store; undefined: it does not serve the files. */
  readonly servedAt?: ((path: string) => string) | undefined;
  readonly origin?: ModelOrigin | undefined;
}

interface Registry {
  /** The tracking URI, without a slash at its end. */
  readonly url: string;
  readonly place: HttpEndpoint;
}

type Json = Readonly<Record<string, unknown>>;

/** @param planned the version that a plan pins: aliases are not resolved then */
async function locate(registry: Registry, uri: MlflowUri, planned: string | undefined): Promise<LocatedModel> {
  switch (uri.kind) {
    case "run":
      return planned === undefined || planned === uri.runId
        ? await locateOfRun(registry, uri)
        : await locateLogged(registry, planned);
    case "logged":
      return await locateLogged(registry, uri.id);
    case "alias":
    case "version":
    case "latest":
      return await locateVersion(registry, uri, planned);
    default:
      return assertNever(uri);
  }
}

async function locateVersion(
  registry: Registry,
  uri: Extract<MlflowUri, { name: string }>,
  planned: string | undefined,
): Promise<LocatedModel> {
  const { name } = uri;
  const facts = planned === undefined ? await versionOf(registry, uri) : undefined;
  const version = planned ?? textOf(registry, facts, "version");
  // Not `source`, which may be a URI of MLflow itself.
  const answer = await ask(registry, "model-versions/get-download-uri", { name, version });
  return {
    version,
    artifactUri: textOf(registry, answer, "artifact_uri"),
    servedAt: (path) => `${registry.url}/model-versions/get-artifact?${queryOf({ name, version, path })}`,
    origin: facts === undefined ? undefined : originOf(facts["run_id"], facts["tags"]),
  };
}

async function versionOf(registry: Registry, uri: Extract<MlflowUri, { name: string }>): Promise<Json> {
  const { name } = uri;
  switch (uri.kind) {
    case "alias": {
      const answer = await ask(registry, "registered-models/alias", { name, alias: uri.alias });
      return recordOf(registry, answer["model_version"]);
    }
    case "version": {
      const answer = await ask(registry, "model-versions/get", { name, version: uri.version });
      return recordOf(registry, answer["model_version"]);
    }
    case "latest": {
      const model = recordOf(registry, (await ask(registry, "registered-models/get", { name }))["registered_model"]);
      // MLflow lists the latest version of each stage.
      const versions = listOf(model["latest_versions"]);
      const [latest] = versions.toSorted((one, other) => compareVersions(other["version"], one["version"]));
      if (latest === undefined) {
        throw new JobError("FILE_MISSING", `${registry.place.doing}: ${name} has no versions`, {
          hint: "register a version of the model first",
        });
      }
      return latest;
    }
    default:
      return assertNever(uri);
  }
}

function compareVersions(one: unknown, other: unknown): number {
  return String(one).localeCompare(String(other), "en", { numeric: true });
}

async function locateLogged(registry: Registry, id: string): Promise<LocatedModel> {
  const info = await loggedModel(registry, id);
  return {
    version: id,
    artifactUri: textOf(registry, info, "artifact_uri"),
    servedAt: (path) =>
      `${registry.url}/ajax-api/2.0/mlflow/logged-models/${id}/artifacts/files?${queryOf({ artifact_file_path: path })}`,
    origin: originOf(info["source_run_id"], info["tags"]),
  };
}

async function loggedModel(registry: Registry, id: string): Promise<Json> {
  const answer = await ask(registry, `logged-models/${encodeURIComponent(id)}`, {});
  return recordOf(registry, recordOf(registry, answer["model"])["info"]);
}

/** MLflow 3 stores it as a logged model; earlier versions store it among the files of the run. */
async function locateOfRun(
  registry: Registry,
  { runId, path }: Extract<MlflowUri, { kind: "run" }>,
): Promise<LocatedModel> {
  const run = recordOf(registry, (await ask(registry, "runs/get", { run_id: runId }))["run"]);
  const outputs = isRecord(run["outputs"]) ? listOf(run["outputs"]["model_outputs"]) : [];
  for (const { model_id: id } of outputs) {
    if (typeof id === "string" && (await loggedModel(registry, id))["name"] === path) {
      return await locateLogged(registry, id);
    }
  }
  const root = textOf(registry, recordOf(registry, run["info"]), "artifact_uri");
  return {
    version: runId,
    artifactUri: `${root}/${path}`,
    servedAt: (file) => `${registry.url}/get-artifact?${queryOf({ run_uuid: runId, path: `${path}/${file}` })}`,
    origin: { runId, tags: {} },
  };
}

const tagCharacters = 1000;

function originOf(runId: unknown, tags: unknown): ModelOrigin {
  const own = listOf(tags).flatMap(({ key, value }): [string, string][] =>
    // MLflow's own tags name users and their files.
    typeof key === "string" && typeof value === "string" && !key.startsWith("mlflow.")
      ? [[key, value.slice(0, tagCharacters)]]
      : [],
  );
  return {
    ...(typeof runId === "string" && runId !== "" ? { runId } : {}),
    tags: Object.fromEntries(own.toSorted(([one], [other]) => (one < other ? -1 : 1))),
  };
}

function queryOf(query: Readonly<Record<string, string>>): string {
  return new URLSearchParams(query).toString();
}

async function ask({ url, place }: Registry, path: string, query: Readonly<Record<string, string>>): Promise<Json> {
  const asked = queryOf(query);
  return recordOf(
    { url, place },
    await readJson(`${url}/api/2.0/mlflow/${path}${asked === "" ? "" : `?${asked}`}`, place),
  );
}

function recordOf(registry: Registry, answer: unknown): Json {
  if (!isRecord(answer)) {
    throw otherServer(registry);
  }
  return answer;
}

function listOf(answer: unknown): Json[] {
  return Array.isArray(answer) ? answer.filter(isRecord) : [];
}

function textOf(registry: Registry, answer: Json | undefined, key: string): string {
  const text = answer?.[key];
  if (typeof text !== "string" || text === "") {
    throw otherServer(registry);
  }
  return text;
}

function otherServer({ url, place }: Registry): JobError {
  return new JobError("FILE_MISSING", `${place.doing}: ${url} does not answer like MLflow`, {
    hint: "set model.registry.url or MLFLOW_TRACKING_URI to the URL of an MLflow server, with its path if it has one",
  });
}

interface MlModel {
  /** The formats that the model is stored in, such as `sklearn`. */
  readonly flavors: readonly string[];
  /** The ONNX file, below the folder of MLmodel; undefined: the model is not stored as ONNX. */
  readonly onnxFile: string | undefined;
  readonly signature: DeclaredSignature | undefined;
}

/** Parses the text of an MLmodel file; undefined if it is something else. */
export function parseMlModel(text: string): MlModel | undefined {
  const document = parseYaml(text);
  const flavors = isRecord(document) ? document["flavors"] : undefined;
  if (!isRecord(document) || !isRecord(flavors)) {
    return undefined;
  }
  const { onnx } = flavors;
  const data = isRecord(onnx) ? onnx["data"] : undefined;
  return {
    flavors: Object.keys(flavors),
    onnxFile: typeof data === "string" ? data : undefined,
    signature: signatureOf(document["signature"]),
  };
}

function parseYaml(text: string): unknown {
  try {
    return parse(text);
  } catch {
    return undefined; // the caller reports it
  }
}

function signatureOf(signature: unknown): DeclaredSignature | undefined {
  return isRecord(signature)
    ? { inputs: declaredFields(signature["inputs"]), outputs: declaredFields(signature["outputs"]) }
    : undefined;
}

function declaredFields(fields: unknown): DeclaredField[] {
  const list = typeof fields === "string" ? parseJson(fields) : undefined;
  return Array.isArray(list) ? list.filter(isRecord).map(fieldOf) : [];
}

function fieldOf(field: Readonly<Record<string, unknown>>): DeclaredField {
  const name = typeof field["name"] === "string" ? field["name"] : undefined;
  const tensor = field["tensor-spec"];
  if (!isRecord(tensor)) {
    return { kind: "column", name };
  }
  const shape = Array.isArray(tensor["shape"]) ? tensor["shape"] : [];
  return {
    kind: "tensor",
    name,
    dtype: onnxType(String(tensor["dtype"])),
    shape: shape.map((length) => (typeof length === "number" && length >= 0 ? length : null)),
  };
}

/** Returns the ONNX name of a NumPy type. Only texts have another name. */
function onnxType(dtype: string): string {
  return /^(object|str|string|[<>|=]?U\d*)$/.test(dtype) ? "string" : dtype;
}
