import type { BatchHeader } from "./messages.js";
import { pairAt } from "./messages.js";
import type { ArrowField, ArrowSchema } from "./schema.js";
import { assertNever } from "../../../util/errors.js";

/** Where the values of a field are in the body of a batch. */
export interface ArrowNode {
  readonly field: ArrowField;
  readonly length: number;
  readonly nulls: number;
  /** First the validity, where the type has one. */
  readonly buffers: readonly BufferPlace[];
  readonly children: readonly ArrowNode[];
}

export interface BufferPlace {
  readonly offset: number;
  readonly bytes: number;
}

interface Walk {
  readonly header: BatchHeader;
  readonly bodyBytes: number;
  /** Metadata version 4 has a validity for unions. */
  readonly unionsHaveValidity: boolean;
  node: number;
  buffer: number;
  variadic: number;
}

/**
 * The columns of a batch, top level first; all places are inside the body.
 * @throws RangeError where the batch does not fit the schema, or a buffer is outside its body
 */
export function layoutBatch(
  { fields }: Pick<ArrowSchema, "fields">,
  header: BatchHeader,
  { bodyBytes, version }: { readonly bodyBytes: number; readonly version: number },
): ArrowNode[] {
  const walk: Walk = { header, bodyBytes, unionsHaveValidity: version < 4, node: 0, buffer: 0, variadic: 0 };
  const nodes = fields.map((field) => layoutField(field, walk));
  if (walk.node !== header.nodes.length || walk.buffer !== header.buffers.length) {
    throw new RangeError(
      `it has ${header.nodes.length} columns in ${header.buffers.length} buffers, the schema ${walk.node} in ${walk.buffer}`,
    );
  }
  for (const { field, length } of nodes) {
    if (length !== header.rows) {
      throw new RangeError(`column ${field.name} has ${length} values, the batch ${header.rows} rows`);
    }
  }
  return nodes;
}

function layoutField(field: ArrowField, walk: Walk): ArrowNode {
  const [length, nulls] = pairAt(walk.header.nodes, walk.node);
  walk.node += 1;
  if (length < 0 || nulls > length) {
    throw new RangeError(`column ${field.name} has ${length} values, ${nulls} of them NULL`);
  }
  const count = field.dictionary === undefined ? bufferCount(field, walk) : 2;
  const buffers: BufferPlace[] = [];
  for (let index = 0; index < count; index += 1) {
    const [offset, bytes] = pairAt(walk.header.buffers, walk.buffer);
    walk.buffer += 1;
    if (offset < 0 || bytes < 0 || offset + bytes > walk.bodyBytes) {
      throw new RangeError(`column ${field.name} would be bytes ${offset} to ${offset + bytes} of ${walk.bodyBytes}`);
    }
    buffers.push({ offset, bytes });
  }
  const children = field.dictionary === undefined ? field.children.map((child) => layoutField(child, walk)) : [];
  return { field, length, nulls, buffers, children };
}

function bufferCount({ type }: ArrowField, walk: Walk): number {
  switch (type.kind) {
    case "null":
    case "runs":
      return 0;
    case "struct":
    case "fixedList":
      return 1;
    case "bytes":
    case "listView":
      return 3;
    case "view": {
      const variadic = walk.header.variadicCounts[walk.variadic] ?? 0;
      walk.variadic += 1;
      if (variadic < 0 || variadic > walk.header.buffers.length) {
        throw new RangeError(`${variadic} buffers of one column`);
      }
      return 2 + variadic;
    }
    case "union":
      return (type.dense ? 2 : 1) + (walk.unionsHaveValidity ? 1 : 0);
    case "int":
    case "float":
    case "decimal":
    case "date":
    case "time":
    case "timestamp":
    case "duration":
    case "interval":
    case "fixedBytes":
    case "bool":
    case "list":
    case "map":
      return 2;
    default:
      return assertNever(type);
  }
}
