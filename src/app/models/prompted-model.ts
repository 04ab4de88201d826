import { unknownTraits } from "../../binding/served-model.js";
import type { Engine } from "../../engine/port.js";
import { openPromptEngine, promptSignature } from "../../engine/prompts/engine.js";
import type { PromptTask } from "../../engine/prompts/task.js";
import {
  ask,
  type ModelServer,
  placeAt,
  serversText,
  serverText,
  urlAt,
  withoutRetry,
} from "../../engine/served/server.js";
import type { FoundModel, ModelPin } from "../../models/port.js";
import type { DiagnosedServer } from "../../report/server-diagnosis.js";
import type { ModelSpec } from "../../spec/model-spec.js";
import type { ServerSpec } from "../../spec/server/server-spec.js";
import { parseTemplate, type PromptTemplate } from "../../text/prompt-template.js";
import { JobError } from "../../util/errors.js";
import { sha256Of } from "../../util/sha256.js";
import { type ServedOptions, type ServersFound, serversOf } from "./served-model.js";

/** The keys of `model` of a language model. */
export interface PromptedSpec extends Pick<ModelSpec, "prompt" | "sampling" | "response" | "budget"> {
  readonly server: ServerSpec;
}

/** Requests in flight with `concurrency: auto`: a server of language models answers many at once, each slowly. */
const mostInFlight = 256;
/** Seconds: long answers of busy servers take minutes, and a request that times out may be paid for twice. */
const defaultTimeout = 600;
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
    system: system === undefined ? undefined : templateOf(system),
    text: templateOf(user ?? input ?? ""),
    sampling,
    response,
    ...(mostTokens === undefined ? {} : { mostTokens }),
    ...(truncate === undefined ? {} : { truncate }),
    ...(answerColumns === undefined ? {} : { answerColumns }),
  };
}

/** The spec has checked it. */
function templateOf(text: string): PromptTemplate {
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
    { ...server, timeout: server.timeout ?? defaultTimeout },
    options,
    mostInFlight,
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
