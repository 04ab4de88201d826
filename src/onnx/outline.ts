import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";

/** More than any field's number and length take: ten bytes each. */
const headBytes = 20;
/** A model has a field for each function and each pair of metadata, and a handful of others. */
const fieldsLimit = 16_384;
const graphField = 7;

/**
 * Tells a model from another large file by the outermost fields of its ModelProto, of which some bytes are read each.
 * @throws Error when they are not those of a ModelProto
 */
export async function checkOutline(
  sizeBytes: number,
  read: (from: number, length: number) => Promise<Uint8Array>,
): Promise<void> {
  let at = 0;
  let hasGraph = false;
  for (let fields = 0; at < sizeBytes; fields += 1) {
    if (fields === fieldsLimit) {
      throw new RangeError(`more than ${fieldsLimit} fields`);
    }
    const head = new BinaryReader(await read(at, Math.min(headBytes, sizeBytes - at)));
    const [field, wire] = head.tag();
    if (wire === WireType.LengthDelimited) {
      hasGraph ||= field === graphField;
      at += head.uint32();
    } else {
      head.skip(wire, field);
    }
    at += head.pos;
  }
  if (at !== sizeBytes) {
    throw new RangeError("a field runs past the end of the file");
  }
  if (!hasGraph) {
    throw new Error("it holds no graph");
  }
}
