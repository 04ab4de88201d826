/** Google Cloud Storage, by its JSON API. The ETag of an object is its generation. */
import { createHash, createSign, randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { BrokenTransfer } from "../../base/http/http.js";
import { fieldsOf } from "../../base/guards.js";
import { errnoOf, messageOf } from "../../base/errors.js";
import { connectionErrors } from "../../base/retry.js";
import {
  type Ask,
  askForToken,
  type AskPlainly,
  type Authority,
  classifyCloud,
  type CloudOptions,
  type CloudRequest,
  type CloudResponse,
  fieldsOfJson,
  metadataMs,
  openCloud,
  percentEncode,
  pieceBytes,
  piecesOf,
  StoreRefusal,
  renewed,
  saidBy,
  type Token,
  parseToken,
} from "./cloud.js";
import {
  CredentialsError,
  type ObjectCall,
  type ObjectFailure,
  type ObjectName,
  type ObjectProtocol,
  type ObjectVersion,
  type ListedPage,
  permanent,
  type PutOptions,
  type SentBody,
  type StoredObject,
} from "./protocol.js";

/** Of objects in all buckets that these credentials reach. */
export function gcsProtocol(options: CloudOptions): ObjectProtocol {
  const authority = authorityOf(options.env);
  const { ask, ...cloud } = openCloud(options, authority, readError);
  const base = baseOf(options);

  const requestFor = (
    method: CloudRequest["method"],
    object: ObjectVersion,
    { query = {}, ...rest }: Partial<Pick<CloudRequest, "query" | "headers" | "body">> = {},
  ): CloudRequest => {
    const generation = object.versionId === undefined ? {} : { generation: object.versionId };
    return { method, base, path: `/storage/v1${pathOf(object)}`, query: { ...generation, ...query }, ...rest };
  };
  const head = async (object: ObjectVersion, signal: AbortSignal): Promise<StoredObject> => {
    const query = { fields: "size,generation,metadata" };
    return storedOf(await ask(requestFor("GET", object, { query }), signal));
  };

  return {
    scheme: "gs",
    classify,
    renew: () => Promise.resolve(authority.forget()),
    async list({ bucket, key: prefix }, folder, after, signal) {
      const query = {
        fields: "items(name,size,generation),prefixes,nextPageToken",
        prefix,
        ...(folder ? { delimiter: "/" } : {}),
        ...(after === undefined ? {} : { pageToken: after }),
      };
      const path = `/storage/v1/b/${bucket}/o`;
      return pageOf(await ask({ method: "GET", base, path, query }, signal).catch(ofBucket));
    },
    head,
    async get({ object, etag, start, end, onHeaders }, signal) {
      const query = { alt: "media", ifGenerationMatch: etag };
      const headers = { range: `bytes=${start}-${end - 1}`, ...asStored };
      await ask(requestFor("GET", object, { query, headers }), signal, {
        onHeaders({ status, headers: answered }) {
          const generation = answered["x-goog-generation"];
          if (generation !== undefined && generation !== etag) {
            throw new StoreRefusal(412, "", "it has changed"); // of a server that ignores the condition
          }
          return onHeaders({ status, headers: { ...answered, etag } });
        },
      });
    },
    async getText(object, signal) {
      const request = requestFor("GET", object, { query: { alt: "media" }, headers: asStored });
      const { headers, body } = await ask(request, signal);
      const { "x-goog-generation": etag } = headers;
      if (etag === undefined) {
        throw new BrokenTransfer("the response has no generation");
      }
      return { text: body.toString("utf8"), etag };
    },
    put: (object, body, how, signal) =>
      putObject((request) => ask({ base, ...request }, signal, { expected: [308] }), object, body, how),
    async remove(object, etag, signal) {
      if (etag === undefined) {
        await ask(requestFor("DELETE", object), signal);
        return;
      }

      // The generation is removed, or nothing is; in a bucket that keeps versions it may be an old one.
      const request = requestFor("DELETE", object, { query: { generation: etag } });
      const refusal = await ask(request, signal).then(() => undefined, missing);
      const left = await head(object, signal).catch(missing);
      if (!(left instanceof StoreRefusal)) {
        throw new StoreRefusal(412, "", "it has changed");
      }
      if (refusal !== undefined) {
        throw refusal;
      }
    },
    async copy(from, to, signal) {
      const path = `/storage/v1${pathOf(from)}/rewriteTo${pathOf(to)}`;
      for (let token: string | undefined; ; ) {
        const query = token === undefined ? {} : { rewriteToken: token };
        const { body } = await ask({ method: "POST", base, path, query }, signal);
        const { done, rewriteToken } = fieldsOfJson(body.toString("utf8"));
        if (done === true) {
          return;
        }
        token = textOf(rewriteToken);
        if (token === undefined) {
          throw new BrokenTransfer("the store's response does not say whether the copy is done");
        }
      }
    },
    [Symbol.dispose]: () => cloud[Symbol.dispose](),
  };
}

/** Objects with `Content-Encoding: gzip` come as they are stored; else the store would decompress them, and ignore ranges. */
const asStored = { "accept-encoding": "gzip" };

const bucketNotFound = "bucketNotFound";

/** @throws all other errors */
function missing(error: unknown): StoreRefusal {
  if (error instanceof StoreRefusal && error.status === 404) {
    return error;
  }
  throw error;
}

/** Of a listing or an upload 404 means the bucket. */
function ofBucket(error: unknown): never {
  throw error instanceof StoreRefusal && error.status === 404
    ? new StoreRefusal(404, bucketNotFound, error.message)
    : error;
}

function ofUpload(error: unknown): never {
  const isGone = error instanceof StoreRefusal && (error.status === 404 || error.status === 410);
  throw isGone ? new BrokenTransfer("the store no longer knows the upload") : error;
}

/**
 * Sends a body: a small one by one request with its metadata, a large one by a resumable session, whose last piece creates
 * the object if the condition holds then. The store compares the bytes with their MD5 before it creates the object.
 */
async function putObject(
  send: (request: Omit<CloudRequest, "base">) => ReturnType<Ask>,
  { bucket, key }: ObjectName,
  body: SentBody,
  { over, metadata }: PutOptions,
): Promise<void> {
  const path = `/upload/storage/v1/b/${bucket}/o`;
  // The name is in the metadata, too: here it is for whoever reads the logs of requests.
  const condition = over === undefined ? {} : { ifGenerationMatch: over === "nothing" ? "0" : over.etag };
  const query = { ...condition, fields: "generation", name: key };
  const { sizeBytes } = body;
  const md5 = createHash("md5");
  let session: { readonly path: string; readonly query: Readonly<Record<string, string>> } | undefined;
  let offset = 0;
  for await (const piece of piecesOf(body)) {
    md5.update(piece);
    if (sizeBytes <= pieceBytes) {
      const boundary = randomUUID();
      const facts = JSON.stringify({ name: key, metadata, md5Hash: md5.digest("base64") });
      const parts = Buffer.concat([
        Buffer.from(`--${boundary}\r\ncontent-type: application/json; charset=UTF-8\r\n\r\n${facts}\r\n`),
        Buffer.from(`--${boundary}\r\ncontent-type: application/octet-stream\r\n\r\n`),
        piece,
        Buffer.from(`\r\n--${boundary}--\r\n`),
      ]);
      const headers = { "content-type": `multipart/related; boundary=${boundary}` };
      const whole = {
        method: "POST",
        path,
        query: { ...query, uploadType: "multipart" },
        headers,
        body: parts,
      } as const;
      requireGeneration(await send(whole).catch(ofBucket));
      return;
    }
    session ??= sessionOf(
      await send({
        method: "POST",
        path,
        query: { ...query, uploadType: "resumable" },
        headers: { "content-type": "application/json; charset=UTF-8" },
        body: Buffer.from(JSON.stringify({ name: key, metadata })),
      }).catch(ofBucket),
    );
    const end = offset + piece.length;
    const headers = {
      "content-range": `bytes ${offset}-${end - 1}/${sizeBytes}`,
      ...(end === sizeBytes ? { "x-goog-hash": `md5=${md5.digest("base64")}` } : {}),
    };
    const answer = await send({ method: "PUT", ...session, headers, body: piece }).catch(ofUpload);
    if (end === sizeBytes) {
      requireGeneration(answer);
    } else if (answer.headers["range"] !== `bytes=0-${end - 1}`) {
      throw new BrokenTransfer("the store has kept a part of a piece only");
    }
    offset = end;
  }
}

function requireGeneration({ body }: CloudResponse): void {
  if (textOf(fieldsOfJson(body.toString("utf8"))["generation"]) === undefined) {
    throw new BrokenTransfer("the response to the upload has no generation");
  }
}

function sessionOf({ headers: { location = "" } }: CloudResponse): {
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
} {
  if (!URL.canParse(location)) {
    throw new BrokenTransfer("the store's response does not say where the upload continues");
  }
  const { pathname, searchParams } = new URL(location);
  return { path: pathname, query: Object.fromEntries(searchParams) };
}

function storedOf({ body }: CloudResponse): StoredObject {
  const { generation, size, metadata } = fieldsOfJson(body.toString("utf8"));
  if (typeof generation !== "string" || typeof size !== "string") {
    throw new BrokenTransfer("the response has no generation or no size");
  }
  const texts = Object.entries(typeof metadata === "object" && metadata !== null ? metadata : {});
  return {
    etag: generation,
    sizeBytes: Number(size),
    versionId: generation,
    metadata: Object.fromEntries(texts.map(([name, value]) => [name.toLowerCase(), String(value)])),
  };
}

function pageOf({ body }: CloudResponse): ListedPage {
  const text = body.toString("utf8");
  if (!/^\s*\{[^]*\}\s*$/.test(text)) {
    throw new BrokenTransfer("the store's response is not a listing");
  }
  const page = fieldsOfJson(text) as {
    readonly items?: readonly { readonly name?: string; readonly size?: string; readonly generation?: string }[];
    readonly prefixes?: readonly string[];
    readonly nextPageToken?: string;
  };
  const { items = [], prefixes = [], nextPageToken: next } = page;
  const objects = items.map(({ name: key, size, generation: etag }) => {
    if (key === undefined || size === undefined || etag === undefined) {
      throw new BrokenTransfer("the store lists an object without its name, generation or size");
    }
    return { key, etag, sizeBytes: Number(size) };
  });
  return { objects: [...objects, ...prefixes.map((key) => ({ key, etag: "", sizeBytes: 0 }))], next };
}

/** The key is one segment of the path. */
function pathOf({ bucket, key }: ObjectName): string {
  return `/b/${bucket}/o/${percentEncode(key)}`;
}

/** STORAGE_EMULATOR_HOST is what Google's own libraries read; it may lack the protocol. */
function baseOf({ endpoint, env }: CloudOptions): URL {
  const emulator = emulatorOf(env);
  return new URL(endpoint ?? emulator ?? "https://storage.googleapis.com");
}

function emulatorOf(env: Env): string | undefined {
  const host = env["STORAGE_EMULATOR_HOST"] ?? "";
  return host === "" ? undefined : host.includes("://") ? host : `http://${host}`;
}

function readError({ body }: CloudResponse): { readonly code: string; readonly said: string } {
  const text = body.toString("utf8");
  const error = fieldsOfJson(text)["error"];
  const { message, errors } = fieldsOf(error);
  const [first] = Array.isArray(errors) ? (errors as unknown[]) : [];
  const { reason } = fieldsOf(first);
  // Of uploads the text is plain.
  return { code: textOf(reason) ?? "", said: textOf(message) ?? (text.startsWith("{") ? "" : text.slice(0, 200)) };
}

const permissions = {
  list: "storage.objects.list",
  read: "storage.objects.get",
  write: "storage.objects.create (to replace what is there, storage.objects.delete as well)",
  remove: "storage.objects.delete",
} as const;

function classify(error: unknown, call: ObjectCall): ObjectFailure {
  const { act, action, object } = call;
  if (error instanceof StoreRefusal && error.status === 403 && /^(rateLimit|userRateLimit)Exceeded$/.test(error.code)) {
    return { kind: "transient", found: saidBy(error) };
  }
  if (error instanceof StoreRefusal && error.status === 400 && /MD5|CRC32C/i.test(error.message)) {
    return { kind: "transient", found: "the store received other bytes than were sent" };
  }
  if (
    error instanceof StoreRefusal &&
    error.status === 404 &&
    (error.code === bucketNotFound || /bucket does not exist/i.test(error.message))
  ) {
    return permanent(`${act}: there is no bucket ${object.bucket}`, "check its name in the spec", "FILE_MISSING");
  }
  const also = action === "read" ? "; without storage.objects.list, a missing object is refused in the same way" : "";
  return classifyCloud(error, call, `these credentials need ${permissions[action]} on bucket ${object.bucket}${also}`);
}

type Env = CloudOptions["env"];

/** Application default credentials, as Google's own libraries find them; none where the store is an emulator. */
function authorityOf(env: Env): Authority {
  const emulated = emulatorOf(env) !== undefined;
  let project = env["GOOGLE_CLOUD_QUOTA_PROJECT"];
  const token = renewed(async (ask) => {
    const file = await credentialsFile(env);
    project ??= textOf(file?.["quota_project_id"]);
    return file === undefined ? await metadataToken(env, ask) : await tokenFor(file, ask);
  });
  return {
    async authorize(request, ask) {
      if (emulated) {
        return request;
      }
      const authorization = `Bearer ${await token(ask)}`;
      const payer = project === undefined || project === "" ? {} : { "x-goog-user-project": project };
      return { ...request, headers: { ...request.headers, ...payer, authorization } };
    },
    forget: token.forget,
  };
}

type Fields = Readonly<Record<string, unknown>>;

function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

const loginHint =
  "set GOOGLE_APPLICATION_CREDENTIALS, run under a service account or workload identity, or log in: gcloud auth application-default login";

/** The file that GOOGLE_APPLICATION_CREDENTIALS names, else the one that gcloud writes; read anew for each token. */
async function credentialsFile(env: Env): Promise<Fields | undefined> {
  const named = textOf(env["GOOGLE_APPLICATION_CREDENTIALS"]);
  const gcloud = textOf(env["CLOUDSDK_CONFIG"]) ?? join(homedir(), ".config", "gcloud");
  const path = named ?? join(gcloud, "application_default_credentials.json");
  try {
    return fieldsOfJson(await readFile(path, "utf8"));
  } catch (error) {
    if (named === undefined && errnoOf(error) === "ENOENT") {
      return undefined;
    }
    throw new CredentialsError(
      `looking for Google credentials: ${path}: ${errnoOf(error) ?? messageOf(error)}`,
      loginHint,
    );
  }
}

const storageScope = "https://www.googleapis.com/auth/devstorage.read_write";
const cloudScope = "https://www.googleapis.com/auth/cloud-platform";

async function tokenFor(file: Fields, ask: AskPlainly, scope = storageScope): Promise<Token> {
  const type = textOf(file["type"]) ?? "";
  switch (type) {
    case "service_account":
      return await serviceAccountToken(file, ask, scope);
    case "authorized_user": {
      const form = {
        client_id: need(file, "client_id"),
        client_secret: need(file, "client_secret"),
        grant_type: "refresh_token",
        refresh_token: need(file, "refresh_token"),
      };
      const url = textOf(file["token_uri"]) ?? "https://oauth2.googleapis.com/token";
      const hint = "log in again: gcloud auth application-default login";
      return parseToken(await askForToken(ask, { service: "Google", url, form, hint }));
    }
    case "external_account":
      return await federatedToken(file, ask, scope);
    case "impersonated_service_account": {
      const source = await tokenFor(fieldsOf(file["source_credentials"]), ask, cloudScope);
      return await impersonated(need(file, "service_account_impersonation_url"), source, ask, scope);
    }
    default:
      throw new CredentialsError(
        `looking for Google credentials: a file of type ${JSON.stringify(type)} is not supported`,
        "expected service_account, authorized_user, external_account or impersonated_service_account",
      );
  }
}

function need(file: Fields, name: string): string {
  const value = textOf(file[name]);
  if (value === undefined) {
    throw new CredentialsError(`looking for Google credentials: the file has no ${name}`, loginHint);
  }
  return value;
}

function jwtPart(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString("base64url");
}

async function serviceAccountToken(file: Fields, ask: AskPlainly, scope: string): Promise<Token> {
  const url = textOf(file["token_uri"]) ?? "https://oauth2.googleapis.com/token";
  const nowSeconds = Math.floor(Date.now() / 1000);
  const claims = {
    iss: need(file, "client_email"),
    scope,
    aud: url,
    iat: nowSeconds,
    exp: nowSeconds + 3600,
  };
  const text = `${jwtPart({ alg: "RS256", typ: "JWT", kid: file["private_key_id"] })}.${jwtPart(claims)}`;
  let signature: string;
  try {
    signature = createSign("RSA-SHA256").update(text).sign(need(file, "private_key"), "base64url");
  } catch (error) {
    if (error instanceof CredentialsError) {
      throw error;
    }
    // What OpenSSL says of a key is not shown.
    throw new CredentialsError("looking for Google credentials: private_key is no private key in PEM", loginHint);
  }
  const form = { assertion: `${text}.${signature}`, grant_type: "urn:ietf:params:oauth:grant-type:jwt-bearer" };
  const hint = "check that the key of the service account still exists, and this machine's clock";
  return parseToken(await askForToken(ask, { service: "Google", url, form, hint }));
}

/** Workload identity federation: a token of another issuer, from a file or a URL, is exchanged for one of Google's. */
async function federatedToken(file: Fields, ask: AskPlainly, scope: string): Promise<Token> {
  const impersonationUrl = textOf(file["service_account_impersonation_url"]);
  const form = {
    audience: need(file, "audience"),
    grant_type: "urn:ietf:params:oauth:grant-type:token-exchange",
    requested_token_type: "urn:ietf:params:oauth:token-type:access_token",
    scope: impersonationUrl === undefined ? scope : cloudScope,
    subject_token: await subjectToken(fieldsOf(file["credential_source"]), ask),
    subject_token_type: need(file, "subject_token_type"),
  };
  const hint = "check the workload identity pool, its provider, and the token of this pod or machine";
  const service = "Google's token exchange";
  const token = parseToken(await askForToken(ask, { service, url: need(file, "token_url"), form, hint }));
  return impersonationUrl === undefined ? token : await impersonated(impersonationUrl, token, ask, scope);
}

async function subjectToken(source: Fields, ask: AskPlainly): Promise<string> {
  const { type, subject_token_field_name: fieldName } = fieldsOf(source["format"]);
  const path = textOf(source["file"]);
  const url = textOf(source["url"]);
  if (path === undefined && url === undefined) {
    throw new CredentialsError(
      "looking for Google credentials: credential_source has neither file nor url",
      "tokens of AWS and of programs are not supported: use a token in a file, or the key of a service account",
    );
  }
  if (url !== undefined) {
    const headers = fieldsOf(source["headers"]) as Readonly<Record<string, string>>;
    const hint = "check credential_source.url";
    const answer = await askForToken(ask, { service: "the issuer of the token", url, headers, hint });
    return need(answer, textOf(fieldName) ?? "access_token");
  }
  const text = await readFile(path ?? "", "utf8").catch((error: unknown) => {
    const found = errnoOf(error) ?? messageOf(error);
    throw new CredentialsError(
      `looking for Google credentials: ${path}: ${found}`,
      "make the file of the token readable",
    );
  });
  return type === "json" ? need(fieldsOfJson(text), textOf(fieldName) ?? "access_token") : text.trim();
}

async function impersonated(url: string, { text }: Token, ask: AskPlainly, scope: string): Promise<Token> {
  const answer = await askForToken(ask, {
    service: "Google's IAM",
    url,
    json: { lifetime: "3600s", scope: [scope] },
    headers: { authorization: `Bearer ${text}` },
    hint: "grant roles/iam.serviceAccountTokenCreator (or workloadIdentityUser) on the service account",
  });
  return { text: need(answer, "accessToken"), expiresMs: Date.parse(need(answer, "expireTime")) };
}

async function metadataToken(env: Env, ask: AskPlainly): Promise<Token> {
  const named = textOf(env["GCE_METADATA_HOST"]);
  const url = `http://${named ?? "169.254.169.254"}/computeMetadata/v1/instance/service-accounts/default/token`;
  const headers = { "metadata-flavor": "Google" };
  const service = "the metadata server";
  const hint = "run under a service account: a node pool or machine may have none";
  try {
    return parseToken(await askForToken(ask, { service, url, headers, timeoutMs: metadataMs, hint }));
  } catch (error) {
    const isAway = error instanceof BrokenTransfer || connectionErrors.has(errnoOf(error) ?? "");
    // Other clouds have a server of their own at that address.
    const isRefused = error instanceof CredentialsError && error.hint !== undefined;
    if ((isAway || isRefused) && named === undefined && !(await isAtGoogle())) {
      throw new CredentialsError("looking for Google credentials: there are none", loginHint);
    }
    throw error;
  }
}

/** On a machine of Google's, the metadata server may be away for a moment. */
async function isAtGoogle(): Promise<boolean> {
  const product = await readFile("/sys/class/dmi/id/product_name", "utf8").catch(() => "");
  return product.includes("Google");
}
