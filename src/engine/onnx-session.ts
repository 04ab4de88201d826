import { readFile } from "node:fs/promises";
import { InferenceSession, Tensor as OrtTensor } from "onnxruntime-node";
import { numberTexts, spreadTexts } from "../batch/numbered-texts.js";
import {
  decodeTexts,
  encodeTexts,
  isTensorType,
  type ModelSignature,
  type NamedTensor,
  type Tensor,
  type TensorSignature,
} from "../batch/tensor.js";
import type { Values } from "../batch/values.js";
import { profilePrefix, type WorkerSettings } from "./onnx-protocol.js";
import type { EngineRequest, TextTensors } from "./port.js";
import { entriesOf, placesOf, shapeOf } from "./text-names.js";

/** A model in ONNX Runtime. */
export interface OnnxSession {
  readonly signature: ModelSignature;
  /** Blocks the thread. */
  run(request: EngineRequest): Promise<Tensor[]>;
  /** Writes its profile, too. */
  close(): Promise<void>;
}

/** ONNX Runtime writes to stderr itself, a line a batch for some exporters' models; errors are thrown as well. */
const fatalOnly = 4;

export const onnxOptions = {
  intraOpNumThreads: 1,
  interOpNumThreads: 1,
  executionMode: "sequential",
  logSeverityLevel: fatalOnly,
} as const;

/** @throws what ONNX Runtime says of the model */
export async function openSession(settings: WorkerSettings): Promise<OnnxSession> {
  const { session, texts } = await load(settings);
  return {
    signature: signatureOf(session, texts),
    async run({ inputs, outputs }) {
      const feeds = Object.assign({}, ...inputs.map((input) => feedsOf(input, texts))) as Record<string, OrtTensor>;
      const fetches = outputs.flatMap((name) => (texts.outputs.includes(name) ? partsOf(name) : [name]));
      const results = await session.run(feeds, fetches);
      return outputs.map((name) => (texts.outputs.includes(name) ? textsOf : tensorOf)(results, name));
    },
    async close() {
      if (settings.profile !== undefined) {
        session.endProfiling(); // writes the file
      }
      await session.release();
    },
  };
}

const noTexts: TextTensors = { inputs: [], outputs: [] };

/** `texts`: those that are passed as numbers. */
async function load(settings: WorkerSettings): Promise<{ session: InferenceSession; texts: TextTensors }> {
  const { modelPath, texts } = settings;
  const options = optionsOf(settings);
  if (texts.inputs.length + texts.outputs.length > 0) {
    const { passNumbers } = await import("./onnx-texts.js");
    const model = passNumbers(await readFile(modelPath), texts);
    try {
      return { session: await InferenceSession.create(model, options), texts };
    } catch {
      // What is wrong with the model itself is told of its file.
    }
  }
  return { session: await InferenceSession.create(modelPath, options), texts: noTexts };
}

function optionsOf(settings: WorkerSettings): InferenceSession.SessionOptions {
  const { profile } = settings;
  const profiling = profile && {
    enableProfiling: true,
    profileFilePrefix: profilePrefix(profile, performance.timeOrigin + performance.now()),
  };
  return {
    ...profiling,
    executionProviders: settings.providers.map((name) =>
      name === "cpu" ? { name } : { name, deviceId: settings.deviceId },
    ),
    ...onnxOptions,
    intraOpNumThreads: settings.intraOpThreads,
    graphOptimizationLevel: "all",
    // Spinning threads take the cores that decode the next batch.
    extra: { session: { intra_op: { allow_spinning: "0" } } },
  };
}

function signatureOf({ inputMetadata, outputMetadata }: InferenceSession, texts: TextTensors): ModelSignature {
  const textOfPlaces = new Map(texts.inputs.map((name) => [placesOf(name), name]));
  const added = new Set([...texts.inputs.map(entriesOf), ...texts.outputs.flatMap(partsOf)]);
  const isOwn = ({ name }: TensorSignature): boolean => !added.has(name);
  const asText = (input: TensorSignature): TensorSignature => {
    const name = textOfPlaces.get(input.name);
    return name === undefined ? input : { name, dtype: "string", shape: input.shape };
  };
  return {
    inputs: describe(inputMetadata).filter(isOwn).map(asText),
    outputs: describe(outputMetadata).filter(isOwn),
  };
}

function describe(metadata: InferenceSession["inputMetadata"]): TensorSignature[] {
  return metadata.map((value) =>
    value.isTensor
      ? {
          name: value.name,
          dtype: value.type,
          shape: value.shape.map((dim) => (typeof dim === "number" && dim > 0 ? dim : null)),
        }
      : { name: value.name, dtype: undefined, shape: [] },
  );
}

function feedsOf(input: NamedTensor, texts: TextTensors): Record<string, OrtTensor> {
  const { name, dtype, dims } = input;
  if (dtype !== "string") {
    // float16 is made of its bits.
    return { [name]: new OrtTensor(dtype, input.data as Float32Array, dims) };
  }
  if (!texts.inputs.includes(name)) {
    return { [name]: new OrtTensor(dtype, decodeTexts(input.data), dims) };
  }
  const { entries, places } = numberTexts(input.data);
  return {
    [entriesOf(name)]: new OrtTensor(dtype, decodeTexts(entries), [entries.offsets.length - 1]),
    [placesOf(name)]: new OrtTensor("int64", places, dims),
  };
}

/** What is asked for in place of an output of texts. */
function partsOf(name: string): string[] {
  return [entriesOf(name), placesOf(name), shapeOf(name)];
}

type Results = Awaited<ReturnType<InferenceSession["run"]>>;

function textsOf(results: Results, name: string): Tensor {
  const [entries, places, shape] = partsOf(name).map((part) => results[part]?.data);
  if (!Array.isArray(entries) || !(places instanceof BigInt64Array) || !(shape instanceof BigInt64Array)) {
    throw new Error(`output ${name} came without its texts`);
  }
  const data = spreadTexts({ entries: encodeTexts(entries), places });
  return { dtype: "string", dims: Array.from(shape, Number), data };
}

function tensorOf(results: Results, name: string): Tensor {
  const { type: dtype, dims, data } = results[name] ?? { type: "nothing", dims: [], data: [] };
  if (!isTensorType(dtype)) {
    throw new Error(`output ${name} came as ${dtype}`);
  }
  return dtype === "string"
    ? { dtype, dims: [...dims], data: encodeTexts(data as string[]) }
    : { dtype, dims: [...dims], data: data as Values };
}
