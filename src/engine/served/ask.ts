import { BrokenTransfer } from "../../net/request.js";
import { type HttpAnswer, type HttpEndpoint, readJson } from "../../net/http.js";
import { JobError } from "../../util/errors.js";
import { type RetryTools, tryAgain } from "../../util/retry.js";
import { type ModelServer, placeOf } from "./server.js";

export type Json = Readonly<Record<string, unknown>>;

/** An answer about a model, or the refusal of a server that does not have what was asked for. */
export type Asked = { readonly json: Json } | { readonly refused: HttpAnswer; readonly error: unknown };

/** Statuses of a server that does not have something, or does not know the request. */
const absent: ReadonlySet<number> = new Set([400, 404, 405, 501]);

/** Reads JSON. An answer that says that something is not there is returned, any other refusal thrown. */
export async function ask(
  server: ModelServer,
  doing: string,
  url: string,
  read: (url: string, place: HttpEndpoint) => Promise<unknown> = readJson,
): Promise<Asked> {
  const place = placeOf(server, doing);
  let refused: HttpAnswer | undefined;
  const keep = (answer: HttpAnswer): JobError => {
    refused = answer;
    return place.refused(answer);
  };
  try {
    return { json: Object(await read(url, { ...place, refused: keep })) as Json };
  } catch (error) {
    if (refused !== undefined && absent.has(refused.status)) {
      return { refused, error };
    }
    throw error;
  }
}

/** Repeats `work` while it throws BrokenTransfer: a server that is starting does not know its models yet. */
export async function untilReady<T>(server: ModelServer, doing: string, work: () => Promise<T>): Promise<T> {
  const { hint } = placeOf(server, doing);
  const rules = {
    judge: (error: unknown) =>
      error instanceof BrokenTransfer
        ? ({ kind: "again", found: error.message } as const)
        : ({ kind: "end", error } as const),
    code: "NETWORK",
    hint,
  } as const;
  return await tryAgain(doing, server.retry, rules, work);
}

/**
 * How long a server may lack a model that it had before: one that has just started may answer before it has loaded its
 * models. Less than what a request may be tried for, so that the end is an error about the model.
 */
export function loadingSeconds({ maxSeconds }: Pick<RetryTools, "maxSeconds">): number {
  return Math.min(60, maxSeconds / 2);
}

/**
 * Repeats `work` while servers lack a model that they had when the run was planned.
 * @throws the last error of `work`
 */
export async function untilLoaded<T>(
  isPlanned: boolean,
  servers: readonly ModelServer[],
  work: () => Promise<T>,
): Promise<T> {
  const [first] = servers;
  if (!isPlanned || first === undefined) {
    return await work();
  }
  const { retry } = first;
  const rules = {
    judge: (error: unknown) =>
      isMissing(error) ? ({ kind: "again", found: error.message } as const) : ({ kind: "end", error } as const),
    code: "FILE_MISSING",
    hint: "",
  } as const;
  const doing = "waiting for a model that may be loading";
  try {
    return await tryAgain(doing, { ...retry, maxSeconds: loadingSeconds(retry) }, rules, work);
  } catch (error) {
    throw error instanceof JobError && isMissing(error.cause) ? error.cause : error;
  }
}

function isMissing(error: unknown): error is JobError {
  return error instanceof JobError && error.code === "FILE_MISSING";
}

/** The texts in a list of an answer; none if it has no such list. */
export function listIn(json: Json, key: string): string[] {
  const list = json[key];
  return Array.isArray(list) ? list.filter((one) => typeof one === "string") : [];
}
