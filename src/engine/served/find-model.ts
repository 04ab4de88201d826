import { sha256Of } from "../../util/sha256.js";
import { type ServedFacts, type ServedModel, unknownTraits } from "../../binding/served-model.js";
import { BrokenTransfer } from "../../net/http.js";
import { JobError } from "../../util/errors.js";
import { tryAgain, type Verdict } from "../../util/retry.js";
import { answeredVersion } from "./engine.js";
import type { Protocol } from "./protocol.js";
import {
  loadingSeconds,
  type ModelServer,
  type ModelServers,
  serversText,
  serverText,
  untilReady,
  withoutRetry,
} from "./server.js";

/** The model that servers are asked for. */
export interface WantedModel {
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
  const identity = identityOf(protocol, first);
  for (const other of others.filter((one) => identityOf(protocol, one) !== identity)) {
    const { version = "unknown" } = first.served;
    const isOther = other.served.version !== first.served.version;
    const what = isOther ? `version ${other.served.version ?? "unknown"}` : "other inputs or outputs";
    throw new JobError(
      "MODEL_INVALID",
      `asking for ${serverText(other.server)}: it has ${what}, and ${first.server.url} has version ${version}`,
      { hint: "serve the same model at each URL, or name the version in model.server.version" },
    );
  }
  const sha256 = sha256Of(identity);
  return { name: serversText(servers), sha256, traits: unknownTraits, served: first.served, isPlanned };
}

interface Found {
  readonly server: ModelServer;
  readonly served: ServedFacts;
}

/** Asks each server, until one of them answers. Of several servers, those that cannot be reached are left out. */
async function findAll(
  protocol: Protocol,
  servers: ModelServers,
  wanted: string | undefined,
): Promise<readonly [Found, ...Found[]]> {
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

    const [answering, ...more] = found;
    if (answering === undefined) {
      throw new BrokenTransfer("no server answers");
    }
    for (const message of away) {
      first.retry.warn(message);
    }
    return [answering, ...more];
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

/**
 * Repeats `work` while servers lack a model that they had when the run was planned.
 * @throws the last error of `work`
 */
async function untilLoaded<T>(isPlanned: boolean, servers: ModelServers, work: () => Promise<T>): Promise<T> {
  const [first] = servers;
  if (!isPlanned) {
    return await work();
  }
  const retry = { ...first.retry, maxSeconds: loadingSeconds(first.retry) };
  const doing = "waiting for a model that may be loading";
  try {
    return await tryAgain(doing, retry, { judge: judgeMissing, code: "FILE_MISSING", hint: "" }, work);
  } catch (error) {
    throw error instanceof JobError && isMissing(error.cause) ? error.cause : error;
  }
}

function judgeMissing(error: unknown): Verdict {
  return isMissing(error) ? { kind: "again", found: error.message } : { kind: "end", error };
}

function isMissing(error: unknown): error is JobError {
  return error instanceof JobError && error.code === "FILE_MISSING";
}
