import { randomUUID } from "node:crypto";
import { resolve } from "node:path";
import { ping } from "../../report/calls.js";
import {
  type CarriedOut,
  type DatasetName,
  decidedEvent,
  endEvent,
  filesDataset,
  inputDatasets,
  type LineageRun,
  parentRun,
  startEvent,
  tableDataset,
} from "../../report/lineage.js";
import type { Outcome } from "../../report/report.js";
import type { OpenLineageSpec } from "../../spec/report-spec.js";
import { messageOf } from "../../util/errors.js";
import { readSecret } from "../reading/given-files.js";
import { type CallContext, plainUrlAt } from "./call-urls.js";

/** Sends the OpenLineage events of an attempt. */
export interface LineageEvents {
  /** Sends the last event. Never fails. */
  end(ended: { readonly outcome: Outcome; readonly endedMs: number }): Promise<void>;
}

/** The time limit for sending an event. An event that fails is not sent again. */
const eventMs = 2000;
/** The time limit after a signal. It is short, because the process may be killed soon. */
const stoppedEventMs = 1000;

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Sends the first event of an attempt while the attempt continues. Never fails, and delays the attempt by at most a few
 * seconds.
 */
export function beginLineage(context: CallContext, env: Environment = process.env): LineageEvents {
  const send = senderOf(context, env);
  if (send === undefined) {
    return { end: () => Promise.resolve() };
  }
  const { record } = context;
  const started = send((lineage) => startEvent(lineage, record));
  return {
    async end(ended) {
      await started; // the server receives the events in order
      await send((lineage) => endEvent(lineage, { record, ...ended }));
    },
  };
}

/** Sends events about a decision on a held run that was carried out. Never fails. */
export async function sendDecision(
  context: CallContext,
  decision: Omit<CarriedOut, "record">,
  env: Environment = process.env,
): Promise<void> {
  const send = senderOf(context, env);
  const { record } = context;
  await send?.((lineage) => startEvent(lineage, record));
  await send?.((lineage) => decidedEvent(lineage, { record, ...decision }, Date.now()));
}

type Send = (eventOf: (lineage: LineageRun) => unknown) => Promise<void>;

/**
 * Returns a function that sends the events of one run and logs only the first failure; undefined if the spec names no
 * server.
 */
function senderOf(context: CallContext, env: Environment): Send | undefined {
  const { loaded, log, signal } = context;
  const { openlineage } = loaded.spec.report;
  if (openlineage === undefined || openlineage.url === "") {
    return undefined;
  }
  const url = plainUrlAt(context, ["openlineage", "url"], openlineage.url);
  const token = tokenOf(context, openlineage);
  const described = describe(context, openlineage.namespace, env);
  let hasWarned = false;
  const warnOnce = (found: string | undefined): void => {
    if (found !== undefined && !hasWarned) {
      hasWarned = true;
      log.warn(found);
    }
  };
  return async (eventOf) => {
    try {
      const server = await url;
      const body = JSON.stringify(eventOf(await described));
      const timeoutMs = signal.aborted ? stoppedEventMs : eventMs;
      const key = "report.openlineage.url";
      const secret = await token;
      if (server !== undefined && secret !== undefined) {
        const request = { key, url: eventsUrl(server), body, timeoutMs, tries: 1 };
        warnOnce(await ping(secret === "" ? request : { ...request, token: secret }));
      }
    } catch (error) {
      warnOnce(`sending a lineage event: ${messageOf(error)}`);
    }
  };
}

/** Reads the token of the server; "": there is none; undefined: it cannot be read, which is logged. */
export async function tokenOf(
  { loaded: { where }, folder, log }: Pick<CallContext, "loaded" | "folder" | "log">,
  { token = "" }: OpenLineageSpec,
): Promise<string | undefined> {
  try {
    return await readSecret(token, { folder, key: where(["report", "openlineage", "token"]) });
  } catch (error) {
    log.warn(`sending lineage events: ${messageOf(error)}`);
    return undefined;
  }
}

/** Returns the URL for events, as OpenLineage's clients do: `api/v1/lineage` below the server's URL. */
function eventsUrl(given: string): string {
  const url = new URL(given);
  const path = url.pathname.replace(/\/+$/, "");
  url.pathname = path.endsWith("/api/v1/lineage") ? path : `${path}/api/v1/lineage`;
  return url.href;
}

async function describe(context: CallContext, namespace: string, env: Environment): Promise<LineageRun> {
  const { spec } = context.loaded;
  return {
    id: randomUUID(),
    namespace,
    parent: parentRun(env),
    inputs: inputDatasets(spec, (path) => resolve(context.folder, path)),
    output: await outputDataset(context, env),
  };
}

async function outputDataset(
  { loaded: { spec, where }, folder }: CallContext,
  env: Environment,
): Promise<DatasetName | undefined> {
  const { parquet, postgres } = spec.output;
  if (parquet !== undefined) {
    return filesDataset(parquet.path, (path) => resolve(folder, path));
  }
  if (postgres === undefined) {
    return undefined;
  }
  const key = where(["output", "postgres", "url"]);
  // The target reports a secret that cannot be read.
  const url = await readSecret(postgres.url, { folder, key }).catch(() => undefined);
  return url === undefined ? undefined : tableDataset(url, postgres.table, env);
}
