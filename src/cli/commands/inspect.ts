import { type FileHandle, open, stat } from "node:fs/promises";
import { extname, resolve } from "node:path";
import { beginsArrowStream, inspectArrow } from "../../formats/arrow/inspect.js";
import { inspectParquet } from "../../formats/parquet/inspect.js";
import { openModelFile, type OnnxFile } from "../../models/model-file.js";
import type { ResolvedModel } from "../../models/port.js";
import { signatureDifferences } from "../../binding/declared-signature.js";
import { startScoringWorker } from "../../app/threads/worker-threads.js";
import { openOnnxEngine } from "../../engine/onnx/engine.js";
import { JobError, messageOf } from "../../util/errors.js";
import { isModelUri, modelUriProblem } from "../../spec/model-uri.js";
import { isObjectUri, objectUriProblem } from "../../spec/object-uri.js";
import { attemptServices } from "../../app/attempt-services.js";
import { resolveModel } from "../../app/open-model.js";
import { fileError } from "../../app/reading/given-files.js";
import { modelJson, modelText, shardJson, shardText } from "../texts/inspect-text.js";
import type { SafeIo } from "../io.js";
import { createWarningLog } from "../logger.js";

/** Shows a model or a shard. Nothing is written, except that a model at a URI is fetched into the cache. */
export async function inspectCommand(
  file: string,
  { json = false }: { readonly json?: boolean },
  io: SafeIo,
): Promise<void> {
  const problem = modelUriProblem(file) ?? (isObjectUri(file) ? objectUriProblem(file) : undefined);
  if (problem !== undefined || isModelUri(file)) {
    await inspectRemote(file, { problem, json }, io);
    return;
  }
  const ends = await readEnds(file);
  if (parquetMagic.test(ends.head) || parquetMagic.test(ends.tail)) {
    const shard = { ...(await inspectParquet(resolve(file))), path: file };
    io.stdout.write(json ? `${shardJson(shard)}\n` : shardText(shard));
    return;
  }
  if (arrowMagic.test(ends.head) || arrowName.test(file) || (await beginsArrowStream(resolve(file)))) {
    const shard = { ...(await inspectArrow(resolve(file))), path: file };
    io.stdout.write(json ? `${shardJson(shard)}\n` : shardText(shard));
    return;
  }
  const model = await openModelFile(resolve(file), (_path, cause) => neither(file, ends.head, cause));
  await showModel({ model, name: file, json }, io);
}

/** Shows a model of a registry, a store or a URL, which is fetched into the cache. */
async function inspectRemote(
  uri: string,
  { problem, json }: { readonly problem: string | undefined; readonly json: boolean },
  io: SafeIo,
): Promise<void> {
  if (problem !== undefined || shardName.test(uri)) {
    throw new JobError("USAGE", `inspecting ${uri}: ${problem ?? "shards are inspected on this machine only"}`, {
      hint: "a URI names a model, as model.path does; fetch a shard first, such as with `aws s3 cp` or curl",
    });
  }
  const { signal } = new AbortController();
  const services = attemptServices({ retry: { max_seconds: retrySeconds } }, createWarningLog(io.stderr), signal);
  const resolved = await resolveModel({ path: uri }, { folder: ".", ...services });
  await showModel({ model: await openModelFile(resolved.file.path), name: uri, json, resolved }, io);
}

/** `inspect` retries only for a short time, because a person waits for it. */
const retrySeconds = 30;

interface ShownModel {
  readonly model: OnnxFile;
  readonly name: string;
  readonly json: boolean;
  /** The registry's facts about the model. */
  readonly resolved?: ResolvedModel;
}

async function showModel({ model, name, json, resolved }: ShownModel, io: SafeIo): Promise<void> {
  const layout = { sessions: 1, intraOpThreads: 1 };
  await using engine = await openOnnxEngine({
    model,
    providers: ["cpu"],
    startWorker: startScoringWorker,
    ...layout,
  });
  const { signature } = engine;
  const { version, signature: declared } = resolved ?? {};
  const differences = declared === undefined ? [] : signatureDifferences(declared, signature);
  const seen = { ...model, path: name, signature, version, differences };
  io.stdout.write(json ? `${modelJson(seen)}\n` : modelText(seen));
}

/** Both ends of a Parquet file; PARE if its footer is encrypted. One end is enough to tell what the file should be. */
const parquetMagic = /^PAR[1E]/;
/** The start of an Arrow file, or of a stream since Arrow 0.15. Older streams begin with their schema. */
const arrowMagic = /^(ARROW1|FEA1|\xff{4})/;
const shardName = /\.(parquet|pq|arrow|arrows|feather|ipc)$/i;
const arrowName = /\.(arrow|arrows|feather|ipc)$/i;
const tailBytes = 4;
const headBytes = 32;

interface Ends {
  /** The first bytes, in latin1. */
  readonly head: string;
  readonly tail: string;
}

/** Reads both ends of a file. @throws JobError FILE_MISSING, PERMISSION, DISK */
async function readEnds(path: string): Promise<Ends> {
  try {
    const found = await stat(path);
    if (!found.isFile()) {
      throw new JobError(
        "FILE_MISSING",
        `inspecting ${path}: it is ${found.isDirectory() ? "a folder" : "not a plain file"}`,
        { hint: "name one .onnx, .parquet or .arrow file" },
      );
    }
    await using file = await open(path);
    return {
      head: await readAt(file, 0, Math.min(headBytes, found.size)),
      tail: await readAt(file, Math.max(0, found.size - tailBytes), tailBytes),
    };
  } catch (error) {
    const hint =
      "name one .onnx, .parquet or .arrow file that this user can read; the path is relative to the working folder";
    throw fileError(`inspecting ${path}`, error, hint);
  }
}

async function readAt(file: FileHandle, position: number, length: number): Promise<string> {
  const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, position);
  return buffer.toString("latin1", 0, bytesRead);
}

/** Other kinds of files, by their first bytes. */
const others = [
  { head: "PK\x03\x04", what: "a zip archive, as PyTorch saves", hint: "export the model to ONNX" },
  { head: "\x80", what: "a Python pickle", hint: "convert the model to ONNX, such as with skl2onnx" },
  { head: "\x89HDF", what: "an HDF5 file, as Keras saves", hint: "convert the model to ONNX, such as with tf2onnx" },
  { head: "\x1f\x8b", what: "gzip", hint: "unpack it" },
  { head: "version https://git-lfs", what: "a Git LFS pointer", hint: "fetch the file: git lfs pull" },
];
const nothing = { what: "empty", hint: "was it copied whole?" };

/**
 * Returns the error for a file that is none of the three kinds, with the code that a run would have: a shard is data, a
 * model is part of the job.
 */
function neither(path: string, head: string, cause: unknown): JobError {
  const known = head === "" ? nothing : others.find((other) => head.startsWith(other.head));
  const code = /^\.(parquet|pq)$/i.test(extname(path)) ? "SHARD_CORRUPT" : "MODEL_INVALID";
  const found =
    known === undefined
      ? `it is neither Parquet (no PAR1 at its start or end), nor Arrow, nor ONNX (read as protobuf: ${messageOf(cause)})`
      : `it is ${known.what}, neither an ONNX model nor a shard in Parquet or Arrow`;
  return new JobError(code, `inspecting ${path}: ${found}`, {
    hint: known?.hint ?? "is this the right file, and was it copied whole?",
    cause,
  });
}
