import { readFile } from "node:fs/promises";
import { posix } from "node:path";
import { downloadTo, type HttpAnswer, type HttpEndpoint, readJson, readText } from "../../net/http.js";
import type { TlsSettings } from "../../net/request.js";
import { parseJson } from "../../plan/parse-plan.js";
import { isPlainUrl, parseMlflowUri } from "../../spec/model-uri.js";
import { isObjectUri, objectFolder, objectUriProblem } from "../../spec/object-uri.js";
import { isRecord } from "../../util/checks.js";
import { errnoOf, JobError, messageOf } from "../../util/errors.js";
import { printable } from "../../util/texts.js";
import { sha256Of } from "../../util/sha256.js";
import { refuseOutside } from "../model-file.js";
import type { ModelSource } from "../port.js";
import { type Artifacts, cachedOrFetched, findPinned, type RemoteOptions } from "../remote.js";
import { parseMlModel } from "./mlmodel.js";
import { locate, type LocatedModel, type Registry } from "./registry.js";

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
  return {
    async resolve(uri, pinned) {
      const cached = await findPinned(cache, uri, pinned);
      if (cached !== undefined) {
        return cached;
      }

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
        refused: (answer) => refusedBy(answer, { doing, url, hasLogin: headers["authorization"] !== undefined }),
      };

      const located = await locate({ url, place }, parseMlflowUri(uri), pinned?.version);
      using artifacts = await openArtifacts(options, { url, place }, located, uri);
      const text = await artifacts.readText("MLmodel");
      const mlModel = parseMlModel(text);
      if (mlModel?.onnxFile === undefined) {
        throw notOnnxError(doing, uri, mlModel?.flavors);
      }
      refuseOutside(uri, mlModel.onnxFile);

      const { onnxFile } = mlModel;
      const pathOf = (location?: string): string =>
        location === undefined ? posix.normalize(onnxFile) : posix.join(posix.dirname(onnxFile), location);
      const file = await cachedOrFetched(cache, {
        name: uri,
        // MLmodel contains an id and a time, which change when a model is logged again.
        place: `${artifacts.place} ${sha256Of(text)}`,
        stateOf: (location) => artifacts.stateOf(pathOf(location)),
        fetch: (path, location) => artifacts.fetch(pathOf(location), path),
      });
      return { file, version: located.version, signature: mlModel.signature, origin: located.origin };
    },
    [Symbol.dispose]() {},
  };
}

/** Opens the folder of a model's files at the URI that the server returned. */
async function openArtifacts(
  { openStore }: MlflowModelOptions,
  { url, place }: Registry,
  { artifactUri, servedAt }: LocatedModel,
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

/** Python that converts a model of a flavor to ONNX, by flavor. */
const converters: Readonly<Record<string, string>> = {
  sklearn: "skl2onnx.to_onnx(mlflow.sklearn.load_model(URI), X[:1], options={'zipmap': False})",
  lightgbm: "onnxmltools.convert_lightgbm(mlflow.lightgbm.load_model(URI), initial_types=TYPES, zipmap=False)",
  xgboost: "onnxmltools.convert_xgboost(mlflow.xgboost.load_model(URI), initial_types=TYPES)",
  tensorflow: "tf2onnx.convert.from_keras(mlflow.tensorflow.load_model(URI))[0]",
  pytorch: "torch.onnx.export(mlflow.pytorch.load_model(URI), X, dynamo=True).model_proto",
};

/** @param flavors undefined: MLmodel cannot be read */
function notOnnxError(doing: string, uri: string, flavors: readonly string[] | undefined): JobError {
  if (flavors === undefined) {
    return new JobError("MODEL_INVALID", `${doing}: its MLmodel is damaged`, { hint: "log the model again" });
  }
  const has = flavors.length === 0 ? "no flavor at all" : flavors.join(", ");
  const flavor = flavors.find((name) => Object.hasOwn(converters, name));
  const convert = (flavor === undefined ? undefined : converters[flavor]) ?? "…  # the model as onnx.ModelProto";
  const [, name = "NAME"] = /^models:\/([^/@]+)/.exec(uri) ?? [];
  const lines = [
    "convert it in Python, then set model.path to the new version:",
    `onx = ${convert.replace("URI", `"${uri}"`)}`,
    `mlflow.onnx.log_model(onx, name="model", registered_model_name="${name}")`,
  ];
  return new JobError("MODEL_INVALID", `${doing}: it has no flavor onnx, but ${has}`, { hint: lines.join("\n    ") });
}

function refusedBy(
  { status, said, place }: HttpAnswer,
  { doing, url, hasLogin }: { readonly doing: string; readonly url: string; readonly hasLogin: boolean },
): JobError {
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
    [Symbol.dispose]() {},
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
    [Symbol.dispose]() {},
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
