import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { lstat, readFile, stat } from "node:fs/promises";
import { dirname, isAbsolute, join, normalize, sep } from "node:path";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { errnoOf, JobError } from "../errors.js";
import type { ModelFile } from "./port.js";

/**
 * Digests a model and the external data files it names.
 * @throws JobError FILE_MISSING, PERMISSION, MODEL_INVALID
 */
export async function openModelFile(path: string): Promise<ModelFile> {
  const before = await statOf(path);
  const bytes = await readFile(path);
  const main = createHash("sha256").update(bytes).digest("hex");
  const files = [{ path, fingerprint: before }];
  const digests = [`${main}  model`];
  for (const location of externalData(bytes, path)) {
    const file = await externalFile(path, location);
    files.push({ path: file, fingerprint: await statOf(file) });
    digests.push(`${await digestFile(file)}  ${location}`);
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
  // The digest stands for the bytes only if nothing was written while they were read.
  await check();
  const sha256 = digests.length === 1 ? main : createHash("sha256").update(digests.join("\n")).digest("hex");
  return { path, sha256, sizeBytes: bytes.length, check };
}

async function statOf(path: string): Promise<string> {
  try {
    const found = await stat(path, { bigint: true });
    if (!found.isFile()) {
      throw new JobError("FILE_MISSING", `loading model ${path}: it is not a file`, {
        hint: "model.path names one .onnx file",
      });
    }
    return `${found.ino}:${found.size}:${found.mtimeNs}:${found.ctimeNs}`;
  } catch (error) {
    if (error instanceof JobError) {
      throw error;
    }
    if (errnoOf(error) === "EACCES") {
      throw new JobError("PERMISSION", `loading model ${path}: permission denied`, {
        hint: "grant read permission",
        cause: error,
      });
    }
    throw new JobError("FILE_MISSING", `loading model ${path}: there is no such file`, {
      hint: "model.path is relative to the spec's folder",
      cause: error,
    });
  }
}

async function digestFile(path: string): Promise<string> {
  const hash = createHash("sha256");
  for await (const piece of createReadStream(path, { highWaterMark: 1 << 20 }) as AsyncIterable<Buffer>) {
    hash.update(piece);
  }
  return hash.digest("hex");
}

/** External data must be a plain file in the model's folder: a model must not be able to read other files. */
async function externalFile(model: string, location: string): Promise<string> {
  const clean = normalize(location);
  const file = join(dirname(model), clean);
  const refuse = (found: string): JobError =>
    new JobError("MODEL_INVALID", `loading model ${model}: its external data \`${location}\` ${found}`, {
      hint: "external data must be a plain file beside the model, named by a relative path",
    });
  if (location === "" || isAbsolute(clean) || clean === ".." || clean.startsWith(`..${sep}`)) {
    throw refuse("lies outside the model's folder");
  }
  const found = await lstat(file).catch((cause: unknown) => {
    throw new JobError("FILE_MISSING", `loading model ${model}: its external data ${file} is not there`, {
      hint: "copy the model together with its external data files",
      cause,
    });
  });
  if (!found.isFile() || found.nlink > 1) {
    throw refuse(found.isFile() ? "is a hard link" : "is not a plain file");
  }
  return file;
}

// Field numbers of onnx.proto3: ModelProto.graph, functions; GraphProto.node, initializer, sparse_initializer;
// FunctionProto.node; NodeProto.attribute; AttributeProto.t, g, tensors, graphs, sparse_tensor(s);
// SparseTensorProto.values, indices; TensorProto.external_data; StringStringEntryProto.key, value.
type Visitor = { readonly [field: number]: Visitor | "external_data" };

const tensor: Visitor = { 13: "external_data" };
const sparseTensor: Visitor = { 1: tensor, 2: tensor };
const attribute: { [field: number]: Visitor | "external_data" } = {
  5: tensor,
  10: tensor,
  22: sparseTensor,
  23: sparseTensor,
};
const node: Visitor = { 5: attribute };
const graph: Visitor = { 1: node, 5: tensor, 15: sparseTensor };
attribute[6] = graph;
attribute[11] = graph;
const model: Visitor = { 7: graph, 25: { 7: node } };

const depthLimit = 64;

/** The distinct `location`s of tensors stored outside the file, sorted. */
function externalData(bytes: Uint8Array, path: string): string[] {
  const locations = new Set<string>();
  const walk = (reader: BinaryReader, end: number, visitor: Visitor, depth: number): void => {
    if (depth > depthLimit) {
      throw new RangeError(`graphs nested more than ${depthLimit} deep`);
    }
    while (reader.pos < end) {
      const [field, wire] = reader.tag();
      const next = wire === WireType.LengthDelimited ? visitor[field] : undefined;
      if (next === undefined) {
        reader.skip(wire, field);
        continue;
      }
      const inner = reader.uint32() + reader.pos;
      if (inner > end) {
        throw new RangeError("a message runs past its parent's end");
      }
      if (next === "external_data") {
        const [key, value] = stringEntry(reader, inner);
        if (key === "location") {
          locations.add(value);
        }
      } else {
        walk(reader, inner, next, depth + 1);
      }
    }
  };
  try {
    walk(new BinaryReader(bytes), bytes.length, model, 0);
  } catch (cause) {
    throw new JobError("MODEL_INVALID", `loading model ${path}: it is not an ONNX file`, {
      hint: "is this the right file, and was it copied whole?",
      cause,
    });
  }
  return [...locations].toSorted();
}

function stringEntry(reader: BinaryReader, end: number): [string, string] {
  let key = "";
  let value = "";
  while (reader.pos < end) {
    const [field, wire] = reader.tag();
    if (field === 1 && wire === WireType.LengthDelimited) {
      key = reader.string();
    } else if (field === 2 && wire === WireType.LengthDelimited) {
      value = reader.string();
    } else {
      reader.skip(wire, field);
    }
  }
  return [key, value];
}
