import { ask, type Json } from "../ask.js";
import type { ServerStatistics } from "../protocol.js";
import type { ModelServer } from "../server.js";
import { modelUrl } from "./find-model.js";

/**
 * Reads what Triton has counted for a model since it was loaded: its extension `statistics`. undefined: the server has
 * none, or refuses it.
 */
export async function readStatistics(
  server: ModelServer,
  version: string | undefined,
): Promise<ServerStatistics | undefined> {
  const asked = await ask(server, "asking for statistics", modelUrl(server, version, "/stats")).catch(() => undefined);
  const all = asked !== undefined && "json" in asked ? asked.json["model_stats"] : undefined;
  if (!Array.isArray(all) || all.length === 0) {
    return undefined;
  }
  const models = all.map((one) => Object(one) as Json);
  const sum = (read: (model: Json) => number): number => models.reduce((total, model) => total + read(model), 0);
  return {
    executions: sum((model) => numberIn(model, "execution_count")),
    requests: sum((model) => numberIn(statOf(model, "success"), "count")),
    queueSeconds: sum((model) => secondsIn(model, "queue")),
    computeSeconds: sum((model) =>
      ["compute_input", "compute_infer", "compute_output"].reduce((total, name) => total + secondsIn(model, name), 0),
    ),
  };
}

function statOf(model: Json, name: string): Json {
  return Object((Object(model["inference_stats"]) as Json)[name]) as Json;
}

function secondsIn(model: Json, name: string): number {
  return numberIn(statOf(model, name), "ns") / 1e9;
}

function numberIn(json: Json, key: string): number {
  const value = json[key];
  return typeof value === "number" ? value : 0;
}
