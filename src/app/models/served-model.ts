import { setMaxListeners } from "node:events";
import type { ServedModel } from "../../binding/served-model.js";
import { openServedEngine } from "../../engine/served/engine.js";
import { findServedModel } from "../../engine/served/find-model.js";
import type { Protocol } from "../../engine/served/protocol.js";
import type { ModelServer } from "../../engine/served/server.js";
import { v1 } from "../../engine/served/v1/v1.js";
import { v2 } from "../../engine/served/v2/v2.js";
import type { Engine } from "../../engine/port.js";
import type { FoundModel, ModelPin } from "../../models/port.js";
import { proxiesOf } from "../../net/proxy.js";
import { keepConnections } from "../../net/request.js";
import type { ServerSpec } from "../../spec/server/server-spec.js";
import { assertNever, JobError } from "../../util/errors.js";
import type { RetryTools } from "../../util/retry.js";
import { readSecret } from "../secrets.js";

/** The highest number of requests in flight with `concurrency: auto`. */
const mostInFlight = 64;

export interface ServedOptions {
  /** The folder of the spec. */
  readonly folder: string;
  /** Where a key of the spec stands. */
  readonly where: (path: readonly string[]) => string;
  readonly retry: RetryTools;
  readonly signal: AbortSignal;
}

/** Finds the model of `model.server`. @param planned the model that the plan of an unfinished run pins */
export async function findServed(spec: ServerSpec, options: ServedOptions, planned?: ModelPin): Promise<FoundModel> {
  const server = await serverOf(spec, options);
  using _ = server.connections;
  const model = await findServedModel(protocolOf(spec), server, planned?.version ?? spec.version);
  return { model, version: model.served.version };
}

/** Opens the engine whose requests go to `model.server`. */
export async function openServed(spec: ServerSpec, options: ServedOptions, model: ServedModel): Promise<Engine> {
  const server = await serverOf(spec, options);
  return {
    ...openServedEngine(protocolOf(spec), server, model),
    [Symbol.asyncDispose]() {
      server.connections[Symbol.dispose]();
      return Promise.resolve();
    },
  };
}

function protocolOf({ protocol, request = "instances", response, signature }: ServerSpec): Protocol {
  switch (protocol) {
    case "v2":
      return v2;
    case "v1":
      return v1({
        request,
        response: response ?? [request === "instances" ? "predictions" : "outputs"],
        signature,
      });
    default:
      return assertNever(protocol);
  }
}

async function serverOf(spec: ServerSpec, options: ServedOptions): Promise<ModelServer> {
  const { url, name, token, timeout, concurrency } = spec;
  setMaxListeners(0, options.signal); // else Node warns of a leak when many requests are in flight
  const most = concurrency === "auto" ? mostInFlight : concurrency;
  return {
    url: url.replace(/\/+$/, ""),
    model: name,
    headers: token === undefined ? {} : { authorization: `Bearer ${await readToken(token, options)}` },
    timeoutMs: timeout * 1000,
    most,
    retry: options.retry,
    signal: options.signal,
    findProxy: proxiesOf(process.env),
    connections: keepConnections(most),
  };
}

/** @throws JobError SPEC_INVALID for a token that no header can carry */
async function readToken(given: string, { folder, where }: ServedOptions): Promise<string> {
  const key = where(["model", "server", "token"]);
  const token = await readSecret(given, { folder, key });
  if (!/^[\x21-\x7e]+$/.test(token)) {
    throw new JobError("SPEC_INVALID", `reading ${key}: it has characters that no HTTP header can carry`, {
      hint: "a token is made of letters, digits and punctuation, without blanks and line ends",
    });
  }
  return token;
}
