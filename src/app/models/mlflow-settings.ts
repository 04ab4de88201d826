import { readFile } from "node:fs/promises";
import type { MlflowServer } from "../../models/mlflow/source.js";
import { isPlainUrl } from "../../spec/model-uri.js";
import { errnoOf, JobError, messageOf } from "../../util/errors.js";

/**
 * Reads where MLflow's server is, and the login, as its Python client does.
 * @param uri the model, for messages and because registry and tracking server may differ
 * @param given `model.registry.url`
 * @throws JobError SPEC_INVALID, FILE_MISSING
 */
export async function mlflowServer(
  uri: string,
  given: string | undefined,
  env: Readonly<Record<string, string | undefined>>,
): Promise<MlflowServer> {
  const read = (name: string): string | undefined => (env[name] === "" ? undefined : env[name]);
  const names = uri.startsWith("models:") ? ["MLFLOW_REGISTRY_URI", "MLFLOW_TRACKING_URI"] : ["MLFLOW_TRACKING_URI"];
  const name = names.find((one) => read(one) !== undefined);
  const url = given ?? (name === undefined ? undefined : read(name));
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
