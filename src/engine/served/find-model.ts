import { createHash } from "node:crypto";
import { type ServedFacts, type ServedModel, unknownTraits } from "../../binding/served-model.js";
import { BrokenTransfer } from "../../net/request.js";
import { JobError } from "../../util/errors.js";
import { untilLoaded, untilReady } from "./ask.js";
import { blankRows } from "../../columnar/blank-rows.js";
import { openClient } from "./client.js";
import type { Protocol } from "./protocol.js";
import { type ModelServer, serversText, serverText, withoutRetry } from "./server.js";

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
  servers: readonly ModelServer[],
  { version: wanted, isPlanned }: WantedModel,
): Promise<ServedModel> {
  const { found, served } = await untilLoaded(isPlanned, servers, async () => {
    return await firstThatAnswers(protocol, servers, wanted);
  });
  const identity = identityOf(protocol, found, served);
  for (const server of servers.filter((one) => one !== found)) {
    const other = await ifThere(() => factsOf(protocol, withoutRetry(server), wanted), server.retry.warn);
    if (other !== undefined && identityOf(protocol, server, other) !== identity) {
      const what =
        other.version === served.version ? "other inputs or outputs" : `version ${other.version ?? "unknown"}`;
      throw new JobError(
        "MODEL_INVALID",
        `asking for ${serverText(server)}: it has ${what}, and ${found.url} has version ${served.version ?? "unknown"}`,
        { hint: "serve the same model at each URL, or name the version in model.server.version" },
      );
    }
  }
  const sha256 = createHash("sha256").update(identity).digest("hex");
  return { name: serversText(servers), sha256, traits: unknownTraits, served, isPlanned };
}

interface Found {
  readonly found: ModelServer;
  readonly served: ServedFacts;
}

/** Asks one server after the other. */
async function firstThatAnswers(
  protocol: Protocol,
  servers: readonly ModelServer[],
  wanted: string | undefined,
): Promise<Found> {
  const [first, ...others] = servers;
  if (first === undefined) {
    throw new RangeError("a model needs a server");
  }
  if (others.length === 0) {
    return { found: first, served: await factsOf(protocol, first, wanted) };
  }
  const doing = `asking for ${serversText(servers)}`;
  return await untilReady(first, doing, async () => {
    const away: string[] = [];
    for (const found of servers) {
      const served = await ifThere(
        () => factsOf(protocol, withoutRetry(found), wanted),
        (message) => away.push(message),
      );
      if (served !== undefined) {
        for (const message of away) {
          first.retry.warn(message);
        }
        return { found, served };
      }
    }
    throw new BrokenTransfer("no server answers");
  });
}

/** The result of `work`; undefined if the server cannot be reached, which `warn` is called with. */
async function ifThere<T>(work: () => Promise<T>, warn: (message: string) => void): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof JobError && error.code === "NETWORK") {
      warn(`${error.message}; it is left out for now`);
      return undefined;
    }
    throw error;
  }
}

/** What one server says of its model. */
async function factsOf(protocol: Protocol, server: ModelServer, wanted: string | undefined): Promise<ServedFacts> {
  const doing = `asking for ${serverText(server)}`;
  const known = await protocol.find(server, { doing, wanted });
  const served = known.version === undefined ? await withAnsweredVersion(protocol, server, known) : known;
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
function identityOf({ name, layout }: Protocol, { model }: ModelServer, { version, signature }: ServedFacts): string {
  return JSON.stringify([name, model, version ?? null, signature, ...(layout === undefined ? [] : [layout])]);
}

/** Some servers name a model's version only in their answers. A blank row is scored to learn it. */
async function withAnsweredVersion(protocol: Protocol, server: ModelServer, served: ServedFacts): Promise<ServedFacts> {
  const { signature } = served;
  const parts = {
    id: "0",
    inputs: blankRows(signature.inputs, 1) ?? [],
    outputs: signature.outputs.map(({ name }) => name),
  };
  const encoded = protocol.encode(parts, served);
  if ("unfit" in encoded || parts.inputs.length < signature.inputs.length) {
    return served;
  }
  const outcome = await openClient({ protocol, servers: [server], version: served, isPlanned: false }).infer({
    encoded,
    rows: 1,
    isBlank: true,
    wanted: signature.outputs,
  });
  return outcome.kind === "answered" ? { ...served, version: outcome.answer.version } : served;
}
