import { createColumnBuilder } from "../../../columnar/column-builder.js";
import type { Column, ColumnType, ListColumn } from "../../../columnar/types.js";
import { assertNever } from "../../../util/errors.js";
import {
  type BatchReader,
  place,
  readBools,
  readBytes,
  readFixed,
  readOffsets,
  readValidity,
  readViews,
  type Rows,
  valuesLimit,
} from "./flat.js";
import type { ArrowNode } from "../ipc/layout.js";
import type { ArrowField } from "../ipc/schema.js";
import { takeRows } from "../../../columnar/column-take.js";
import { columnTypeOf } from "./types.js";
import { isFixed } from "./values.js";
import { elementsOf } from "../../../columnar/values.js";

/** Rows [from, to) of a column. @throws RangeError where it is damaged */
export async function readArrowColumn(reader: BatchReader, node: ArrowNode, rows: Rows): Promise<Column> {
  if (rows.to > node.length) {
    throw new RangeError(`column ${node.field.name} has ${node.length} values, ${rows.to} are due`);
  }
  try {
    return node.field.dictionary === undefined
      ? await readPlain(reader, node, rows)
      : await readEncoded(reader, node, rows);
  } catch (error) {
    throw error instanceof RangeError && !error.message.startsWith("column ")
      ? new RangeError(`column ${node.field.name}: ${error.message}`, { cause: error })
      : error;
  }
}

async function readPlain(reader: BatchReader, node: ArrowNode, rows: Rows): Promise<Column> {
  const { type } = node.field;
  if (isFixed(type)) {
    return await readFixed(reader, node, rows);
  }
  switch (type.kind) {
    case "bool":
      return await readBools(reader, node, rows);
    case "bytes":
      return await readBytes(reader, node, rows);
    case "view":
      return await readViews(reader, node, rows);
    case "list":
      return await readList(reader, node, rows);
    case "listView":
      return await readListViews(reader, node, rows);
    case "fixedList":
      return await readFixedList(reader, node, { ...rows, width: type.width });
    case "struct":
      return await readStruct(reader, node, rows);
    case "null":
    case "interval":
    case "union":
    case "map":
    case "runs":
      throw new TypeError(`${type.kind} is refused when a job is planned`);
    default:
      return assertNever(type);
  }
}

function onlyChild({ children }: ArrowNode): ArrowNode {
  const [child] = children;
  if (child === undefined) {
    throw new RangeError("a list without elements");
  }
  return child;
}

async function readList(reader: BatchReader, node: ArrowNode, rows: Rows): Promise<ListColumn> {
  const { type } = node.field;
  const valid = await readValidity(reader, node, rows);
  const { base, offsets, end } = await readOffsets(reader, node, {
    ...rows,
    large: type.kind === "list" && type.large,
  });
  const child = await readArrowColumn(reader, onlyChild(node), { from: base, to: end });
  return { kind: "list", offsets, child, valid };
}

async function readFixedList(
  reader: BatchReader,
  node: ArrowNode,
  { from, to, width }: Rows & { width: number },
): Promise<ListColumn> {
  if ((to - from) * width > valuesLimit) {
    throw new RangeError(`${to - from} lists of ${width}; at most ${valuesLimit} values are read at once`);
  }
  const valid = await readValidity(reader, node, { from, to });
  const child = await readArrowColumn(reader, onlyChild(node), { from: from * width, to: to * width });
  const offsets = new Uint32Array(to - from + 1);
  for (let row = 0; row < offsets.length; row += 1) {
    offsets[row] = row * width;
  }
  return { kind: "list", offsets, child, valid };
}

/** Reads lists whose values may be in any order and overlap: gathers them. */
async function readListViews(reader: BatchReader, node: ArrowNode, rows: Rows): Promise<ListColumn> {
  const { type } = node.field;
  const valid = await readValidity(reader, node, rows);
  const element = type.kind === "listView" && type.large ? "int64" : "int32";
  const width = element === "int64" ? 8 : 4;
  const [starts, sizes] = await Promise.all(
    [1, 2].map(async (index) =>
      elementsOf(element, await reader.body.read(place(node, index), rows.from * width, rows.to * width)),
    ),
  );
  const offsets = new Uint32Array(rows.to - rows.from + 1);
  let [low, high, total] = [Number.POSITIVE_INFINITY, 0, 0];
  for (let row = 0; row < rows.to - rows.from; row += 1) {
    const size = valid?.[row] === 0 ? 0 : Number(sizes?.[row]);
    total += size;
    if (size < 0 || total > valuesLimit) {
      throw new RangeError(`a list of ${size} elements, ${total} with those before it`);
    }
    offsets[row + 1] = total;
    if (size > 0) {
      low = Math.min(low, Number(starts?.[row]));
      high = Math.max(high, Number(starts?.[row]) + size);
    }
  }
  const childNode = onlyChild(node);
  const elementType = requiredType(childNode.field);
  const gathered = createColumnBuilder(elementType, total);
  if (total > 0) {
    if (low < 0) {
      throw new RangeError(`a list begins at element ${low}`);
    }
    const child = await readArrowColumn(reader, childNode, { from: low, to: high });
    for (let row = 0; row < rows.to - rows.from; row += 1) {
      const size = (offsets[row + 1] as number) - (offsets[row] as number);
      const start = Number(starts?.[row]) - low;
      if (size > 0) {
        gathered.append(child, start, start + size);
      }
    }
  }
  return { kind: "list", offsets, child: gathered.finish(), valid };
}

async function readStruct(reader: BatchReader, node: ArrowNode, rows: Rows): Promise<Column> {
  const valid = await readValidity(reader, node, rows);
  const children: Column[] = [];
  for (const child of node.children) {
    children.push(withNulls(await readArrowColumn(reader, child, rows), valid));
  }
  return { kind: "struct", rowCount: rows.to - rows.from, children, valid };
}

/** DuckDB takes a field of a struct that is NULL for NULL only when the field itself is. */
function withNulls(column: Column, outer: Uint8Array | undefined): Column {
  if (outer === undefined) {
    return column;
  }
  const valid = column.valid?.map((flag, row) => flag & (outer[row] as number)) ?? outer;
  return column.kind === "struct"
    ? { ...column, valid, children: column.children.map((child) => withNulls(child, outer)) }
    : { ...column, valid };
}

async function readEncoded(reader: BatchReader, node: ArrowNode, rows: Rows): Promise<Column> {
  const { dictionary } = node.field;
  if (dictionary === undefined) {
    throw new TypeError("a column without a dictionary");
  }
  const { id, index: indexType } = dictionary;
  const valid = await readValidity(reader, node, rows);
  const width = indexType.bits / 8;
  const bytes = await reader.body.read(place(node, 1), rows.from * width, rows.to * width);
  const indices = elementsOf(`${indexType.signed ? "int" : "uint"}${indexType.bits}`, bytes);
  return takeRows(requiredType(node.field), reader.dictionary(id), { indices, valid, limit: valuesLimit });
}

function requiredType(field: ArrowField): ColumnType {
  const type = columnTypeOf(field);
  if (type === undefined) {
    throw new TypeError(`${field.name} is refused when a job is planned`);
  }
  return type;
}
