import { setMaxListeners } from "node:events";
import { resolve } from "node:path";
import { createSecureContext } from "node:tls";
import type { ServedModel } from "../../binding/served-model.js";
import type { Engine } from "../../engine/port.js";
import { findServedModel, measureServer, openServedEngine } from "../../engine/served/engine.js";
import { json } from "../../engine/served/json.js";
import type { Protocol, ServerStatistics } from "../../engine/served/protocol.js";
import {
  type ModelServer,
  type ModelServers,
  placeAt,
  serversText,
  type SignRequest,
  withoutRetry,
} from "../../engine/served/server.js";
import { v2 } from "../../engine/served/v2.js";
import type { FoundModel, ModelPin } from "../../models/port.js";
import { openConnectionPool } from "../../net/connections.js";
import type { RequestHeaders } from "../../net/http.js";
import { proxiesOf, type TlsSettings } from "../../net/request.js";
import type { DiagnosedServer, MeasuredServer, ServerDiagnosis } from "../../report/server-diagnosis.js";
import { secretFile, withoutQuery } from "../../spec/secrets.js";
import { templateOf } from "../../spec/server/request-template.js";
import type { ServerSpec, ServerTlsSpec } from "../../spec/server/server-spec.js";
import { assertNever, JobError, messageOf } from "../../util/errors.js";
import type { RetryTools } from "../../util/retry.js";
import { fileError, readSecret, readStart } from "../reading/given-files.js";

/** Seconds that a request may take. */
const defaultTimeout = 60;

/** The highest number of requests in flight with `concurrency: auto`. */
const mostInFlight = 128;

export interface ServedOptions {
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

/** What the servers of a spec say and do. */
export interface ServersFound extends Pick<ServerDiagnosis, "model" | "servers" | "signature" | "measured"> {
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
export async function serversOf(spec: ServerSpec, options: ServedOptions, auto = mostInFlight): Promise<ModelServers> {
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
  const { signAws } = await import("./aws-signature.js");
  return signAws({ urls: url, key: where(["model", "server", "auth"]), signal, env: process.env });
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
