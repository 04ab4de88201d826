import { lstat, readFile, realpath, stat } from "node:fs/promises";
import { dirname, isAbsolute, join, normalize, resolve, sep } from "node:path";
import { type OnnxProto, readOnnxProto, traitsOf } from "../file/proto.js";
import { findTextTensors } from "../file/texts.js";
import { errnoOf, JobError, messageOf } from "../../base/errors.js";
import { digestOfFile, sha256Of } from "../../base/sha256.js";
import type { ModelFile, ModelSource } from "./place.js";

/**
 * Opens the source of models on disk.
 * @param folder the folder that relative paths start from
 * @param read reads and digests a file; default: a model
 */
export function fileModels(
  folder: string,
  read: (path: string) => Promise<ModelFile> = (path) => openModelFile(path),
): ModelSource {
  return {
    resolve: async (path) => ({ file: await read(resolve(folder, path)) }),
    [Symbol.dispose]() {},
  };
}

export interface OnnxFile extends ModelFile {
  /** The size of the file alone. */
  readonly fileBytes: number;
  readonly proto: OnnxProto;
  readonly externalData: readonly { readonly location: string; readonly sizeBytes: number }[];
}

/**
 * Reads and digests a model and the external data files it names.
 * @param refuse makes the error for a file that is not ONNX
 * @throws JobError FILE_MISSING, PERMISSION, MODEL_INVALID
 */
export async function openModelFile(path: string, refuse = notOnnx): Promise<OnnxFile> {
  const before = await statOf(path);
  const { bytes, proto } = await readModel(path, refuse);
  const main = sha256Of(bytes);
  const files = [{ path, fingerprint: before }];
  const externalData: OnnxFile["externalData"][number][] = [];
  const digests = [`${main}  model`];
  let sizeBytes = bytes.length;
  for (const location of proto.externalData) {
    const file = await externalFile(path, location);
    files.push({ path: file, fingerprint: await statOf(file) });
    const external = await digestFile(file);
    sizeBytes += external.sizeBytes;
    externalData.push({ location, sizeBytes: external.sizeBytes });
    digests.push(`${external.sha256}  ${location}`);
  }
  const check = async (): Promise<void> => {
    for (const file of files) {
      if ((await statOf(file.path)) !== file.fingerprint) {
        throw new JobError("MODEL_CHANGED", `loading ${path}: ${file.path} was written to while it was being loaded`, {
          hint: "run again when the model is in place",
        });
      }
    }
  };
  // The digest is valid only if nothing was written while the bytes were read.
  await check();
  const sha256 = digests.length === 1 ? main : sha256Of(digests.join("\n"));
  const texts = findTextTensors(proto, bytes.length);
  const traits = traitsOf(proto);
  return { path, name: path, sha256, sizeBytes, texts, traits, check, fileBytes: bytes.length, proto, externalData };
}

/** Reads a model file whole. @throws JobError as `openModelFile` */
export async function readModel(
  path: string,
  refuse: (path: string, cause: unknown) => JobError,
): Promise<{ bytes: Uint8Array; proto: OnnxProto }> {
  let bytes: Uint8Array;
  try {
    bytes = await readFile(path);
  } catch (error) {
    // Protobuf is limited to 2 GiB, as Node's readFile is: larger models keep their weights in other files.
    throw errnoOf(error) === "ERR_FS_FILE_TOO_LARGE" ? refuse(path, error) : unreadable(path, error);
  }
  try {
    return { bytes, proto: readOnnxProto(bytes) };
  } catch (cause) {
    throw refuse(path, cause);
  }
}

export function notOnnx(path: string, cause: unknown): JobError {
  return new JobError("MODEL_INVALID", `loading model ${path}: it is not an ONNX file`, {
    hint: "is this the right file, and was it copied whole?",
    cause,
  });
}

type Noun = "model" | "tokenizer";

const notFileHints = {
  model: "model.path names one .onnx file",
  tokenizer: "tokenizer names a tokenizer.json",
} as const;

/** The error for a file that cannot be read. */
export function unreadable(path: string, cause: unknown, noun: Noun = "model"): JobError {
  return errnoOf(cause) === "EACCES"
    ? new JobError("PERMISSION", `loading ${noun} ${path}: permission denied`, { hint: "grant read permission", cause })
    : new JobError("DISK", `loading ${noun} ${path}: ${errnoOf(cause) ?? messageOf(cause)}`, { cause });
}

/** A text that changes when the file is written to. @throws JobError FILE_MISSING, PERMISSION */
export async function statOf(path: string, noun: Noun = "model"): Promise<string> {
  try {
    const stats = await stat(path, { bigint: true });
    if (!stats.isFile()) {
      throw new JobError("FILE_MISSING", `loading ${noun} ${path}: it is not a file`, { hint: notFileHints[noun] });
    }
    return `${stats.ino}:${stats.size}:${stats.mtimeNs}:${stats.ctimeNs}`;
  } catch (error) {
    if (error instanceof JobError) {
      throw error;
    }
    if (errnoOf(error) === "EACCES") {
      throw unreadable(path, error, noun);
    }
    throw new JobError("FILE_MISSING", `loading ${noun} ${path}: there is no such file`, {
      hint: `${noun === "model" ? "model.path" : "tokenizer"} is relative to the spec's folder`,
      cause: error,
    });
  }
}

async function digestFile(path: string): Promise<{ sha256: string; sizeBytes: number }> {
  try {
    return await digestOfFile(path);
  } catch (error) {
    throw unreadable(path, error);
  }
}

/** Refuses external data outside the model's folder. @throws JobError MODEL_INVALID */
export function refuseOutside(model: string, location: string): void {
  const clean = normalize(location);
  if (location === "" || isAbsolute(clean) || clean === ".." || clean.startsWith(`..${sep}`)) {
    throw refused(model, location, "is outside the model's folder");
  }
}

function refused(model: string, location: string, finding: string): JobError {
  return new JobError("MODEL_INVALID", `loading model ${model}: its external data \`${location}\` ${finding}`, {
    hint: "external data must be a plain file in the folder of the model, named by a relative path",
  });
}

/** External data must be a plain file in the model's folder: a model must not read other files. */
async function externalFile(model: string, location: string): Promise<string> {
  refuseOutside(model, location);
  const file = join(dirname(model), normalize(location));
  const missing = (cause: unknown): never => {
    throw new JobError("FILE_MISSING", `loading model ${model}: its external data ${file} is not there`, {
      hint: "copy the model together with its external data files",
      cause,
    });
  };
  const stats = await lstat(file).catch(missing);
  // A folder on the way may be a link to anywhere.
  const [home, there] = await Promise.all([realpath(dirname(model)), realpath(dirname(file)).catch(missing)]);
  if (there !== home && !there.startsWith(home.endsWith(sep) ? home : `${home}${sep}`)) {
    throw refused(model, location, "is outside the model's folder");
  }
  if (!stats.isFile() || stats.nlink > 1) {
    throw refused(model, location, stats.isFile() ? "is a hard link" : "is not a plain file");
  }
  return file;
}
