import { setMaxListeners } from "node:events";
import { createSecureContext } from "node:tls";
import { type ServedModel, unknownTraits } from "../models/binding/model-facts.js";
import type { ModelSignature } from "../columns/tensor.js";
import type { Engine } from "../models/engine.js";
import { openPromptEngine, promptSignature } from "../models/prompts/engine.js";
import { findServedModel, measureServer, openServedEngine } from "../models/served/engine.js";
import { json } from "../models/served/json.js";
import type { Protocol, ServerStatistics } from "../models/served/protocol.js";
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
} from "../models/served/server.js";
import { v2 } from "../models/served/v2.js";
import type { FoundModel, ModelPin } from "../models/places/place.js";
import { openConnectionPool } from "../base/http/connections.js";
import { proxiesOf } from "../base/http/proxies.js";
import type { TlsSettings } from "../base/http/request.js";
import { CredentialsError } from "../stores/objects/protocol.js";
import type { ModelSpec } from "./jobfile/model-spec.js";
import { secretFile, withoutQuery } from "./jobfile/secrets.js";
import { type ServerSpec, type ServerTlsSpec, templateOf } from "./jobfile/server-spec.js";
import { parseTemplate, type PromptTemplate } from "../models/binding/prompt.js";
import { assertNever, JobError, messageOf } from "../base/errors.js";
import { sha256Of } from "../base/sha256.js";
import type { Tools } from "./attempt.js";
import { readHeaderValue, readPem } from "./reading.js";
import type { PromptTask } from "../models/prompts/task.js";
import { BrokenTransfer, type RequestHeaders } from "../base/http/http.js";
import type { SigningScope } from "../stores/objects/aws-credentials.js";

/** A model that a server has; one of protocol openai is asked with the prompt of each row. */
export interface ServedSpec extends Pick<ModelSpec, "prompt" | "sampling" | "response" | "budget"> {
  readonly server: ServerSpec;
}

interface ServedOptions extends Tools {
  readonly where: (path: readonly string[]) => string;
}

/**
 * Asks nothing that costs money. @param planned as an unfinished run's plan pins it @throws JobError PERMISSION,
 * NETWORK
 */
export async function findServed(spec: ServedSpec, options: ServedOptions, planned?: ModelPin): Promise<FoundModel> {
  const servers = await serversOf(spec.server, options);
  using _ = servers[0].connections;
  const version = planned?.version ?? spec.server.version;
  const isPlanned = planned !== undefined;
  if (spec.server.protocol !== "openai") {
    const model = await findServedModel(protocolOf(spec.server), servers, { version, isPlanned });
    return { model, version: model.served.version };
  }
  await requireServers(servers);
  const task = taskOf(spec);
  const sha256 = sha256Of(JSON.stringify(["openai", servers[0].model, version ?? null, task]));
  const served = { signature: promptSignature(task), version, isVersionInPath: false, isBinary: false, mostRows: 1 };
  return { model: { name: serversText(servers), sha256, traits: unknownTraits, served, isPlanned }, version };
}

export async function openServed(spec: ServedSpec, options: ServedOptions, model: ServedModel): Promise<Engine> {
  const servers = await serversOf(spec.server, options);
  const { protocol, tries = 2, flush_seconds: flushSeconds } = spec.server;
  const { max_tokens: tokens, max_cost: cost, price } = spec.budget ?? {};
  const engine =
    protocol === "openai"
      ? openPromptEngine({
          task: taskOf(spec),
          servers,
          version: model.served.version,
          tries,
          flushMs: flushSeconds === undefined ? undefined : flushSeconds * 1000,
          limits: { tokens, cost },
          price,
        })
      : openServedEngine(protocolOf(spec.server), servers, model);
  return {
    ...engine,
    async [Symbol.asyncDispose]() {
      servers[0].connections[Symbol.dispose]();
      await engine[Symbol.asyncDispose]();
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

export interface ServerDiagnosis {
  readonly program: string;
  readonly model: string;
  readonly protocol: string;
  /** `found`: the version of the model, if the server names one; of a server that fails, why. */
  readonly servers: readonly { readonly url: string; readonly state: "ready" | "fails"; readonly found: string }[];
  /** undefined: no server answers. */
  readonly signature: ModelSignature | undefined;
  readonly measured: MeasuredServer | undefined;
}

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

/** What the servers of a spec say and do; `error`: what a run would end with; undefined: it would begin. */
type ServersFound = Omit<ServerDiagnosis, "program" | "protocol"> & { readonly error: unknown };

/** Asks each server for the model, without retries, and measures the first one that has it, unless that costs money. */
export async function diagnoseServers(spec: ServedSpec, options: ServedOptions): Promise<ServersFound> {
  const { server: served } = spec;
  const servers = await serversOf(served, options);
  using _ = servers[0].connections;
  const protocol = served.protocol === "openai" ? undefined : protocolOf(served);
  const found: ServerDiagnosis["servers"][number][] = [];
  let ready: { readonly server: ModelServer; readonly model: ServedModel } | undefined;
  let error: unknown;
  for (const server of servers.map((one) => withoutRetry(one))) {
    const { url } = server;
    try {
      if (protocol === undefined) {
        await requireServer(server);
        found.push({ url, state: "ready", found: "answers; prompts are not tried, since they cost money" });
        continue;
      }
      const model = await findServedModel(protocol, [server], { version: served.version, isPlanned: false });
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
  const signature = protocol === undefined ? promptSignature(taskOf(spec)) : ready?.model.served.signature;
  const measured = protocol && ready && (await measureFound(protocol, ready.server, ready.model));
  // A run ignores unavailable servers, too.
  const isUsable = found.some(({ state }) => state === "ready") && isAway(error);
  return { model: serversText(servers), servers: found, signature, measured, error: isUsable ? undefined : error };
}

/** Other clients of the server are counted too. */
async function measureFound(protocol: Protocol, server: ModelServer, model: ServedModel): Promise<MeasuredServer> {
  const read = (): Promise<ServerStatistics | undefined> | undefined =>
    protocol.statistics?.(withoutRetry(server), model.served.version);
  const before = await read();
  const measured = await measureServer(openServedEngine(protocol, [server], model), model, server.retry.nowMs);
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

/** Whether there is no error, or one that a run waits for while another server answers. */
function isAway(error: unknown): boolean {
  return error === undefined || (error instanceof JobError && error.code === "NETWORK");
}

function taskOf({ prompt = {}, sampling = {}, response }: ServedSpec): PromptTask {
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

/** Ignores unavailable servers, unless all of them are. */
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
      if (!isAway(error)) {
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

/** In seconds. Busy language models take minutes, and a request that times out may be paid for twice. */
const usual = { rows: { timeout: 60, inFlight: 128 }, prompts: { timeout: 600, inFlight: 256 } };

/** They share their connections. */
async function serversOf(spec: ServerSpec, options: ServedOptions): Promise<ModelServers> {
  const { protocol, url: urls, name, path = "", concurrency } = spec;
  const asksPrompts = protocol === "openai";
  const { timeout, inFlight } = asksPrompts ? usual.prompts : usual.rows;
  setMaxListeners(0, options.signal); // else Node warns of a leak when many requests are in flight
  const tls = await readTls(spec.tls, options);
  const timeoutMs = (spec.timeout ?? timeout) * 1000;
  const shared = {
    model: name ?? withoutQuery(path),
    headers: await headersOf(spec, options),
    sign: spec.auth === "sigv4" ? await signAws(urls, ["model", "server", "auth"], "sagemaker", options) : undefined,
    tls,
    timeoutMs,
    most: concurrency === "auto" ? inFlight : concurrency,
    retry: options.retry,
    signal: options.signal,
    findProxy: proxiesOf(process.env),
    connections: openConnectionPool(timeoutMs, tls),
  };
  const serverAt = (url: string): ModelServer => {
    const server = { ...shared, ...placeAt(url, path) };
    // Language models without a path have the API at /v1.
    return asksPrompts && new URL(server.base).pathname === "/"
      ? { ...server, ...placeAt(urlAt(server, "/v1")) }
      : server;
  };
  const [first = "", ...others] = urls;
  return [serverAt(first), ...others.map(serverAt)];
}

/** A token in a file is read again when it was read longer ago. */
const tokenMs = 1000;

/** A token in a file may be rotated while the run goes on. */
async function headersOf({ token, headers = {} }: ServerSpec, options: ServedOptions): Promise<RequestHeaders> {
  const { folder, where } = options;
  const keyOf = (...path: readonly string[]) => ({ folder, key: where(["model", "server", ...path]) });
  const read: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers)) {
    read[name.toLowerCase()] = await readHeaderValue(value, keyOf("headers", name));
  }
  if (token === undefined) {
    return read;
  }
  const withToken = async (): Promise<Readonly<Record<string, string>>> => ({
    ...read,
    authorization: `Bearer ${await readHeaderValue(token, keyOf("token"))}`,
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

/** No message quotes the files. */
async function readTls(files: ServerTlsSpec | undefined, { folder, where }: ServedOptions): Promise<TlsSettings> {
  const read: Record<string, string> = {};
  for (const [name, path] of Object.entries(files ?? {}) as [string, string][]) {
    read[name] = await readPem(path, { folder, key: where(["model", "server", "tls", name]) });
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

/**
 * Uses the credentials for S3. @param service the one at URLs that are not AWS's own @throws JobError SPEC_INVALID if
 * neither a URL nor the environment tells the region
 */
export async function signAws(
  urls: readonly string[],
  key: readonly string[],
  service: string,
  { signal, where }: Pick<ServedOptions, "signal" | "where">,
): Promise<SignRequest> {
  const { createSigner, scopeOfHost } = await import("../stores/objects/aws-credentials.js");
  const region = [process.env["AWS_REGION"], process.env["AWS_DEFAULT_REGION"]].find(
    (one) => one !== undefined && one !== "",
  );
  const scopeOf = (url: URL): SigningScope | undefined =>
    scopeOfHost(url.hostname) ?? (region === undefined ? undefined : { region, service });
  const unknown = urls.find((url) => scopeOf(new URL(url)) === undefined);
  if (unknown !== undefined) {
    throw new JobError("SPEC_INVALID", `reading ${where(key)}: the region of ${new URL(unknown).host} is not known`, {
      hint: "set AWS_REGION, or write the URL of the service, such as https://runtime.sagemaker.eu-west-1.amazonaws.com",
    });
  }
  const sign = createSigner({ searchMs: 60_000, signal });
  return async (request) => {
    const scope = scopeOf(request.url);
    try {
      return scope === undefined ? request.headers : await sign(request, scope);
    } catch (error) {
      if (!(error instanceof CredentialsError)) {
        throw error;
      }
      const { message, hint } = error; // no hint: the credentials' service is away for the moment
      throw hint === undefined ? new BrokenTransfer(message) : new JobError("PERMISSION", message, { hint });
    }
  };
}
