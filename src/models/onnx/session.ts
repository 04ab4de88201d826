import { readFile } from "node:fs/promises";
import type * as OnnxRuntime from "onnxruntime-node";
import type { InferenceSession, Tensor as OrtTensor } from "onnxruntime-node";
import { numberTexts, spreadTexts } from "../../columns/numbered-texts.js";
import {
  decodeTexts,
  elementCount,
  encodeTexts,
  isTensorType,
  type ModelSignature,
  type NamedTensor,
  type Tensor,
  type TensorSignature,
  type TextTensors,
} from "../../columns/tensor.js";
import type { Values } from "../../columns/values.js";
import {
  inputIndices,
  inputValues,
  noTexts,
  outputIndices,
  outputShape,
  outputValues,
  replaceTexts,
} from "../file/texts.js";
import type { Provider } from "../../job/jobfile/engine-spec.js";
import { messageOf } from "../../base/errors.js";
import type { EngineRequest } from "../engine.js";
import { profilePrefix, type WorkerSettings } from "./protocol.js";

/** ONNX Runtime, given by the thread: bundles that contain this module must not load its native library. */
export type Runtime = Pick<typeof OnnxRuntime, "InferenceSession" | "Tensor">;

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

const onnxOptions = {
  intraOpNumThreads: 1,
  interOpNumThreads: 1,
  executionMode: "sequential",
  logSeverityLevel: fatalOnly,
} as const;

type SessionSettings = Omit<WorkerSettings, "modelPath" | "trees" | "tokenizers"> & {
  /** Refuses a model of which the CPU would compute a part because another provider cannot. Default: false. */
  readonly wholeModel?: boolean;
};

/** `model`: a file's path, or its bytes. @throws what ONNX Runtime says of the model */
export async function openSession(
  runtime: Runtime,
  settings: SessionSettings,
  model: string | Uint8Array,
): Promise<OnnxSession> {
  const numbered = await openNumbered(runtime, settings, model);
  const first = numbered ?? (await openAsIs(runtime, settings, model));
  const open: [Loaded, ...Loaded[]] = [first];
  const repeats = countRepeats();
  let current = Promise.resolve(first);
  let mayChange = numbered !== undefined;
  /** Opens another session. The one before stays open, since calls to it may be under way. */
  const change = async (bytes: Uint8Array): Promise<Loaded> => {
    try {
      const next = await openAsIs(runtime, settings, bytes); // not of the file, which may be another by now
      open.push(next);
      return next;
    } catch {
      return first; // there may be no memory for both
    }
  };
  return {
    signature: signatureOf(first),
    async run(request) {
      const outputs = await runOn(await current, request, repeats.add);
      if (mayChange && numbered !== undefined && repeats.areFew()) {
        mayChange = false;
        current = change(numbered.model);
      }
      return outputs;
    },
    async close() {
      await current;
      for (const { session } of open) {
        if (settings.profile !== undefined) {
          session.endProfiling(); // writes the file
        }
        await session.release();
      }
    },
  };
}

interface Loaded {
  readonly runtime: Runtime;
  readonly session: InferenceSession;
  readonly texts: TextTensors;
}

async function openAsIs(runtime: Runtime, settings: SessionSettings, model: string | Uint8Array): Promise<Loaded> {
  const { InferenceSession: Session } = runtime;
  const options = optionsOf(settings);
  const session = await (typeof model === "string" ? Session.create(model, options) : Session.create(model, options));
  return { runtime, session, texts: noTexts };
}

/** undefined: the model has no texts, or ONNX Runtime refuses the changed model. */
async function openNumbered(
  runtime: Runtime,
  settings: SessionSettings,
  from: string | Uint8Array,
): Promise<(Loaded & { readonly model: Uint8Array }) | undefined> {
  const { texts } = settings;
  if (texts.inputs.length + texts.outputs.length === 0) {
    return undefined;
  }
  try {
    const model = typeof from === "string" ? await readFile(from) : from;
    const session = await runtime.InferenceSession.create(replaceTexts(model, texts), optionsOf(settings));
    return { runtime, session, texts, model };
  } catch {
    return undefined; // a fault of the model itself is reported for its file
  }
}

/** The number of texts after which the share of different texts is known. */
const countedTexts = 16_384;

/** If more than half of the texts differ, passing them as numbers takes longer than passing the texts. */
function countRepeats(): { readonly add: (texts: number, entries: number) => void; readonly areFew: () => boolean } {
  let [all, different] = [0, 0];
  let few = false;
  return {
    add: (texts, entries) => {
      all += texts;
      different += entries;
      if (all >= countedTexts) {
        few = different * 2 > all;
        [all, different] = [0, 0];
      }
    },
    areFew: () => few,
  };
}

type Count = ReturnType<typeof countRepeats>["add"];

async function runOn(loaded: Loaded, request: EngineRequest, count: Count): Promise<Tensor[]> {
  const { session, texts } = loaded;
  const isNumbered = (name: string): boolean => texts.outputs.includes(name);
  const feeds = Object.create(null) as Record<string, OrtTensor>; // an input may be called `__proto__`
  for (const input of request.inputs) {
    Object.assign(feeds, feedsOf(input, loaded, count));
  }
  const fetches = request.outputs.flatMap((name) => (isNumbered(name) ? partsOf(name) : [name]));
  try {
    const results = await session.run(feeds, fetches);
    return request.outputs.map((name) => (isNumbered(name) ? textsOf(results, name, count) : tensorOf(results, name)));
  } catch (cause) {
    const said = texts.inputs.reduce((text, name) => text.replaceAll(inputIndices(name), name), messageOf(cause));
    throw new Error(said, { cause });
  }
}

function optionsOf(settings: SessionSettings): InferenceSession.SessionOptions {
  const { profile } = settings;
  const profiling = profile && {
    enableProfiling: true,
    profileFilePrefix: profilePrefix(profile, performance.timeOrigin + performance.now()),
  };
  return {
    ...profiling,
    executionProviders: settings.providers.map((name) =>
      takesDeviceId.has(name) ? { name, deviceId: settings.deviceId } : { name },
    ),
    ...onnxOptions,
    intraOpNumThreads: settings.intraOpThreads,
    graphOptimizationLevel: "all",
    // Spinning threads take the cores that decode the next batch.
    extra: {
      session: {
        intra_op: { allow_spinning: "0" },
        ...(settings.wholeModel === true ? { disable_cpu_ep_fallback: "1" } : {}),
      },
    },
  };
}

const takesDeviceId: ReadonlySet<Provider> = new Set(["cuda", "tensorrt", "dml"]);

function signatureOf({ session, texts }: Loaded): ModelSignature {
  const textOfIndices = new Map(texts.inputs.map((name) => [inputIndices(name), name]));
  const added = new Set([...texts.inputs.map(inputValues), ...texts.outputs.flatMap(partsOf)]);
  const isOwn = ({ name }: TensorSignature): boolean => !added.has(name);
  const asText = (input: TensorSignature): TensorSignature => {
    const name = textOfIndices.get(input.name);
    return name === undefined ? input : { name, dtype: "string", shape: input.shape };
  };
  return {
    inputs: describe(session.inputMetadata).filter(isOwn).map(asText),
    outputs: describe(session.outputMetadata).filter(isOwn),
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

function feedsOf(input: NamedTensor, { runtime, texts }: Loaded, count: Count): Record<string, OrtTensor> {
  const { name, dtype, dims } = input;
  if (dtype !== "string") {
    // float16 is made of its bits.
    return { [name]: new runtime.Tensor(dtype, input.data as Float32Array, dims) };
  }
  if (!texts.inputs.includes(name)) {
    return { [name]: new runtime.Tensor(dtype, decodeTexts(input.data), dims) };
  }
  const { entries, indices } = numberTexts(input.data);
  const different = entries.offsets.length - 1;
  count(indices.length, different);
  return {
    [inputValues(name)]: new runtime.Tensor(dtype, decodeTexts(entries), [different]),
    [inputIndices(name)]: new runtime.Tensor("int64", indices, dims),
  };
}

function partsOf(name: string): string[] {
  return [outputValues(name), outputIndices(name), outputShape(name)];
}

type Results = Awaited<ReturnType<InferenceSession["run"]>>;

function textsOf(results: Results, name: string, count: Count): Tensor {
  const [entries, indices, shape] = partsOf(name).map((part) => results[part]?.data);
  if (!Array.isArray(entries) || !(indices instanceof BigInt64Array) || !(shape instanceof BigInt64Array)) {
    throw new Error(`output ${name} came without its texts`);
  }
  count(indices.length, entries.length);
  const data = spreadTexts({ entries: encodeTexts(entries), indices });
  return { dtype: "string", dims: dimsOf(name, Array.from(shape, Number), indices.length), data };
}

/** ONNX Runtime trusts a shape without variables that a model has, and exporters get the batch's dimension wrong. */
function dimsOf(name: string, said: readonly number[], length: number): number[] {
  const [first, ...others] = said;
  const width = elementCount(others);
  const dims = first === undefined ? [] : [width === 0 ? first : length / width, ...others];
  if (elementCount(dims) !== length || !dims.every(Number.isSafeInteger)) {
    throw new Error(`output ${name} came with ${length} texts in the shape [${said.join(",")}]`);
  }
  return dims;
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

/** A model of one node, y = Identity(x), for float32 [1]. */
const smallestModel = "CAgSADo3ChAKAXgSAXkiCElkZW50aXR5EgFnWg8KAXgSCgoICAESBAoCCAFiDwoBeRIKCggIARIECgIIAUIECgAQEQ==";

/** Opens and releases the smallest model on the CPU: ONNX Runtime then makes what all sessions share. */
export async function openSmallestModel(runtime: Pick<Runtime, "InferenceSession">): Promise<void> {
  const session = await runtime.InferenceSession.create(smallestBytes(), onnxOptions);
  await session.release();
}

/** Opens, runs and releases the smallest model on one provider. Rejects with what ONNX Runtime says. */
export async function runSmallestModel({ InferenceSession, Tensor }: Runtime, provider: Provider): Promise<void> {
  const session = await InferenceSession.create(smallestBytes(), { ...onnxOptions, executionProviders: [provider] });
  await session.run({ x: new Tensor("float32", new Float32Array(1), [1]) });
  await session.release();
}

function smallestBytes(): Uint8Array {
  return Uint8Array.from(atob(smallestModel), (letter) => letter.charCodeAt(0));
}
