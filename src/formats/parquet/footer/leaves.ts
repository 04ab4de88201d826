import { type Cursor, isNo, isStruct, isYes, readBinary, readI32, readInner } from "../../../util/thrift.js";

/** A column of values in a footer's schema. */
export interface Leaf {
  /** Number of the table's column that it is, or is a part of. */
  readonly column: number;
  /** Names from the table's column down to the leaf. */
  readonly path: readonly string[];
  /** Number of the physical type. */
  readonly type: number;
  /** The highest repetition and definition level: above it, lists, and what may be NULL. */
  readonly repetition: number;
  readonly definition: number;
  /** The leaf's logical type: "" for none, "other" for types that are not distinguished here. */
  readonly annotation: string;
  /** Set if values are nanoseconds in UTC, which DuckDB cuts to microseconds: the byte of the footer that says "in UTC". */
  readonly utcNanosAt: number | undefined;
  /** Set if the leaf is the element of a column of lists in the standard form, which has three levels. */
  readonly list: ListLevels | undefined;
}

/**
 * What may be NULL in a column of lists: `<optional | required> group (LIST) { repeated group { <optional | required>
 * element } }`. https://github.com/apache/parquet-format/blob/master/LogicalTypes.md#lists
 */
export interface ListLevels {
  readonly isOptional: boolean;
  readonly isElementOptional: boolean;
}

export interface SchemaElement {
  readonly name: string;
  readonly children: number;
  /** undefined: it is a group. */
  readonly type: number | undefined;
  /** 0 required, 1 optional, 2 repeated. */
  readonly repetition: number;
  readonly annotation: string;
  readonly utcNanosAt: number | undefined;
}

/** What a footer's schema says of the table's columns. */
export interface SchemaLeaves {
  /** In the order of each row group's chunks. */
  readonly leaves: readonly Leaf[];
  /** Columns and fields with the name of another one beside them, ignoring case. */
  readonly doubles: readonly Double[];
}

export interface Double {
  readonly path: readonly string[];
  /** The name of the other one. */
  readonly other: string;
}

/** Types by number of the converted type. */
const convertedTypes = new Map([
  [0, "text"],
  [3, "list"],
  [6, "date"],
  [9, "timestamp millis"],
  [10, "timestamp micros"],
  [11, "uint8"],
  [12, "uint16"],
  [13, "uint32"],
  [14, "uint64"],
  [15, "int8"],
  [16, "int16"],
  [17, "int32"],
  [18, "int64"],
]);
/** Types by number of the logical type. An integer's width is in the converted type, too. */
const logicalTypes = new Map([
  [1, "text"],
  [3, "list"],
  [6, "date"],
  [10, "integer"],
  [11, "null"],
]);
const timestamp = 8;
const timeUnits = ["", "millis", "micros", "nanos"];

/** The number of `REPEATED` in parquet.thrift. */
const repeated = 2;

export function readElement(cursor: Cursor, type: number, isRoot: boolean): SchemaElement {
  let children = 0;
  let physical: number | undefined;
  let repetition = -1;
  let name = "";
  let converted: string | undefined;
  let logical: LogicalType | undefined;
  readInner(cursor, type, (id, inner) => {
    if (id === 1) {
      physical = readI32(cursor, inner);
    } else if (id === 3) {
      repetition = readI32(cursor, inner);
    } else if (id === 4) {
      name = Buffer.from(readBinary(cursor, inner)).toString();
    } else if (id === 5) {
      children = readI32(cursor, inner);
    } else if (id === 6) {
      converted = convertedTypes.get(readI32(cursor, inner)) ?? "other";
    } else if (id === 10) {
      logical = readLogical(cursor, inner);
    } else {
      return false;
    }
    return true;
  });
  // DuckDB takes a missing repetition for `required`, and would then read levels as values.
  if (!isRoot && (repetition < 0 || repetition > 2)) {
    throw new Error("a column is neither required nor optional nor repeated");
  }
  const annotation = annotationOf(converted, logical?.name);
  return { name, children, type: physical, repetition, annotation, utcNanosAt: logical?.utcNanosAt };
}

/** Returns the type that both annotations state; "other" if they disagree, or if one of them is not known. */
function annotationOf(converted: string | undefined, logical: string | undefined): string {
  if (logical === undefined) {
    return converted ?? "";
  }
  if (logical === "integer") {
    return converted?.includes("int") === true ? converted : "other";
  }
  if (logical === "list") {
    return converted === "list" ? "list" : "other"; // DuckDB asks for the converted type only
  }
  return converted === undefined || logical.startsWith(converted) ? logical : "other";
}

interface LogicalType {
  readonly name: string;
  readonly utcNanosAt: number | undefined;
}

/** A union: one field, which is a struct; "other" for what is none. */
function readLogical(cursor: Cursor, type: number): LogicalType {
  let logical: LogicalType | undefined;
  readInner(cursor, type, (id, inner) => {
    const isTimestamp = id === timestamp && isStruct(inner);
    const found = isTimestamp
      ? readTimestamp(cursor, inner)
      : { name: (isStruct(inner) ? logicalTypes.get(id) : undefined) ?? "other", utcNanosAt: undefined };
    logical = logical === undefined ? found : { ...found, name: "other" };
    return isTimestamp;
  });
  return logical ?? { name: "other", utcNanosAt: undefined };
}

function readTimestamp(cursor: Cursor, type: number): LogicalType {
  let isUtc: boolean | undefined;
  let flagAt = 0;
  const units: (string | undefined)[] = [];
  readInner(cursor, type, (id, inner) => {
    if (id === 2) {
      readInner(cursor, inner, (unit, kind) => {
        units.push(isStruct(kind) ? timeUnits[unit] : undefined);
        return false;
      });
      return true;
    }
    if (id === 1 && (isYes(inner) || isNo(inner))) {
      isUtc = isYes(inner);
      // The value is in the field's first byte, which the number of the field may follow.
      flagAt = cursor.bytes[cursor.at - 1] === (0x10 | inner) ? cursor.at - 1 : cursor.at - 2;
    }
    return false;
  });
  const [unit] = units.length === 1 ? units : [];
  const name = unit === undefined || isUtc === undefined ? "other" : `timestamp ${unit}${isUtc ? " UTC" : ""}`;
  return { name, utcNanosAt: isUtc === true && units.includes("nanos") ? flagAt : undefined };
}

/** A group of the schema whose children are read. */
interface OpenGroup {
  readonly element: SchemaElement;
  /** How many children are left. */
  left: number;
  readonly path: readonly string[];
  readonly repetition: number;
  readonly definition: number;
  /** The names of the children that were read, by their lower case. */
  readonly names: Map<string, string>;
}

/** The list that `leaf` is the element of, within `groups`; undefined: it is of none, or of a list in another form. */
function listOf([outer, inner, ...others]: readonly OpenGroup[], leaf: SchemaElement): ListLevels | undefined {
  const isList =
    outer?.element.annotation === "list" &&
    outer.element.repetition !== repeated &&
    outer.element.children === 1 &&
    inner?.element.annotation === "" &&
    inner.element.repetition === repeated &&
    inner.element.children === 1 &&
    leaf.repetition !== repeated &&
    others.length === 0;
  return isList ? { isOptional: outer.element.repetition === 1, isElementOptional: leaf.repetition === 1 } : undefined;
}

/**
 * The schema is a tree, written parents first; its first element is the table. Where their numbers of children do not
 * make one, readers take it for different ones: no leaf's meaning is known then.
 */
export function leavesOf(elements: readonly SchemaElement[]): SchemaLeaves {
  const leaves: Leaf[] = [];
  const doubles: Double[] = [];
  const topNames = new Map<string, string>();
  const groups: OpenGroup[] = [];
  const isDone = (group: OpenGroup | undefined): boolean => group?.left === 0;
  let isTree = true;
  let columns = 0;
  for (const element of elements.slice(1)) {
    while (isDone(groups.at(-1))) {
      groups.pop();
    }
    isTree &&= element.type === undefined ? element.children > 0 : element.children === 0;
    columns += groups.length === 0 ? 1 : 0;
    const parent = groups.at(-1);
    const path = [...(parent?.path ?? []), element.name];
    const repetition = (parent?.repetition ?? 0) + (element.repetition === repeated ? 1 : 0);
    const definition = (parent?.definition ?? 0) + (element.repetition === 0 ? 0 : 1);
    if (parent !== undefined) {
      parent.left -= 1;
    }
    const names = parent?.names ?? topNames;
    const other = names.get(element.name.toLowerCase());
    names.set(element.name.toLowerCase(), element.name);
    if (other !== undefined) {
      doubles.push({ path, other }, { path: [...path.slice(0, -1), other], other: element.name });
    }
    if (element.type === undefined) {
      groups.push({ element, left: element.children, path, repetition, definition, names: new Map() });
    } else {
      const { type, annotation, utcNanosAt } = element;
      const list = listOf(groups, element);
      leaves.push({ column: columns - 1, path, type, repetition, definition, annotation, utcNanosAt, list });
    }
  }
  isTree &&= groups.every(isDone) && elements[0]?.type === undefined && elements[0]?.children === columns;
  return { leaves: isTree ? leaves : withoutMeaning(leaves), doubles };
}

/** Returns leaves without their logical types, which only DuckDB can interpret. */
export function withoutMeaning(leaves: readonly Leaf[]): Leaf[] {
  return leaves.map((leaf) => ({
    ...leaf,
    annotation: leaf.annotation === "null" ? leaf.annotation : "other",
    list: undefined,
  }));
}
