import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";

/** More bytes than the tag and length of any field take, which are ten each. */
const maxHeaderBytes = 20;
/** More fields than a model has: one for each function and pair of metadata, and a handful of others. */
const maxFields = 16_384;
const graphField = 7;

/**
 * Checks that a large file is a ModelProto by its outermost fields, reading a few bytes of each.
 * @param read returns bytes [offset, offset + length) of the file
 * @throws Error when they are not the fields of a ModelProto, or there is no graph
 */
export async function checkModelFields(
  sizeBytes: number,
  read: (offset: number, length: number) => Promise<Uint8Array>,
): Promise<void> {
  let offset = 0;
  let hasGraph = false;
  for (let fields = 0; offset < sizeBytes; fields += 1) {
    if (fields === maxFields) {
      throw new RangeError(`more than ${maxFields} fields`);
    }
    const header = new BinaryReader(await read(offset, Math.min(maxHeaderBytes, sizeBytes - offset)));
    const [field, wire] = header.tag();
    if (wire === WireType.LengthDelimited) {
      hasGraph ||= field === graphField;
      offset += header.uint32();
    } else {
      header.skip(wire, field);
    }
    offset += header.pos;
  }
  if (offset !== sizeBytes) {
    throw new RangeError("a field runs past the end of the file");
  }
  if (!hasGraph) {
    throw new Error("it holds no graph");
  }
}
