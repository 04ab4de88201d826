import { readFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { projectFolder } from "./cli.js";

export interface MlflowVersion {
  /** Files by path below the version's folder. */
  readonly files: ReadonlyMap<string, Uint8Array>;
  readonly runId?: string;
  readonly tags?: Readonly<Record<string, string>>;
  /** Where the files are; default: behind the server. */
  readonly artifactUri?: string;
}

/** An MLflow server in small, with the answers that MLflow 3.17 gives, below `/mlflow`. */
export interface Mlflow extends AsyncDisposable {
  /** The tracking URI. */
  readonly url: string;
  /** Versions of `churn`. A test may change them. */
  readonly versions: Map<string, MlflowVersion>;
  readonly aliases: Map<string, string>;
  /** "GET registered-models/alias?name=churn&alias=champion", in the order they came. */
  readonly requests: string[];
  /** The Authorization header that is asked for; undefined: none. */
  login: string | undefined;
  /** Is awaited before each answer. It returns true if it has answered itself. */
  before: ((path: string, response: ServerResponse) => boolean | Promise<boolean>) | undefined;
}

interface Answer {
  readonly status: number;
  readonly body: string | Uint8Array;
}

const json = (value: unknown, status = 200): Answer => ({ status, body: JSON.stringify(value) });
const refusal = (status: number, code: string, message: string): Answer =>
  json({ error_code: code, message, sqlstate: "KAM00" }, status);

export async function serveMlflow(versions: Readonly<Record<string, MlflowVersion>>): Promise<Mlflow> {
  const server = createServer((request, response) => {
    void respond(request, response);
  });
  const respond = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const url = new URL(request.url ?? "", "http://any");
    const path = url.pathname.replace(/^\/mlflow\/(?:api\/2\.0\/(?:mlflow\/)?)?/, "");
    mlflow.requests.push(`${request.method} ${path}${url.search}`);
    if ((await mlflow.before?.(path, response)) === true) {
      return;
    }
    const { status, body } =
      mlflow.login !== undefined && request.headers.authorization !== mlflow.login
        ? { status: 401, body: "You are not authenticated. Please see https://www.mlflow.org/docs/latest/auth" }
        : answerTo(mlflow, path, url.searchParams);
    response.writeHead(status, { "content-length": Buffer.byteLength(body) }).end(body);
  };
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const mlflow: Mlflow = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mlflow`,
    versions: new Map(Object.entries(versions)),
    aliases: new Map(),
    requests: [],
    login: undefined,
    before: undefined,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
  return mlflow;
}

function answerTo({ versions, aliases }: Mlflow, path: string, query: URLSearchParams): Answer {
  const name = query.get("name") ?? "churn";
  const version = query.get("version") ?? "";
  const known = (of: string): Answer | undefined =>
    versions.has(of)
      ? undefined
      : refusal(404, "RESOURCE_DOES_NOT_EXIST", `Model Version (name=${name}, version=${of}) not found`);
  if (name !== "churn") {
    return refusal(404, "RESOURCE_DOES_NOT_EXIST", `Registered Model with name=${name} not found`);
  }
  switch (path) {
    case "registered-models/alias": {
      const alias = query.get("alias") ?? "";
      const of = aliases.get(alias);
      return of === undefined
        ? refusal(400, "INVALID_PARAMETER_VALUE", `Registered model alias ${alias} not found.`)
        : (known(of) ?? json({ model_version: versionJson(versions, of) }));
    }
    case "registered-models/get":
      return json({
        registered_model: { name, latest_versions: [...versions.keys()].map((of) => versionJson(versions, of)) },
      });
    case "model-versions/get":
      return known(version) ?? json({ model_version: versionJson(versions, version) });
    case "model-versions/get-download-uri": {
      const uri = versions.get(version)?.artifactUri ?? `mlflow-artifacts:/1/models/m-${version}/artifacts`;
      return known(version) ?? json({ artifact_uri: uri });
    }
    case "logged-models/m-7":
      return json({
        model: {
          info: { name: "model", artifact_uri: "mlflow-artifacts:/1/models/m-7/artifacts", source_run_id: "r7" },
        },
      });
    case "runs/get":
      return json({
        run: {
          info: { artifact_uri: "mlflow-artifacts:/1/r7/artifacts" },
          outputs: { model_outputs: [{ model_id: "m-7" }] },
        },
      });
    default:
      return artifact(versions, path, query);
  }
}

function versionJson(versions: Mlflow["versions"], version: string): object {
  const { runId, tags = {} } = versions.get(version) ?? {};
  return {
    name: "churn",
    version,
    source: `models:/m-${version}`,
    run_id: runId ?? "",
    tags: Object.entries(tags).map(([key, value]) => ({ key, value })),
  };
}

function artifact(versions: Mlflow["versions"], path: string, query: URLSearchParams): Answer {
  const folder = /^\/?1\/models\/m-([^/]+)\/artifacts\/?(.*)$/;
  if (path === "mlflow-artifacts/artifacts") {
    const [, of = "", below = ""] = folder.exec(query.get("path") ?? "") ?? [];
    const files = [...(versions.get(of)?.files ?? [])].flatMap(([file, bytes]) => {
      const rest = below === "" ? file : file.startsWith(`${below}/`) ? file.slice(below.length + 1) : "/";
      return rest.includes("/") ? [] : [{ path: rest, is_dir: false, file_size: bytes.length }];
    });
    return json(files.length === 0 ? {} : { files });
  }
  if (path === "model-versions/get-artifact") {
    const bytes = versions.get(query.get("version") ?? "")?.files.get(query.get("path") ?? "");
    return bytes === undefined ? { status: 500, body: "" } : { status: 200, body: bytes };
  }
  const [, of = "", file = ""] = folder.exec(path.replace("mlflow-artifacts/artifacts/", "")) ?? [];
  const bytes = versions.get(of)?.files.get(decodeURIComponent(file));
  return bytes === undefined
    ? { status: 404, body: "<!doctype html>\n<title>404 Not Found</title>" }
    : { status: 200, body: bytes };
}

/** The files of an ONNX model as `mlflow.onnx.log_model` stores them. @param signature in MLflow's JSON */
export function onnxArtifacts(
  files: Readonly<Record<string, Uint8Array>>,
  signature?: { readonly inputs: unknown; readonly outputs: unknown },
): ReadonlyMap<string, Uint8Array> {
  const lines = [
    "flavors:",
    "  onnx:",
    "    data: model.onnx",
    "    onnx_version: 1.23.2",
    "  python_function:",
    "    loader_module: mlflow.onnx",
    "model_uuid: m-0123",
    ...(signature === undefined
      ? []
      : [
          "signature:",
          `  inputs: '${JSON.stringify(signature.inputs)}'`,
          `  outputs: '${JSON.stringify(signature.outputs)}'`,
          "  params: null",
        ]),
  ];
  return new Map([["MLmodel", Buffer.from(`${lines.join("\n")}\n`)], ...Object.entries(files)]);
}

/** Versions 1 and 2 of `churn`: the same scores, computed by models of other bytes. Version 1 is the champion. */
export async function serveChurn(): Promise<Mlflow> {
  const [one, two] = await Promise.all(
    ["diabetes-mlp", "diabetes-mlp-batch32"].map((name) =>
      readFile(join(projectFolder, `fixtures/models/${name}.onnx`)),
    ),
  );
  const mlflow = await serveMlflow({
    "1": { files: onnxArtifacts({ "model.onnx": one ?? new Uint8Array() }) },
    "2": { files: onnxArtifacts({ "model.onnx": two ?? new Uint8Array() }) },
  });
  mlflow.aliases.set("champion", "1");
  return mlflow;
}
