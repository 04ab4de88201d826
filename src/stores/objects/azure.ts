/** Azure Blob Storage. A bucket is `account/container`. */
import { execFile } from "node:child_process";
import { createHash, createHmac, randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { BrokenTransfer } from "../../base/http/http.js";
import { errnoOf, JobError, messageOf } from "../../base/errors.js";
import {
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
  type ObjectProtocol,
  type ObjectVersion,
  type ListedPage,
  permanent,
  type PutOptions,
  type SentBody,
  type StoredObject,
} from "./protocol.js";

const apiVersion = "2023-11-03";
const copyPollMs = 500;

/** An account is reached at its own host, and may have credentials of its own. */
export function azureProtocol(options: CloudOptions): ObjectProtocol {
  const { env } = options;
  const authority = authorityOf(env);
  const { ask, ...cloud } = openCloud(options, authority, readError);

  const requestFor = (
    method: CloudRequest["method"],
    { bucket, key, versionId }: ObjectVersion,
    { query = {}, ...rest }: RequestParts = {},
  ): CloudRequest => {
    const { account, container } = partsOf(bucket);
    const version = versionId === undefined ? {} : { versionid: versionId };
    const path = `/${container}${key === "" ? "" : `/${key.split("/").map(percentEncode).join("/")}`}`;
    return { method, base: baseOf(account, options), path, account, query: { ...query, ...version }, ...rest };
  };

  return {
    scheme: "az",
    classify,
    renew: () => Promise.resolve(authority.forget()),
    async list({ bucket, key: prefix }, folder, after, signal) {
      const query = {
        comp: "list",
        ...(folder ? { delimiter: "/" } : {}),
        ...(after === undefined ? {} : { marker: after }),
        maxresults: "1000",
        prefix,
        restype: "container",
      };
      return pageOf((await ask(requestFor("GET", { bucket, key: "" }, { query }), signal)).body.toString("utf8"));
    },
    head: async (object, signal) => storedOf((await ask(requestFor("HEAD", object), signal)).headers),
    async get({ object, etag, start, end, onHeaders }, signal) {
      const headers = { "if-match": etag, "x-ms-range": `bytes=${start}-${end - 1}` };
      await ask(requestFor("GET", object, { headers }), signal, { onHeaders });
    },
    async getText(object, signal) {
      const { headers, body } = await ask(requestFor("GET", object), signal);
      return { text: body.toString("utf8"), etag: storedOf(headers).etag };
    },
    put: (object, body, how, signal) =>
      putBlob((method, parts) => ask(requestFor(method, object, parts), signal), body, how),
    remove(object, etag, signal) {
      const headers = etag === undefined ? {} : { "if-match": etag };
      return ask(requestFor("DELETE", object, { headers }), signal);
    },
    async copy(from, to, signal) {
      const { base, path } = requestFor("GET", from);
      const sas = sasOf(partsOf(from.bucket).account, env);
      const source = `${base.href.replace(/\/$/, "")}${path}${sas === undefined ? "" : `?${sas}`}`;
      let { headers } = await ask(requestFor("PUT", to, { headers: { "x-ms-copy-source": source } }), signal);
      while (headers["x-ms-copy-status"] === "pending") {
        await new Promise((done) => setTimeout(done, copyPollMs));
        ({ headers } = await ask(requestFor("HEAD", to), signal).catch((error: unknown) => {
          const isGone = error instanceof StoreRefusal && error.status === 404;
          throw isGone ? new BrokenTransfer("what was copied is gone") : error;
        }));
      }
      if (headers["x-ms-copy-status"] !== "success") {
        throw new BrokenTransfer(`the store says of the copy: ${headers["x-ms-copy-status"]}`);
      }
    },
    [Symbol.dispose]: () => cloud[Symbol.dispose](),
  };
}

type RequestParts = Partial<Pick<CloudRequest, "query" | "headers" | "body">>;

/** Blocks have names of their own, since all writers of a blob share its blocks until one has created it. */
async function putBlob(
  send: (method: CloudRequest["method"], parts: RequestParts) => Promise<CloudResponse>,
  body: SentBody,
  { over, metadata }: PutOptions,
): Promise<void> {
  const headers = {
    ...(over === undefined ? {} : over === "nothing" ? { "if-none-match": "*" } : { "if-match": over.etag }),
    ...Object.fromEntries(Object.entries(metadata).map(([name, value]) => [`x-ms-meta-${name}`, value])),
  };
  const upload = randomUUID();
  const ids: string[] = [];
  for await (const piece of piecesOf(body)) {
    const md5 = { "content-md5": md5Of(piece) };
    if (body.sizeBytes <= pieceBytes) {
      requireEtag(await send("PUT", { headers: { ...headers, ...md5, "x-ms-blob-type": "BlockBlob" }, body: piece }));
      return;
    }
    const id = Buffer.from(`${upload}.${String(ids.length).padStart(6, "0")}`).toString("base64");
    await send("PUT", { query: { blockid: id, comp: "block" }, headers: md5, body: piece });
    ids.push(id);
  }
  const list = ids.map((id) => `<Latest>${id}</Latest>`).join("");
  const blocks = Buffer.from(`<?xml version="1.0" encoding="utf-8"?><BlockList>${list}</BlockList>`);
  const md5 = { "content-md5": md5Of(blocks) };
  requireEtag(await send("PUT", { query: { comp: "blocklist" }, headers: { ...headers, ...md5 }, body: blocks }));
}

function requireEtag({ headers }: CloudResponse): void {
  if (headers["etag"] === undefined) {
    throw new BrokenTransfer("the response to the upload has no ETag");
  }
}

function md5Of(bytes: Uint8Array): string {
  return createHash("md5").update(bytes).digest("base64");
}

function storedOf(headers: Readonly<Record<string, string>>): StoredObject {
  const { etag = "", "content-length": length, "x-ms-version-id": versionId } = headers;
  if (etag === "" || length === undefined) {
    throw new BrokenTransfer("the response has no ETag or no size");
  }
  const metadata = Object.entries(headers).filter(([name]) => name.startsWith("x-ms-meta-"));
  return {
    etag,
    sizeBytes: Number(length),
    versionId,
    metadata: Object.fromEntries(metadata.map(([name, value]) => [name.slice("x-ms-meta-".length), value])),
  };
}

function pageOf(xml: string): ListedPage {
  if (!/<\/EnumerationResults>\s*$/.test(xml)) {
    throw new BrokenTransfer("the store's response is not a listing");
  }
  const objects = [...xml.matchAll(/<(Blob|BlobPrefix)>([^]*?)<\/\1>/g)].flatMap(([, kind, entry = ""]) => {
    const key = nameOf(entry);
    const etag = fieldOf(entry, "Etag") ?? "";
    const sizeBytes = Number(fieldOf(entry, "Content-Length") ?? Number.NaN);
    if (kind === "BlobPrefix") {
      return [{ key, etag: "", sizeBytes: 0 }];
    }
    if (fieldOf(entry, "ResourceType") === "directory") {
      return []; // of an account with a hierarchical namespace
    }
    if (key === "" || etag === "" || Number.isNaN(sizeBytes)) {
      throw new BrokenTransfer("the store lists a blob without its name, ETag or size");
    }
    return [{ key, etag: etag.startsWith('"') ? etag : `"${etag}"`, sizeBytes }];
  });
  // Blobs and folders come each in their order.
  const inOrder = objects.toSorted((one, other) => Buffer.compare(Buffer.from(one.key), Buffer.from(other.key)));
  return { objects: inOrder, next: fieldOf(xml, "NextMarker") || undefined };
}

/** Percent-encoded if XML cannot hold it. */
function nameOf(entry: string): string {
  const name = fieldOf(entry, "Name") ?? "";
  return /<Name Encoded="true">/.test(entry) ? decodeURIComponent(name) : name;
}

function fieldOf(xml: string, name: string): string | undefined {
  const [, text] = new RegExp(`<${name}(?: [^>]*)?>([^<]*)</${name}>`).exec(xml) ?? [];
  return text?.replaceAll(/&(?:#x([0-9a-fA-F]+)|#(\d+)|(\w+));/g, (whole, hex?: string, code?: string, named = "") => {
    const number = hex === undefined ? Number(code) : Number.parseInt(hex, 16);
    return Number.isNaN(number) ? (namedCharacters.get(String(named)) ?? whole) : String.fromCodePoint(number);
  });
}

const namedCharacters: ReadonlyMap<string, string> = new Map([
  ["amp", "&"],
  ["lt", "<"],
  ["gt", ">"],
  ["quot", '"'],
  ["apos", "'"],
]);

function partsOf(bucket: string): { readonly account: string; readonly container: string } {
  const slash = bucket.indexOf("/");
  return { account: bucket.slice(0, slash), container: bucket.slice(slash + 1) };
}

/** The host may be written out, as in clouds of their own. */
function baseOf(account: string, { endpoint, env }: CloudOptions): URL {
  const named = endpoint ?? connectionOf(account, env)["BlobEndpoint"];
  return new URL(named ?? `https://${account.includes(".") ? account : `${account}.blob.core.windows.net`}`);
}

function readError({ headers, body }: CloudResponse): { readonly code: string; readonly said: string } {
  const xml = body.toString("utf8");
  const code = headers["x-ms-error-code"] ?? fieldOf(xml, "Code") ?? "";
  // What follows the first line are the id and the time of the request, and for a wrong signature what was signed.
  return { code, said: (fieldOf(xml, "Message") ?? "").split("\n")[0] ?? "" };
}

function classify(error: unknown, call: ObjectCall): ObjectFailure {
  const { account, container } = partsOf(call.object.bucket);
  const role = call.action === "read" || call.action === "list" ? "Reader" : "Contributor";
  const needs = `these credentials need the role Storage Blob Data ${role} on container ${container} of account ${account}, whose firewall must let this machine in`;
  if (!(error instanceof StoreRefusal)) {
    return classifyCloud(error, call, needs);
  }
  const found = saidBy(error);
  switch (error.code) {
    case "BlobAlreadyExists":
    case "UnauthorizedBlobOverwrite": // of a SAS that may create only
      return { kind: "exists" };
    case "Md5Mismatch":
      return { kind: "transient", found };
    case "InvalidBlockList": // another writer has created the blob, which removes all blocks: the next try finds it
      return { kind: "transient", found };
    case "ContainerNotFound":
      return permanent(
        `${call.act}: there is no container ${container} in account ${account}`,
        "check their names in the spec",
        "FILE_MISSING",
      );
    case "BlobArchived":
      return permanent(`${call.act}: it is archived`, "rehydrate it, then run again");
    case "BlobImmutableDueToPolicy":
      return permanent(`${call.act}: ${found}`, "write to a container without a policy of immutability");
    case "SnapshotsPresent":
      return permanent(`${call.act}: ${found}`, "remove its snapshots, then run again");
    case "InvalidBlobType":
    case "PathConflict":
    case "ResourceTypeMismatch":
      return permanent(`${call.act}: ${found}`, "something else has this name; remove it, or name another place");
    case "LeaseIdMissing":
      return permanent(
        `${call.act}: another program holds a lease on it`,
        "break it (az storage blob lease break), then run again",
      );
    case "AuthenticationFailed": {
      const message = `${call.act}: the credentials are wrong: ${found}: ${error.message}`;
      const hint =
        "check AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, AZURE_STORAGE_CONNECTION_STRING or the identity, and this machine's clock";
      return { kind: "credentials", expired: false, found, error: new JobError("PERMISSION", message, { hint }) };
    }
    default:
      return classifyCloud(error, call, needs);
  }
}

type Env = CloudOptions["env"];

function setIn(env: Env, ...names: readonly string[]): string | undefined {
  return names.map((name) => env[name]).find((value) => value !== undefined && value !== "");
}

/** The fields of AZURE_STORAGE_CONNECTION_STRING, where it is one of this account. */
function connectionOf(account: string, env: Env): Readonly<Record<string, string>> {
  const fields = Object.fromEntries(
    (setIn(env, "AZURE_STORAGE_CONNECTION_STRING") ?? "").split(";").flatMap((field) => {
      const [, name = "", value = ""] = /^\s*(\w+)=(.*)$/.exec(field) ?? [];
      return name === "" ? [] : [[name, value]];
    }),
  ) as Record<string, string>;
  // Those with a SAS name the account in the blob endpoint only.
  const { AccountName: named, BlobEndpoint: endpoint = "" } = fields;
  const { pathname = "", hostname = "" } = URL.canParse(endpoint) ? new URL(endpoint) : {};
  const ofEndpoint = pathname.split("/")[1] || hostname.split(".")[0];
  return (named ?? ofEndpoint) === account.split(".")[0] ? fields : {};
}

/** Keys and tokens in the environment are those of AZURE_STORAGE_ACCOUNT, where that is set. */
function isAccountOfEnv(account: string, env: Env): boolean {
  const named = setIn(env, "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME");
  return named === undefined || named === account.split(".")[0];
}

function keyOf(account: string, env: Env): string | undefined {
  const ofEnv = isAccountOfEnv(account, env) ? setIn(env, "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY") : undefined;
  return ofEnv ?? connectionOf(account, env)["AccountKey"];
}

function sasOf(account: string, env: Env): string | undefined {
  if (keyOf(account, env) !== undefined) {
    return undefined;
  }
  const ofEnv = isAccountOfEnv(account, env) ? setIn(env, "AZURE_STORAGE_SAS_TOKEN") : undefined;
  return (ofEnv ?? connectionOf(account, env)["SharedAccessSignature"])?.replace(/^\?/, "");
}

/** An account key, else a SAS, else a token: the order of Azure's own tools. */
function authorityOf(env: Env): Authority {
  const token = renewed((ask) => findToken(env, ask));
  return {
    async authorize(request, ask) {
      const sent = {
        ...request,
        headers: { ...request.headers, "x-ms-date": new Date().toUTCString(), "x-ms-version": apiVersion },
      };
      const { account = "" } = request;
      const key = keyOf(account, env);
      if (key !== undefined) {
        return signed(sent, account, key);
      }
      const sas = sasOf(account, env);
      if (sas !== undefined) {
        return { ...sent, query: { ...sent.query, ...Object.fromEntries(new URLSearchParams(sas)) } };
      }
      return { ...sent, headers: { ...sent.headers, authorization: `Bearer ${await token(ask)}` } };
    },
    forget: token.forget,
  };
}

/** https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key */
function signed(request: CloudRequest, owner: string, key: string): CloudRequest {
  const [account = ""] = owner.split(".");
  const { method, base, path, query = {}, headers = {}, body } = request;
  const names = ["content-encoding", "content-language", "content-length", "content-md5", "content-type"];
  const dates = ["date", "if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range"];
  const length = body === undefined || body.length === 0 ? {} : { "content-length": String(body.length) };
  const values: Readonly<Record<string, string>> = { ...headers, ...length };
  const ownHeaders = Object.entries(headers)
    .filter(([name]) => name.startsWith("x-ms-"))
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
    .map(([name, value]) => `${name}:${value}`);
  const resource = `/${account}${base.pathname.replace(/\/$/, "")}${path}`;
  const parameters = Object.entries(query)
    .toSorted(([one], [other]) => (one < other ? -1 : 1))
    .map(([name, value]) => `${name}:${value}`);
  const text = [
    method,
    ...[...names, ...dates].map((name) => values[name] ?? ""),
    ...ownHeaders,
    [resource, ...parameters].join("\n"),
  ].join("\n");
  const signature = createHmac("sha256", Buffer.from(key, "base64")).update(text, "utf8").digest("base64");
  return { ...request, headers: { ...headers, authorization: `SharedKey ${account}:${signature}` } };
}

const storageScope = "https://storage.azure.com";

/**
 * The first that there is: a service principal or workload identity, that of the machine, the user of the Azure CLI.
 */
async function findToken(env: Env, ask: AskPlainly): Promise<Token> {
  const tenant = setIn(env, "AZURE_TENANT_ID");
  const client = setIn(env, "AZURE_CLIENT_ID");
  const secret = setIn(env, "AZURE_CLIENT_SECRET");
  const file = setIn(env, "AZURE_FEDERATED_TOKEN_FILE");
  if (tenant !== undefined && client !== undefined && (secret ?? file) !== undefined) {
    return await principalToken({ tenant, client, secret, file }, env, ask);
  }
  const managed = await managedToken(client, env, ask);
  if (managed !== undefined) {
    return managed;
  }
  const ofCli = await cliToken();
  if (ofCli === undefined) {
    throw new CredentialsError(
      "looking for Azure credentials: there are none",
      "set AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING, run under a managed or workload identity, or log in: az login",
    );
  }
  return ofCli;
}

async function principalToken(
  {
    tenant,
    client,
    secret,
    file,
  }: Readonly<Record<"tenant" | "client", string> & Record<"secret" | "file", string | undefined>>,
  env: Env,
  ask: AskPlainly,
): Promise<Token> {
  const authority = (setIn(env, "AZURE_AUTHORITY_HOST") ?? "https://login.microsoftonline.com").replace(/\/$/, "");
  const proof =
    secret === undefined
      ? {
          client_assertion: (await readTokenFile(file ?? "")).trim(),
          client_assertion_type: "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        }
      : { client_secret: secret };
  const answer = await askForToken(ask, {
    service: "Microsoft Entra ID",
    url: `${authority}/${tenant}/oauth2/v2.0/token`,
    form: { client_id: client, grant_type: "client_credentials", scope: `${storageScope}/.default`, ...proof },
    hint: "check AZURE_TENANT_ID, AZURE_CLIENT_ID, and AZURE_FEDERATED_TOKEN_FILE or AZURE_CLIENT_SECRET",
  });
  return parseToken(answer);
}

/** A token file is rewritten before it expires: it is read anew each time. */
async function readTokenFile(path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    throw new CredentialsError(
      `looking for Azure credentials: ${path}: ${errnoOf(error) ?? messageOf(error)}`,
      "make the file readable that AZURE_FEDERATED_TOKEN_FILE names",
    );
  }
}

/** Of App Service or Container Apps, or of a virtual machine or node; undefined where there is no such service. */
async function managedToken(client: string | undefined, env: Env, ask: AskPlainly): Promise<Token | undefined> {
  const endpoint = setIn(env, "IDENTITY_ENDPOINT");
  const header = setIn(env, "IDENTITY_HEADER");
  const hint = "give the machine, app or pod an identity, and AZURE_CLIENT_ID if it has several";
  const clientQuery = client === undefined ? "" : `&client_id=${encodeURIComponent(client)}`;
  const query = `resource=${encodeURIComponent(`${storageScope}/`)}${clientQuery}`;
  if (endpoint !== undefined && header !== undefined) {
    const url = `${endpoint}?api-version=2019-08-01&${query}`;
    const headers = { "x-identity-header": header };
    return parseToken(await askForToken(ask, { service: "the identity service", url, headers, hint }));
  }
  const named = setIn(env, "AZURE_POD_IDENTITY_AUTHORITY_HOST");
  const host = named ?? "http://169.254.169.254";
  const url = `${host.replace(/\/$/, "")}/metadata/identity/oauth2/token?api-version=2018-02-01&${query}`;
  try {
    const service = "the instance metadata service";
    return parseToken(
      await askForToken(ask, { service, url, headers: { metadata: "true" }, timeoutMs: metadataMs, hint }),
    );
  } catch (error) {
    // Elsewhere nothing answers at that address, or the server of another cloud.
    const isAbsent = !(error instanceof CredentialsError) || (error.hint !== undefined && named === undefined);
    if (isAbsent && !(await isInAzure())) {
      return undefined;
    }
    throw error;
  }
}

/** On a virtual machine of Azure, the metadata service may be away for a moment. */
async function isInAzure(): Promise<boolean> {
  const tag = await readFile("/sys/class/dmi/id/chassis_asset_tag", "utf8").catch(() => "");
  return tag.trim() === "7783-7084-3265-9085-8269-3286-77";
}

async function cliToken(): Promise<Token | undefined> {
  const args = ["account", "get-access-token", "--resource", storageScope, "--output", "json"];
  try {
    const { stdout } = await promisify(execFile)("az", args, { timeout: 30_000 });
    const { accessToken, expires_on: expiresOn } = fieldsOfJson(stdout);
    return parseToken({ access_token: accessToken, expires_on: expiresOn });
  } catch (error) {
    if (errnoOf(error) === "ENOENT") {
      return undefined;
    }
    const isKilled = Reflect.get(Object(error), "killed") === true; // it took too long, which passes
    throw new CredentialsError(
      "looking for Azure credentials: the Azure CLI has none",
      isKilled ? undefined : "log in again: az login",
    );
  }
}
