import { setMaxListeners } from "node:events";
import { resolve } from "node:path";
import { createSecureContext } from "node:tls";
import { type ServedModel, unknownTraits } from "../binding/model-facts.js";
import type { ModelSignature } from "../columnar/tensor.js";
import type { Engine } from "../engine/port.js";
import { openPromptEngine, promptSignature } from "../engine/prompts/engine.js";
import { findServedModel, measureServer, openServedEngine } from "../engine/served/engine.js";
import { json } from "../engine/served/json.js";
import type { Protocol, ServerStatistics } from "../engine/served/protocol.js";
import {
  type ModelServer,
  type ModelServers,
  type SignRequest,
  ask,
  placeAt,
  serverText,
  serversText,
  urlAt,
  withoutRetry,
} from "../engine/served/server.js";
import { v2 } from "../engine/served/v2.js";
import type { FoundModel, ModelPin } from "../models/port.js";
import { openConnectionPool } from "../net/connections.js";
import { type TlsSettings, proxiesOf } from "../net/request.js";
import { CredentialsError } from "../objects/protocol.js";
import type { ModelSpec } from "../spec/model-spec.js";
import { secretFile, withoutQuery } from "../spec/secrets.js";
import { type ServerSpec, type ServerTlsSpec, templateOf } from "../spec/server-spec.js";
import { type PromptTemplate, parseTemplate } from "../text/prompt.js";
import { JobError, assertNever, messageOf } from "../util/errors.js";
import type { RetryTools } from "../util/retry.js";
import { sha256Of } from "../util/sha256.js";
import { fileError, readSecret, readStart } from "./reading.js";
import type { PromptTask } from "../engine/prompts/task.js";
import { BrokenTransfer, type RequestHeaders } from "../net/http.js";
import type { SigningScope } from "../objects/aws-credentials.js";

/** Seconds that a request may take. */
const defaultTimeout = 60;

/** The highest number of requests in flight with `concurrency: auto`. */
const mostInFlight = 128;

interface ServedOptions {
  /** The folder of the spec. */
  readonly folder: string;
  /** The position of a key in the spec. */
  readonly where: (path: readonly string[]) => string;
  readonly retry: RetryTools;
  readonly signal: AbortSignal;
}

/** Finds the model of `model.server`. @param planned the model that the plan of an unfinished run pins */
export async function findServed(spec: ServerSpec, options: ServedOptions, planned?: ModelPin): Promise<FoundModel> {
  const servers = await serversOf(spec, options);
  using _ = servers[0].connections;
  const model = await findServedModel(protocolOf(spec), servers, {
    version: planned?.version ?? spec.version,
    isPlanned: planned !== undefined,
  });
  return { model, version: model.served.version };
}

/** Opens the engine whose requests go to `model.server`. */
export async function openServed(spec: ServerSpec, options: ServedOptions, model: ServedModel): Promise<Engine> {
  const servers = await serversOf(spec, options);
  return {
    ...openServedEngine(protocolOf(spec), servers, model),
    [Symbol.asyncDispose]() {
      servers[0].connections[Symbol.dispose]();
      return Promise.resolve();
    },
  };
}

function protocolOf({ protocol, request = "instances", response, signature }: ServerSpec): Protocol {
  switch (protocol) {
    case "v2":
      return v2;
    case "v1":
    case "json": {
      const usual = protocol === "v1" && request === "inputs" ? "outputs" : "predictions";
      return json(protocol, { request: templateOf(request), response: response ?? [usual], signature });
    }
    case "openai":
      throw new RangeError("a language model is asked for one row at a time");
    default:
      return assertNever(protocol);
  }
}

/** The findings of `infer-batch doctor` about the servers of a model. */
export interface ServerDiagnosis {
  readonly program: string;
  readonly model: string;
  readonly protocol: string;
  readonly servers: readonly DiagnosedServer[];
  /** undefined: no server answers. */
  readonly signature: ModelSignature | undefined;
  readonly measured: MeasuredServer | undefined;
}

interface DiagnosedServer {
  readonly url: string;
  readonly state: "ready" | "fails";
  /** The version of the model, if the server names one; of a server that fails, why. */
  readonly found: string;
}

/** What a server does with blank rows. */
export interface MeasuredServer {
  readonly batches: readonly { readonly rows: number; readonly ms: number; readonly rowsPerSecond: number }[];
  readonly stopped: string | undefined;
  readonly bestRows: number;
  readonly inFlight: readonly { readonly inFlight: number; readonly rowsPerSecond: number }[];
  /** What the server itself has counted meanwhile, of a request on average; undefined: it counts nothing. */
  readonly counted:
    | { readonly queueMs: number; readonly computeMs: number; readonly requestsJoined: number }
    | undefined;
}

/** What the servers of a spec say and do. */
interface ServersFound extends Pick<ServerDiagnosis, "model" | "servers" | "signature" | "measured"> {
  /** What a run would end with; undefined: it would begin. */
  readonly error: unknown;
}

/** Asks each server for the model, without retries, and measures the first one that has it. */
export async function diagnoseServers(spec: ServerSpec, options: ServedOptions): Promise<ServersFound> {
  const servers = await serversOf(spec, options);
  using _ = servers[0].connections;
  const protocol = protocolOf(spec);
  const found: DiagnosedServer[] = [];
  let [ready, error]: [FoundServer | undefined, unknown] = [undefined, undefined];
  for (const server of servers.map((one) => withoutRetry(one))) {
    const { url } = server;
    try {
      const model = await findServedModel(protocol, [server], { version: spec.version, isPlanned: false });
      ready ??= { server, model };
      const { version } = model.served;
      found.push({ url, state: "ready", found: version === undefined ? "names no version" : `version ${version}` });
    } catch (failed) {
      if (!(failed instanceof JobError)) {
        throw failed;
      }
      error = isAway(error) ? failed : error;
      found.push({ url, state: "fails", found: failed.message });
    }
  }
  const measured = ready === undefined ? undefined : await measureFound(protocol, ready, options);
  const model = serversText(servers);
  // A run ignores unavailable servers, too.
  const ends = ready === undefined || !isAway(error) ? error : undefined;
  return { model, servers: found, signature: ready?.model.served.signature, measured, error: ends };
}

/** Measures a server, and what it counts meanwhile. Other clients of the server are counted too. */
async function measureFound(
  protocol: Protocol,
  { server, model }: FoundServer,
  { retry }: ServedOptions,
): Promise<MeasuredServer> {
  const read = (): Promise<ServerStatistics | undefined> | undefined =>
    protocol.statistics?.(withoutRetry(server), model.served.version);
  const before = await read();
  const measured = await measureServer(openServedEngine(protocol, [server], model), model, retry.nowMs);
  const after = await read();
  const requests = (after?.requests ?? 0) - (before?.requests ?? 0);
  if (before === undefined || after === undefined || requests <= 0) {
    return { ...measured, counted: undefined };
  }
  const counted = {
    queueMs: ((after.queueSeconds - before.queueSeconds) * 1000) / requests,
    computeMs: ((after.computeSeconds - before.computeSeconds) * 1000) / requests,
    requestsJoined: requests / Math.max(1, after.executions - before.executions),
  };
  return { ...measured, counted };
}

interface FoundServer {
  readonly server: ModelServer;
  readonly model: ServedModel;
}

/** Whether there is no error, or one that a run waits for. */
function isAway(error: unknown): boolean {
  return error === undefined || (error instanceof JobError && error.code === "NETWORK");
}

/** The servers of the spec. They share their connections. @param auto requests in flight with `concurrency: auto` */
async function serversOf(spec: ServerSpec, options: ServedOptions, auto = mostInFlight): Promise<ModelServers> {
  const { url: urls, name, path = "", timeout, concurrency } = spec;
  setMaxListeners(0, options.signal); // else Node warns of a leak when many requests are in flight
  const most = concurrency === "auto" ? auto : concurrency;
  const serverAt = (url: string): ModelServer => ({ ...shared, ...placeAt(url, path) });
  const tls = await readTls(spec.tls, options);
  const timeoutMs = (timeout ?? defaultTimeout) * 1000;
  const shared = {
    model: name ?? withoutQuery(path),
    headers: await headersOf(spec, options),
    sign: await signingOf(spec, options),
    tls,
    timeoutMs,
    most,
    retry: options.retry,
    signal: options.signal,
    findProxy: proxiesOf(process.env),
    connections: openConnectionPool(timeoutMs, tls),
  };
  const [first = "", ...others] = urls;
  return [serverAt(first), ...others.map(serverAt)];
}

/** What signs requests; undefined: nothing does. The SDK of AWS is loaded only for servers that need it. */
async function signingOf(
  { auth, url }: ServerSpec,
  { signal, where }: ServedOptions,
): Promise<SignRequest | undefined> {
  if (auth !== "sigv4") {
    return undefined;
  }
  return await signAws({ urls: url, key: where(["model", "server", "auth"]), signal, env: process.env });
}

/** A token in a file is read again when it was read longer ago. */
const tokenMs = 1000;

/** The headers of each request: token and headers of the spec. A token in a file may be rotated while the run goes on. */
async function headersOf({ token, headers = {} }: ServerSpec, options: ServedOptions): Promise<RequestHeaders> {
  const read: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers)) {
    read[name.toLowerCase()] = await readHeader(value, ["headers", name], options);
  }
  if (token === undefined) {
    return read;
  }
  const withToken = async (): Promise<Readonly<Record<string, string>>> => ({
    ...read,
    authorization: `Bearer ${await readHeader(token, ["token"], options)}`,
  });
  let known = withToken();
  await known;
  if (secretFile(token) === undefined) {
    return await known;
  }
  const { nowMs } = options.retry;
  let readMs = nowMs();
  return async () => {
    if (nowMs() - readMs > tokenMs) {
      readMs = nowMs();
      const before = known;
      known = withToken().catch(() => before); // it is being written
    }
    return await known;
  };
}

/** @throws JobError SPEC_INVALID for a secret that no header can carry */
async function readHeader(given: string, path: readonly string[], { folder, where }: ServedOptions): Promise<string> {
  const key = where(["model", "server", ...path]);
  const secret = await readSecret(given, { folder, key });
  if (!/^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(secret)) {
    throw new JobError("SPEC_INVALID", `reading ${key}: it has characters that no HTTP header can carry`, {
      hint: "it is made of letters, digits and punctuation, without line ends, and without blanks at its ends",
    });
  }
  return secret;
}

/** More than all authorities of a system. */
const limitBytes = 4 * 1024 * 1024;

interface TlsFilesPlace {
  /** The folder of the spec, which relative paths start from. */
  readonly folder: string;
  /** The position of a key in the spec. */
  readonly where: (path: readonly string[]) => string;
}

/**
 * Reads the files of `model.server.tls`. No message quotes them.
 * @throws JobError FILE_MISSING, PERMISSION, SPEC_INVALID for files that are not certificates and their key
 */
async function readTls(files: ServerTlsSpec | undefined, { folder, where }: TlsFilesPlace): Promise<TlsSettings> {
  const read: Record<string, string> = {};
  for (const [name, path] of Object.entries(files ?? {}) as [string, string][]) {
    const doing = `reading ${where(["model", "server", "tls", name])}: ${path}`;
    try {
      read[name] = await readStart(resolve(folder, path), limitBytes);
    } catch (error) {
      throw fileError(doing, error, "a file in PEM that this user can read; paths are relative to the spec's folder");
    }
  }
  try {
    createSecureContext(read);
  } catch (error) {
    const doing = `reading ${where(["model", "server", "tls"])}`;
    throw new JobError("SPEC_INVALID", `${doing}: ${messageOf(error)}`, {
      hint: "ca and cert are certificates in PEM, key is the private key of cert in PEM, without a passphrase",
    });
  }
  return read;
}

/** The keys of `model` of a language model. */
interface PromptedSpec extends Pick<ModelSpec, "prompt" | "sampling" | "response" | "budget"> {
  readonly server: ServerSpec;
}

/** Requests in flight with `concurrency: auto`: a server of language models answers many at once, each slowly. */
const mostPrompts = 256;
/** Seconds: long answers of busy servers take minutes, and a request that times out may be paid for twice. */
const promptTimeout = 600;
const defaultTries = 2;

/**
 * Finds the language model of a spec: whether its servers answer and take the token. Nothing is asked that costs money.
 * @throws JobError PERMISSION, NETWORK
 */
export async function findPrompted(
  spec: PromptedSpec,
  options: ServedOptions,
  planned: ModelPin | undefined,
): Promise<FoundModel> {
  const servers = await promptServers(spec, options);
  using _ = servers[0].connections;
  await requireServers(servers);
  const task = taskOf(spec);
  const version = planned?.version ?? spec.server.version;
  const signature = promptSignature(task);
  const [{ model: name }] = servers;
  const identity = JSON.stringify(["openai", name, version ?? null, task]);
  const sha256 = sha256Of(identity);
  const served = { signature, version, isVersionInPath: false, isBinary: false, mostRows: 1 };
  const model = { name: serversText(servers), sha256, traits: unknownTraits, served, isPlanned: planned !== undefined };
  return { model, version };
}

/** Opens the engine that asks the language model of a spec. */
export async function openPrompted(
  spec: PromptedSpec,
  options: ServedOptions,
  version: string | undefined,
): Promise<Engine> {
  const servers = await promptServers(spec, options);
  const { tries = defaultTries, flush_seconds: flushSeconds } = spec.server;
  const { max_tokens: tokens, max_cost: cost, price } = spec.budget ?? {};
  const engine = openPromptEngine({
    task: taskOf(spec),
    servers,
    version,
    tries,
    flushMs: flushSeconds === undefined ? undefined : flushSeconds * 1000,
    limits: { tokens, cost },
    price,
  });
  return {
    ...engine,
    async [Symbol.asyncDispose]() {
      servers[0].connections[Symbol.dispose]();
      await engine[Symbol.asyncDispose]();
    },
  };
}

/** Asks each server of a language model whether it answers and takes the token. Nothing is asked that costs money. */
export async function diagnosePrompted(spec: PromptedSpec, options: ServedOptions): Promise<ServersFound> {
  const servers = await promptServers(spec, options);
  using _ = servers[0].connections;
  const found: DiagnosedServer[] = [];
  let error: unknown;
  for (const server of servers) {
    const { url } = server;
    try {
      await requireServer(withoutRetry(server));
      found.push({ url, state: "ready", found: "answers; prompts are not tried, since they cost money" });
    } catch (failed) {
      if (!(failed instanceof JobError)) {
        throw failed;
      }
      error ??= failed;
      found.push({ url, state: "fails", found: failed.message });
    }
  }
  const signature = promptSignature(taskOf(spec));
  const isUsable = found.some(({ state }) => state === "ready") && isNetworkError(error);
  return {
    model: serversText(servers),
    servers: found,
    signature,
    measured: undefined,
    error: isUsable ? undefined : error,
  };
}

/** Whether there is no error, or one that a run waits for while another server answers. */
function isNetworkError(error: unknown): boolean {
  return error === undefined || (error instanceof JobError && error.code === "NETWORK");
}

function taskOf({ prompt = {}, sampling = {}, response }: PromptedSpec): PromptTask {
  const { system, user, input, max_input_tokens: mostTokens, truncate, answer_columns: answerColumns } = prompt;
  return {
    kind: input === undefined ? "chat" : "embedding",
    system: system === undefined ? undefined : promptOf(system),
    text: promptOf(user ?? input ?? ""),
    sampling,
    response,
    ...(mostTokens === undefined ? {} : { mostTokens }),
    ...(truncate === undefined ? {} : { truncate }),
    ...(answerColumns === undefined ? {} : { answerColumns }),
  };
}

/** The spec has checked it. */
function promptOf(text: string): PromptTemplate {
  const parsed = parseTemplate(text);
  if ("problem" in parsed) {
    throw new Error(parsed.problem);
  }
  return parsed;
}

/** Servers by their base URLs: those without a path have the API at /v1. */
async function promptServers(
  { server }: Pick<PromptedSpec, "server">,
  options: ServedOptions,
): Promise<readonly [ModelServer, ...ModelServer[]]> {
  const [first, ...others] = await serversOf(
    { ...server, timeout: server.timeout ?? promptTimeout },
    options,
    mostPrompts,
  );
  return [atBase(first), ...others.map((one) => atBase(one))];
}

function atBase(server: ModelServer): ModelServer {
  return new URL(server.base).pathname === "/" ? { ...server, ...placeAt(urlAt(server, "/v1")) } : server;
}

/** Asks each server whether it answers. Ignores unavailable ones, unless all of them are. */
async function requireServers(servers: readonly [ModelServer, ...ModelServer[]]): Promise<void> {
  const [first, ...others] = servers;
  if (others.length === 0) {
    await requireServer(first);
    return;
  }
  let away = 0;
  for (const server of servers) {
    try {
      await requireServer(withoutRetry(server));
    } catch (error) {
      if (!isNetworkError(error)) {
        throw error;
      }
      away += 1;
      server.retry.warn(`${server.url} does not answer; it is left out for now`);
    }
  }
  await (away === servers.length ? requireServer(first) : undefined);
}

/** Asks for the list of models, which many servers have. One that refuses it is asked for rows anyway. */
async function requireServer(server: ModelServer): Promise<void> {
  const doing = `asking for ${serverText(server)}`;
  try {
    await ask(server, doing, urlAt(server, "/models"));
  } catch (error) {
    if (!(error instanceof JobError) || error.code === "PERMISSION" || error.code === "NETWORK") {
      throw error;
    }
  }
}

interface SignatureOptions {
  readonly urls: readonly string[];
  /** The position of `model.server.auth` in the spec. */
  readonly key: string;
  readonly signal: AbortSignal;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/**
 * Makes what signs requests with Signature Version 4, with the credentials that are used for S3.
 * @throws JobError SPEC_INVALID if a URL does not tell the region, and the environment does not either
 */
async function signAws({ urls, key, signal, env }: SignatureOptions): Promise<SignRequest> {
  const { createSigner, scopeOfHost } = await import("../objects/aws-credentials.js");
  const region = [env["AWS_REGION"], env["AWS_DEFAULT_REGION"]].find((one) => one !== undefined && one !== "");
  const scopeOf = (url: URL): SigningScope | undefined =>
    scopeOfHost(url.hostname) ?? (region === undefined ? undefined : { region, service: "sagemaker" });
  const unknown = urls.find((url) => scopeOf(new URL(url)) === undefined);
  if (unknown !== undefined) {
    throw new JobError("SPEC_INVALID", `reading ${key}: the region of ${new URL(unknown).host} is not known`, {
      hint: "set AWS_REGION, or write the URL of the service, such as https://runtime.sagemaker.eu-west-1.amazonaws.com",
    });
  }
  const sign = createSigner({ searchMs: 60_000, signal });
  return async (request) => {
    const scope = scopeOf(request.url);
    try {
      return scope === undefined ? request.headers : await sign(request, scope);
    } catch (error) {
      throw error instanceof CredentialsError ? failureOf(error) : error;
    }
  };
}

/** An error without a hint means that the credentials' service is temporarily unavailable. */
function failureOf({ message, hint }: CredentialsError): Error {
  return hint === undefined ? new BrokenTransfer(message) : new JobError("PERMISSION", message, { hint });
}
