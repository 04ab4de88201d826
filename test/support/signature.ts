import { spawnSync } from "node:child_process";
import { createHash, createHmac } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { pythonToolsOfTorture } from "./python-tools.js";

/** A POST that was received with a signature of AWS, version 4. */
export interface SignedRequest {
  /** A path of plain segments, without a query. */
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

export interface SigningKeys {
  readonly AWS_ACCESS_KEY_ID: string;
  readonly AWS_SECRET_ACCESS_KEY: string;
}

const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");
const hmac = (key: string | Buffer, text: string): Buffer => createHmac("sha256", key).update(text).digest();

/** The header `authorization` that a request must have, computed as the documentation of AWS says. */
export function authorizationOf(request: SignedRequest, scope: string, keys: SigningKeys): string {
  const { names, headers, time } = signedHeaders(request);
  const canonical = [
    "POST",
    request.path,
    "",
    ...names.map((name) => `${name}:${headers[name]}`),
    "",
    names.join(";"),
    sha256(request.body),
  ].join("\n");
  const inFull = `${time.slice(0, 8)}/${scope}/aws4_request`;
  const key = inFull.split("/").reduce<string | Buffer>(hmac, `AWS4${keys.AWS_SECRET_ACCESS_KEY}`);
  const signature = hmac(key, ["AWS4-HMAC-SHA256", time, inFull, sha256(canonical)].join("\n")).toString("hex");
  return `AWS4-HMAC-SHA256 Credential=${keys.AWS_ACCESS_KEY_ID}/${inFull}, SignedHeaders=${names.join(";")}, Signature=${signature}`;
}

/** The headers that the signature names. */
function signedHeaders({ headers }: SignedRequest): {
  readonly names: readonly string[];
  readonly headers: Readonly<Record<string, string>>;
  readonly time: string;
} {
  const [, list = ""] = /SignedHeaders=([^,]*)/.exec(headers.authorization ?? "") ?? [];
  const names = list.split(";");
  const signed = Object.fromEntries(names.map((name) => [name, String(headers[name])]));
  return { names, headers: signed, time: String(headers["x-amz-date"]) };
}

export const botocore = pythonToolsOfTorture("botocore", ["botocore==1.44.8"]);

/** The same headers, computed by botocore. */
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
      method: "POST",
      url: `http://${headers["host"]}${request.path}`,
      headers,
      body,
      region,
      service,
    });
  });
  const script = fileURLToPath(new URL("botocore_signature.py", import.meta.url));
  const env = { ...process.env, ...keys };
  const done = spawnSync(join(botocore.bin, "python"), [script], { input: lines.join("\n"), env, encoding: "utf8" });
  return done.status === 0 ? done.stdout.trim().split("\n") : [done.stderr];
}
