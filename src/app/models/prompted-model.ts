import { createHash } from "node:crypto";
import { unknownTraits } from "../../binding/served-model.js";
import { ask } from "../../engine/served/ask.js";
import { type ModelServer, serversText, serverText } from "../../engine/served/server.js";
import { openPromptEngine } from "../../engine/prompts/engine.js";
import { promptSignature } from "../../engine/prompts/signature.js";
import type { PromptTask } from "../../engine/prompts/request.js";
import type { Engine } from "../../engine/port.js";
import type { FoundModel, ModelPin } from "../../models/port.js";
import type { ModelSpec } from "../../spec/model-spec.js";
import { parseTemplate, type PromptTemplate } from "../../text/prompt-template.js";
import { JobError } from "../../util/errors.js";
import { type ServedOptions, serversOf } from "./served-model.js";
import type { ServerSpec } from "../../spec/server/server-spec.js";

/** The keys of `model` of a language model. */
export interface PromptedSpec extends Pick<ModelSpec, "prompt" | "sampling" | "response" | "budget"> {
  readonly server: ServerSpec;
}

/** Requests in flight with `concurrency: auto`: a server of language models answers many at once, each slowly. */
const mostInFlight = 256;
const defaultTries = 2;
const defaultFlushSeconds = 2;

/** Whether a server has a language model. */
export function isPrompted({ server }: Pick<ModelSpec, "server">): boolean {
  return server?.protocol === "openai";
}

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
  for (const server of servers) {
    await requireServer(server);
  }
  const task = taskOf(spec);
  const version = planned?.version ?? spec.server.version;
  const signature = promptSignature(task);
  const [{ model }] = servers;
  const identity = JSON.stringify(["openai", model, version ?? null, task]);
  const sha256 = createHash("sha256").update(identity).digest("hex");
  const served = { signature, version, isVersionInPath: false, isBinary: false, mostRows: 1 };
  return { model: { name: serversText(servers), sha256, traits: unknownTraits, served }, version };
}

/** Opens the engine that asks the language model of a spec. */
export async function openPrompted(
  spec: PromptedSpec,
  options: ServedOptions,
  version: string | undefined,
): Promise<Engine> {
  const servers = await promptServers(spec, options);
  const { tries = defaultTries, flush_seconds: flushSeconds = defaultFlushSeconds } = spec.server;
  const { max_tokens: tokens, max_cost: cost, price } = spec.budget ?? {};
  const engine = openPromptEngine({
    task: taskOf(spec),
    servers,
    version,
    tries,
    flushMs: flushSeconds * 1000,
    limits: { tokens, cost },
    price,
  });
  return {
    ...engine,
    [Symbol.asyncDispose]() {
      servers[0].connections[Symbol.dispose]();
      return Promise.resolve();
    },
  };
}

function taskOf({ prompt = {}, sampling = {}, response }: PromptedSpec): PromptTask {
  const { system, user, input } = prompt;
  return {
    kind: input === undefined ? "chat" : "embedding",
    system: system === undefined ? undefined : templateOf(system),
    text: templateOf(user ?? input ?? ""),
    sampling,
    response,
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
  { server }: PromptedSpec,
  options: ServedOptions,
): Promise<readonly [ModelServer, ...ModelServer[]]> {
  const [first, ...others] = await serversOf({ timeout: 600, ...server }, options, mostInFlight);
  return [atBase(first), ...others.map((one) => atBase(one))];
}

function atBase(server: ModelServer): ModelServer {
  return new URL(server.url).pathname === "/" ? { ...server, url: `${server.url}/v1` } : server;
}

/** Asks for the list of models, which many servers have. One that refuses it is asked for rows all the same. */
async function requireServer(server: ModelServer): Promise<void> {
  const doing = `asking for ${serverText(server)}`;
  try {
    await ask(server, doing, `${server.url}/models`);
  } catch (error) {
    if (!(error instanceof JobError) || error.code === "PERMISSION" || error.code === "NETWORK") {
      throw error;
    }
  }
}
