/**
 * A reader of FlatBuffers that trusts none of them: every offset is checked against the end of the bytes, and every
 * vector against the bytes that are left. https://flatbuffers.dev/internals/
 *
 * Reading outside the bytes makes `DataView` throw a RangeError; the checks here throw one, too.
 */
export interface FlatTable {
  readonly view: DataView;
  readonly at: number;
  /** The position of the list of its fields' offsets. */
  readonly vtable: number;
  readonly vtableBytes: number;
}

export interface FlatVector {
  readonly view: DataView;
  readonly start: number;
  readonly length: number;
}

/** The table that a buffer begins with. @throws RangeError as all here do */
export function rootTable(bytes: Uint8Array): FlatTable {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return tableAt(view, view.getUint32(0, true));
}

function tableAt(view: DataView, at: number): FlatTable {
  const vtable = at - view.getInt32(at, true);
  const vtableBytes = view.getUint16(vtable, true);
  if (vtable < 0 || vtableBytes < 4 || vtable + vtableBytes > view.byteLength) {
    throw new RangeError(`a table at byte ${at} has its fields outside`);
  }
  return { view, at, vtable, vtableBytes };
}

/** The position of field `id`; 0: it has its default. */
function placeOf({ view, at, vtable, vtableBytes }: FlatTable, id: number): number {
  const slot = 4 + id * 2;
  const offset = slot + 2 > vtableBytes ? 0 : view.getUint16(vtable + slot, true);
  return offset === 0 ? 0 : at + offset;
}

export function byteField(table: FlatTable, id: number, otherwise = 0): number {
  const place = placeOf(table, id);
  return place === 0 ? otherwise : table.view.getUint8(place);
}

export function shortField(table: FlatTable, id: number, otherwise = 0): number {
  const place = placeOf(table, id);
  return place === 0 ? otherwise : table.view.getInt16(place, true);
}

export function intField(table: FlatTable, id: number, otherwise = 0): number {
  const place = placeOf(table, id);
  return place === 0 ? otherwise : table.view.getInt32(place, true);
}

export function longField(table: FlatTable, id: number): number {
  const place = placeOf(table, id);
  return place === 0 ? 0 : longAt(table.view, place);
}

/** An int64 that a double holds exactly. */
export function longAt(view: DataView, place: number): number {
  const value = Number(view.getBigInt64(place, true));
  if (!Number.isSafeInteger(value)) {
    throw new RangeError(`${value} at byte ${place} is no size of anything`);
  }
  return value;
}

export function tableField(table: FlatTable, id: number): FlatTable | undefined {
  const place = placeOf(table, id);
  return place === 0 ? undefined : tableAt(table.view, place + table.view.getUint32(place, true));
}

const utf8 = new TextDecoder("utf-8", { fatal: false });

export function textField(table: FlatTable, id: number): string | undefined {
  const found = vectorField(table, id, 1);
  if (found === undefined) {
    return undefined;
  }
  const { view, start, length } = found;
  return utf8.decode(new Uint8Array(view.buffer, view.byteOffset + start, length));
}

/** A vector of elements of `elementBytes` each. */
export function vectorField(table: FlatTable, id: number, elementBytes: number): FlatVector | undefined {
  const place = placeOf(table, id);
  if (place === 0) {
    return undefined;
  }
  const { view } = table;
  const at = place + view.getUint32(place, true);
  const length = view.getUint32(at, true);
  const start = at + 4;
  if (start + length * elementBytes > view.byteLength) {
    throw new RangeError(`a vector of ${length} elements at byte ${at} reaches outside`);
  }
  return { view, start, length };
}

/** The tables of a vector. */
export function* tablesField(table: FlatTable, id: number): Generator<FlatTable> {
  const vector = vectorField(table, id, 4);
  for (let index = 0; index < (vector?.length ?? 0); index += 1) {
    const place = (vector?.start ?? 0) + index * 4;
    yield tableAt(table.view, place + table.view.getUint32(place, true));
  }
}
