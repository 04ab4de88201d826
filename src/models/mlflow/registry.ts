import { type HttpEndpoint, readJson } from "../../net/http.js";
import type { ModelOrigin } from "../../plan/plan.js";
import type { MlflowUri } from "../../spec/model-uri.js";
import { isRecord } from "../../util/checks.js";
import { assertNever, JobError } from "../../util/errors.js";

/** The place of a model's files. */
export interface LocatedModel {
  /** A version in the registry ("7"), the id of a logged model ("m-…"), or the id of a run. */
  readonly version: string;
  /** The folder of MLmodel, as the server names it: `mlflow-artifacts:/…`, `s3://…`. */
  readonly artifactUri: string;
  /**
   * Returns the URL at which the MLflow server serves a file from any store; undefined: it does not serve the
   * files.
   */
  readonly servedAt?: ((path: string) => string) | undefined;
  readonly origin?: ModelOrigin | undefined;
}

/** A server with MLflow's REST API. */
export interface Registry {
  /** The tracking URI, without a slash at its end. */
  readonly url: string;
  readonly place: HttpEndpoint;
}

type Json = Readonly<Record<string, unknown>>;

/** Finds a model. @param planned the version that a plan pins: aliases are not resolved then */
export async function locate(registry: Registry, uri: MlflowUri, planned: string | undefined): Promise<LocatedModel> {
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

/**
 * Finds the model of a run. MLflow 3 stores it as a logged model; earlier versions store it among the files of the run.
 */
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

/** The number of characters of a tag's value that a plan stores. */
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
