import { spawnSync } from "node:child_process";
import type { IncomingHttpHeaders } from "node:http";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { validators } from "./validators.js";

/** A request that was received with a signature of AWS, version 4. */
export interface SignedRequest {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  /** "": it is a GET. */
  readonly body: string;
}

export interface SigningKeys {
  readonly AWS_ACCESS_KEY_ID: string;
  readonly AWS_SECRET_ACCESS_KEY: string;
}

export function signedHeaders({ headers }: SignedRequest): {
  readonly names: readonly string[];
  readonly headers: Readonly<Record<string, string>>;
  readonly time: string;
} {
  const [, list = ""] = /SignedHeaders=([^,]*)/.exec(headers.authorization ?? "") ?? [];
  const names = list.split(";");
  const signed = Object.fromEntries(names.map((name) => [name, String(headers[name])]));
  return { names, headers: signed, time: String(headers["x-amz-date"]) };
}

/** The headers `authorization` that requests must have, computed by botocore. */
export function authorizationsByBotocore(
  requests: readonly SignedRequest[],
  scope: string,
  keys: SigningKeys,
): readonly string[] {
  const [region, service] = scope.split("/");
  const lines = requests.map((request) => {
    const { headers } = signedHeaders(request);
    const body = Buffer.from(request.body).toString("hex");
    return JSON.stringify({
      method: request.body === "" ? "GET" : "POST",
      url: `http://${headers["host"]}${request.path}`,
      headers,
      body,
      region,
      service,
    });
  });
  const script = fileURLToPath(new URL("./botocore_signature.py", import.meta.url));
  const env = { ...process.env, ...keys };
  const done = spawnSync(join(validators.bin, "python"), [script], { input: lines.join("\n"), env, encoding: "utf8" });
  return done.status === 0 ? done.stdout.trim().split("\n") : [done.stderr];
}
