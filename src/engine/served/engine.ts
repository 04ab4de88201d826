import type { ServedModel } from "../../binding/served-model.js";
import type { NamedTensor } from "../../columnar/tensor.js";
import type { Engine, EngineResponse } from "../port.js";
import { assertNever } from "../../util/errors.js";
import { type InferenceClient, openClient } from "./client.js";
import type { Outcome } from "./outcome.js";
import type { Protocol } from "./protocol.js";
import type { ModelServer } from "./server.js";

/** Has servers compute the predictions of their model. */
export function openServedEngine(
  protocol: Protocol,
  servers: readonly ModelServer[],
  { served, isPlanned }: ServedModel,
): Engine {
  const client = openClient({ protocol, servers, version: served, isPlanned });
  return {
    signature: served.signature,
    provider: protocol.name,
    concurrency: servers[0]?.most ?? 1,
    mostRows: served.mostRows,
    traffic: client.traffic,
    run: runner({ protocol, served, client }),
    [Symbol.asyncDispose]() {
      return Promise.resolve();
    },
  };
}

interface RunnerOptions {
  readonly protocol: Protocol;
  readonly served: ServedModel["served"];
  readonly client: InferenceClient;
}

function runner({ protocol, served, client }: RunnerOptions): Engine["run"] {
  const known = new Map(served.signature.outputs.map((output) => [output.name, output]));
  let requests = 0;
  return async ({ inputs, outputs, isBlank }) => {
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
    return responseOf(await client.infer({ encoded, rows, isBlank, wanted }), inputs);
  };
}

function responseOf(outcome: Outcome, inputs: readonly NamedTensor[]): EngineResponse {
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
}
