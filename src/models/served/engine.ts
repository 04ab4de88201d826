import { constants } from "node:buffer";
import { type ServedFacts, type ServedModel, unknownTraits } from "../binding/model-facts.js";
import { blankRows } from "../../columns/tensor.js";
import { BrokenTransfer, readText } from "../../base/http/http.js";
import { JobError, assertNever } from "../../base/errors.js";
import { type RetryVerdict, tryAgain } from "../../base/retry.js";
import { sha256Of } from "../../base/sha256.js";
import type { Engine, EngineRequest } from "../engine.js";
import {
  type Answer,
  type EncodedRequest,
  type Expected,
  MalformedAnswer,
  type Protocol,
  type RequestedVersion,
  UnsendableValue,
} from "./protocol.js";
import {
  type ModelServer,
  type ModelServers,
  loadingSeconds,
  placeOf,
  type Refusal,
  refusalOf,
  serverText,
  serversText,
  untilReady,
  withoutRetry,
} from "./server.js";
import {
  type AskedServer,
  type Received,
  type RefusedRows,
  UnknownModel,
  openAsking,
  usualAnswerBytes,
} from "./turns.js";

/** Has servers compute the predictions of their model. */
export function openServedEngine(
  protocol: Protocol,
  servers: ModelServers,
  { served, isPlanned }: ServedModel,
): Engine {
  const client = openClient(protocol, servers, served, isPlanned);
  const known = new Map(served.signature.outputs.map((output) => [output.name, output]));
  let requests = 0;

  const run = async ({ inputs, outputs, isBlank }: EngineRequest): ReturnType<Engine["run"]> => {
    const rows = inputs[0]?.dims[0] ?? 0;
    if (rows > (served.mostRows ?? rows)) {
      const message = `the server takes at most ${served.mostRows} rows in a request`;
      return { kind: "exhausted", message, inputs };
    }

    requests += 1;
    const encoded = protocol.encode({ id: String(requests), inputs, outputs }, served);
    if ("unfit" in encoded) {
      const message = `input \`${encoded.unfit}\` has NaN or an infinity, which JSON lacks, and requests are sent as JSON`;
      return { kind: "failed", message, inputs };
    }

    const wanted = outputs.map((name) => known.get(name) ?? { name, dtype: undefined, shape: [] });
    const outcome = await client.infer({ encoded, rows, isBlank: isBlank === true, wanted });
    switch (outcome.kind) {
      case "answered":
        return { kind: "done", outputs: outcome.answer.outputs, ms: outcome.ms, inputs };
      case "refused":
        return { kind: "failed", message: outcome.message, inputs };
      case "too large":
        return { kind: "exhausted", message: outcome.message, inputs };
      default:
        return assertNever(outcome);
    }
  };

  return {
    signature: served.signature,
    provider: protocol.name,
    concurrency: servers[0].most,
    mostRows: served.mostRows,
    traffic: client.traffic,
    run,
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

/** The version in a server's answer to a blank row, where nothing else names it; undefined: neither does the answer. */
async function answeredVersion(
  protocol: Protocol,
  server: ModelServer,
  served: ServedFacts,
): Promise<string | undefined> {
  const { inputs, outputs: wanted } = served.signature;
  const blank = blankRows(inputs, 1);
  const parts = { id: "0", inputs: blank ?? [], outputs: wanted.map(({ name }) => name) };
  const encoded = protocol.encode(parts, served);
  if (blank === undefined || "unfit" in encoded) {
    return undefined;
  }

  const client = openClient(protocol, [server], served, false);
  const outcome = await client.infer({ encoded, rows: 1, isBlank: true, wanted });
  return outcome.kind === "answered" ? outcome.answer.version : undefined;
}

type Outcome =
  | { readonly kind: "answered"; readonly answer: Answer }
  | RefusedRows
  /** The server takes no request of so many rows or bytes. */
  | { readonly kind: "too large"; readonly message: string };

interface InferenceRequest {
  readonly encoded: EncodedRequest;
  readonly rows: number;
  /** The rows are made up: a fault of the server is about them until it has answered others. */
  readonly isBlank: boolean;
  readonly wanted: Expected["outputs"];
}

/** Failures of servers on a batch, and on a single row, before it may be the values that make them fail. */
const [faultsOfBatch, faultsOfRow] = [3, 5];

function openClient(protocol: Protocol, servers: ModelServers, version: RequestedVersion, isPlanned: boolean) {
  const urlOf = (server: ModelServer): string => protocol.inferUrl(server, version);
  const asking = openAsking(servers, "scoring with", urlOf, { isEager: false, mayResend: true });
  /** Since when a server has answered that it does not know the model. */
  const unknownSinceMs = new Map<ModelServer, number>();
  /** A copy of the smallest request that was answered: the memory of requests is used again. */
  let control: EncodedRequest | undefined;
  /** The version in the answers so far. */
  let { version: expected } = version;

  const read = (
    { encoded, wanted, rows }: InferenceRequest,
    received: Received,
    { server, doing }: AskedServer,
  ): Outcome => {
    unknownSinceMs.delete(server);
    try {
      const answer = protocol.decode(received, { outputs: wanted, rows });
      if (answer.version !== undefined && answer.version !== (expected ?? answer.version)) {
        const message = `${doing}: version ${answer.version} answered, and this run is scored with version ${expected}`;
        throw new JobError("MODEL_CHANGED", message, { hint: changedHint });
      }
      expected ??= answer.version;
      if (control === undefined || encoded.sizeBytes < control.sizeBytes) {
        control = { ...encoded, body: encoded.body.map((piece) => new Uint8Array(piece)) };
      }
      return { kind: "answered", answer };
    } catch (error) {
      if (error instanceof UnsendableValue) {
        return { kind: "refused", reason: undefined, message: `the answer has ${error.message}` };
      }
      if (error instanceof MalformedAnswer) {
        throw new JobError("MODEL_INVALID", `${doing}: reading the answer: ${error.message}`, {
          hint: "the server's answers do not match the protocol, or what the metadata or model.server.signature says of the model",
        });
      }
      throw error;
    }
  };

  /** The error for a server that does not know the model, which it may be loading. */
  const goneError = async (message: string, refusal: Refusal, { server, doing }: AskedServer): Promise<Error> => {
    const changed = `${doing}: ${message}; this run is scored with version ${version.version}`;
    const error =
      version.version === undefined
        ? refusalOf(server, doing, refusal)
        : new JobError("MODEL_CHANGED", changed, { hint: changedHint });
    if (mayBeLoading(server)) {
      return new UnknownModel(message, error);
    }
    return (await isReady(server, doing, protocol.readyUrl(server))) ? error : new BrokenTransfer(message);
  };

  /**
   * Whether a server that does not know the model may have started just now, and answers before it has loaded its models.
   * The model must have been there before: in an answer, or when the run was planned.
   */
  const mayBeLoading = (server: ModelServer): boolean => {
    const { nowMs } = server.retry;
    const sinceMs = unknownSinceMs.get(server) ?? nowMs();
    unknownSinceMs.set(server, sinceMs);
    return (control !== undefined || isPlanned) && nowMs() - sinceMs < loadingSeconds(server.retry) * 1000;
  };

  return {
    traffic: asking.traffic,
    /** @throws JobError NETWORK (75) after all retries, PERMISSION, FILE_MISSING, MODEL_INVALID, MODEL_CHANGED */
    async infer(request: InferenceRequest): Promise<Outcome & { readonly ms: number }> {
      const { encoded, rows, isBlank } = request;
      try {
        return await asking.ask<Outcome>({
          encoded,
          mostBytes: answerBytes(request),
          rows,
          tokens: 0,
          mostFaults: rows === 1 ? faultsOfRow : faultsOfBatch,
          ready: () => Promise.resolve(),
          onLost: ignore,
          read: (received, from) => read(request, received, from),
          async refused({ kind, message }, refusal, from) {
            if (kind === "gone") {
              throw await goneError(message, refusal, from);
            }
            return kind === "too large"
              ? { kind, message }
              : kind === "values"
                ? { kind: "refused", reason: undefined, message }
                : undefined;
          },
          // It works if it answers a request that was answered before.
          works: async (turn) =>
            isBlank ||
            (control &&
              (await asking.control(turn, { encoded: control, mostBytes: largestAnswer, onLost: ignore })) !==
                undefined),
        });
      } catch (error) {
        const ending = error instanceof JobError && error.cause instanceof UnknownModel ? error.cause.lasting : error;
        asking.stop(ending);
        throw ending;
      }
    },
  };
}

/** Predictions have no effects, so a request whose answer was lost is sent again. */
function ignore(): void {}

const changedHint = "serve that version again and run the same command; or abandon this run with --new-run";

/** A text cannot be longer: 512 MiB. */
const largestAnswer = constants.MAX_STRING_LENGTH;
/** Bytes of a value in JSON, of a text, and values of a row where the model does not say how many it has. */
const [numberBytes, textBytes, anyWidth] = [64, 4096, 16_384];

/** An answer may quote the request. */
function answerBytes({ wanted, rows, encoded }: InferenceRequest): number {
  const bytesOfRow = wanted.reduce((sum, { dtype, shape: [, width = 1] }) => {
    return sum + (width ?? anyWidth) * (dtype === "string" ? textBytes : numberBytes);
  }, 0);
  return Math.min(largestAnswer, usualAnswerBytes + encoded.sizeBytes + rows * bytesOfRow);
}

async function isReady(server: ModelServer, doing: string, readyUrl: string | undefined): Promise<boolean> {
  if (readyUrl === undefined) {
    return true;
  }
  const text = await readText(readyUrl, placeOf(withoutRetry(server), doing)).catch(() => undefined);
  server.signal.throwIfAborted();
  return text !== undefined;
}

interface WantedModel {
  /** The version that a plan or the spec names; undefined: the one that the server names. */
  readonly version: string | undefined;
  /** Whether servers had it when an unfinished run was planned. One that lacks it now may still be loading it. */
  readonly isPlanned: boolean;
}

/**
 * Asks servers for their model: whether it is ready, its signature, and its version. Unavailable ones are left out,
 * unless all of them are.
 * @throws JobError FILE_MISSING if a server does not have it, PERMISSION, MODEL_INVALID, NETWORK
 */
export async function findServedModel(
  protocol: Protocol,
  servers: ModelServers,
  { version: wanted, isPlanned }: WantedModel,
): Promise<ServedModel> {
  const [first, ...others] = await untilLoaded(isPlanned, servers, () => findAll(protocol, servers, wanted));
  const { server, served } = first as Found;
  const identity = identityOf(protocol, first as Found);
  for (const other of others.filter((found) => identityOf(protocol, found) !== identity)) {
    const { version = "unknown" } = served;
    const isOther = other.served.version !== served.version;
    const what = isOther ? `version ${other.served.version ?? "unknown"}` : "other inputs or outputs";
    throw new JobError(
      "MODEL_INVALID",
      `asking for ${serverText(other.server)}: it has ${what}, and ${server.url} has version ${version}`,
      { hint: "serve the same model at each URL, or name the version in model.server.version" },
    );
  }
  return { name: serversText(servers), sha256: sha256Of(identity), traits: unknownTraits, served, isPlanned };
}

interface Found {
  readonly server: ModelServer;
  readonly served: ServedFacts;
}

/** Of several servers, those that cannot be reached are left out. */
async function findAll(protocol: Protocol, servers: ModelServers, wanted: string | undefined): Promise<Found[]> {
  const [first, ...others] = servers;
  if (others.length === 0) {
    return [{ server: first, served: await factsOf(protocol, first, wanted) }];
  }
  return await untilReady(first, `asking for ${serversText(servers)}`, async () => {
    const found: Found[] = [];
    const away: string[] = [];
    for (const server of servers) {
      try {
        found.push({ server, served: await factsOf(protocol, withoutRetry(server), wanted) });
      } catch (error) {
        if (!(error instanceof JobError) || error.code !== "NETWORK") {
          throw error;
        }
        away.push(`${error.message}; it is left out for now`);
      }
    }
    if (found.length === 0) {
      throw new BrokenTransfer("no server answers");
    }
    for (const message of away) {
      first.retry.warn(message);
    }
    return found;
  });
}

async function factsOf(protocol: Protocol, server: ModelServer, wanted: string | undefined): Promise<ServedFacts> {
  const doing = `asking for ${serverText(server)}`;
  const known = await protocol.find(server, { doing, wanted });
  const served =
    known.version === undefined ? { ...known, version: await answeredVersion(protocol, server, known) } : known;
  const { version } = served;
  if (wanted !== undefined && version !== wanted) {
    const found = version === undefined ? "the server names no version" : `the server has version ${version}`;
    throw new JobError("FILE_MISSING", `${doing}: ${found}, and ${wanted} is asked for`, {
      hint: "serve that version, or leave out model.server.version",
    });
  }
  return served;
}

/** What a plan compares, as text. */
function identityOf({ name, layout }: Protocol, { server: { model }, served: { version, signature } }: Found): string {
  return JSON.stringify([name, model, version ?? null, signature, ...(layout === undefined ? [] : [layout])]);
}

const isMissing = (error: unknown): error is JobError => error instanceof JobError && error.code === "FILE_MISSING";
const againIfMissing = (error: unknown): RetryVerdict =>
  isMissing(error) ? { kind: "again", found: error.message } : { kind: "end", error };

/** Repeats `work` while servers lack a model that they had when the run was planned. */
async function untilLoaded<T>(isPlanned: boolean, servers: ModelServers, work: () => Promise<T>): Promise<T> {
  if (!isPlanned) {
    return await work();
  }
  const [{ retry }] = servers;
  const tools = { ...retry, maxSeconds: loadingSeconds(retry) };
  try {
    return await tryAgain(
      "waiting for a model that may be loading",
      tools,
      { judge: againIfMissing, code: "FILE_MISSING", hint: "" },
      work,
    );
  } catch (error) {
    throw error instanceof JobError && isMissing(error.cause) ? error.cause : error;
  }
}

export interface Measured {
  /** From small batches to large ones; none: the model refuses blank rows. */
  readonly batches: readonly { readonly rows: number; readonly ms: number; readonly rowsPerSecond: number }[];
  /** Why no larger batch was measured; undefined: it was the largest. */
  readonly stopped: string | undefined;
  /** Rows of the batches that `inFlight` was measured with. */
  readonly bestRows: number;
  /** The throughput with so many requests in flight. */
  readonly inFlight: readonly { readonly inFlight: number; readonly rowsPerSecond: number }[];
}

const batchSizes = [1, 16, 64, 256, 1024, 4096];
const rounds = 3;
/** No larger batch is tried after one that took longer. */
const slowMs = 3000;
/** Requests of a measurement, for each in flight. */
const requestsEach = 4;
const mostMs = 5000;
/** More requests in flight are tried while they raise the throughput by this share. */
const gain = 0.15;

/** Measures a server with blank rows, for some seconds: how long batches take, and what requests at once are worth. */
export async function measureServer(engine: Engine, { served }: ServedModel, nowMs: () => number): Promise<Measured> {
  const { inputs: wanted, outputs: given } = served.signature;
  const outputs = given.map(({ name }) => name);
  const send = async (rows: number): Promise<string | undefined> => {
    const inputs = blankRows(wanted, rows);
    if (inputs === undefined) {
      return "an input has a type that is not supported";
    }
    const response = await engine.run({ inputs, outputs, isBlank: true });
    return response.kind === "done" ? undefined : response.message;
  };
  const fixedRows = wanted[0]?.shape[0];
  const sizes =
    typeof fixedRows === "number" ? [fixedRows] : batchSizes.filter((rows) => rows <= (engine.mostRows ?? rows));

  const batches: Measured["batches"][number][] = [];
  let stopped: string | undefined;
  for (const rows of sizes) {
    let ms = Number.POSITIVE_INFINITY;
    for (let round = 0; round < rounds && stopped === undefined; round += 1) {
      const startMs = nowMs();
      stopped = await send(rows);
      ms = Math.min(ms, nowMs() - startMs);
    }
    if (stopped !== undefined) {
      break;
    }
    batches.push({ rows, ms, rowsPerSecond: (rows / Math.max(ms, 0.001)) * 1000 });
    stopped = ms > slowMs ? `${rows} rows take ${Math.round(ms)} ms` : undefined;
  }

  const [best] = batches.toSorted((one, other) => other.rowsPerSecond - one.rowsPerSecond);
  const bestRows = best?.rows ?? 0;
  const rates: Measured["inFlight"][number][] = [];
  const beganMs = nowMs();
  const most = bestRows === 0 ? 0 : engine.concurrency;
  for (let inFlight = 1; inFlight <= most && nowMs() - beganMs < mostMs; inFlight *= 2) {
    const startMs = nowMs();
    const sendSome = async (): Promise<void> => {
      for (let request = 0; request < requestsEach; request += 1) {
        await send(bestRows);
      }
    };
    await Promise.all(Array.from({ length: inFlight }, sendSome));
    const seconds = Math.max(nowMs() - startMs, 0.001) / 1000;
    const rowsPerSecond = (inFlight * requestsEach * bestRows) / seconds;
    const before = rates.at(-1)?.rowsPerSecond ?? 0;
    rates.push({ inFlight, rowsPerSecond });
    if (rowsPerSecond < before * (1 + gain)) {
      break;
    }
  }
  return { batches, stopped, bestRows, inFlight: rates };
}
