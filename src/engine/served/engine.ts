import type { ServedModel } from "../../binding/served-model.js";
import type { NamedTensor } from "../../columnar/tensor.js";
import type { Engine, EngineRequest, EngineResponse } from "../port.js";
import { assertNever } from "../../util/errors.js";
import { openClient, type Outcome } from "./client.js";
import { binaryRequest, type EncodedRequest, jsonRequest } from "./inference.js";
import type { ModelServer } from "./server.js";

/** Has a server compute the predictions of its model. */
export function openServedEngine(server: ModelServer, { served }: ServedModel): Engine {
  const client = openClient(server, served);
  const types = new Map(served.signature.outputs.map(({ name, dtype }) => [name, dtype]));
  let requests = 0;
  return {
    signature: served.signature,
    provider: "v2",
    concurrency: server.most,
    mostRows: served.mostRows,
    traffic: client.traffic,
    async run({ inputs, outputs, isBlank }) {
      const rows = inputs[0]?.dims[0] ?? 0;
      if (rows > (served.mostRows ?? rows)) {
        const message = `the server takes at most ${served.mostRows} rows in a request`;
        return { kind: "exhausted", message, inputs };
      }
      requests += 1;
      const encoded = encode({ inputs, outputs }, { id: String(requests), isBinary: served.isBinary });
      if ("unfit" in encoded) {
        const message = `input \`${encoded.unfit}\` has NaN or an infinity, which JSON lacks, and the server takes no binary tensors`;
        return { kind: "failed", message, inputs };
      }
      const wanted = outputs.map((name) => ({ name, dtype: types.get(name) }));
      return responseOf(await client.infer({ encoded, rows, isBlank, wanted }), inputs);
    },
    [Symbol.asyncDispose]() {
      return Promise.resolve();
    },
  };
}

function encode(
  { inputs, outputs }: EngineRequest,
  { id, isBinary }: { readonly id: string; readonly isBinary: boolean },
): EncodedRequest | { readonly unfit: string } {
  return isBinary ? binaryRequest({ id, inputs, outputs }) : jsonRequest({ id, inputs, outputs });
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
