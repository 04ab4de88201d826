import { type Cursor, isNo, isStruct, isYes, readBinary, readI32, readInner } from "../../../util/thrift.js";

/** A column of values in a footer's schema. */
export interface Leaf {
  /** Names from the table's column down to the leaf. */
  readonly path: readonly string[];
  /** Number of the physical type. */
  readonly type: number;
  /** The highest repetition and definition level: above it, lists, and what may be NULL. */
  readonly repetition: number;
  readonly definition: number;
  /** The leaf's logical type: "" for none, "other" for types that are not distinguished here. */
  readonly annotation: string;
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
}

/** Types by number of the converted type. */
const convertedTypes = new Map([
  [0, "text"],
  [3, "list"],
  [6, "date"],
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
]);
const timestamp = 8;
const micros = 2;

/** The number of `REPEATED` in parquet.thrift. */
const repeated = 2;

export function readElement(cursor: Cursor, type: number, isRoot: boolean): SchemaElement {
  let children = 0;
  let physical: number | undefined;
  let repetition = -1;
  let name = "";
  let converted: string | undefined;
  let logical: string | undefined;
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
  return { name, children, type: physical, repetition, annotation: annotationOf(converted, logical) };
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

/** A union: one field, which is a struct; "other" for what is none. */
function readLogical(cursor: Cursor, type: number): string {
  let logical: string | undefined;
  readInner(cursor, type, (id, inner) => {
    const meaning = isStruct(inner) ? logicalTypes.get(id) : undefined;
    const isTimestamp = id === timestamp && isStruct(inner);
    const found = isTimestamp ? readTimestamp(cursor, inner) : (meaning ?? "other");
    logical = logical === undefined ? found : "other";
    return isTimestamp;
  });
  return logical ?? "other";
}

function readTimestamp(cursor: Cursor, type: number): string {
  let isUtc: boolean | undefined;
  const units: number[] = [];
  readInner(cursor, type, (id, inner) => {
    if (id === 2) {
      readInner(cursor, inner, (unit, kind) => {
        units.push(isStruct(kind) ? unit : 0);
        return false;
      });
      return true;
    }
    isUtc = id === 1 && (isYes(inner) || isNo(inner)) ? isYes(inner) : isUtc;
    return false;
  });
  const isMicros = units.length === 1 && units[0] === micros;
  return isMicros && isUtc !== undefined ? `timestamp micros${isUtc ? " UTC" : ""}` : "other";
}

/** A group of the schema whose children are read. */
interface OpenGroup {
  readonly element: SchemaElement;
  /** How many children are left. */
  left: number;
  readonly path: readonly string[];
  readonly repetition: number;
  readonly definition: number;
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
export function leavesOf(elements: readonly SchemaElement[]): Leaf[] {
  const leaves: Leaf[] = [];
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
    if (element.type === undefined) {
      groups.push({ element, left: element.children, path, repetition, definition });
    } else {
      const { type, annotation } = element;
      leaves.push({ path, type, repetition, definition, annotation, list: listOf(groups, element) });
    }
  }
  isTree &&= groups.every(isDone) && elements[0]?.type === undefined && elements[0]?.children === columns;
  return isTree ? leaves : withoutMeaning(leaves);
}

/** Returns leaves without their logical types, which only DuckDB can interpret. */
export function withoutMeaning(leaves: readonly Leaf[]): Leaf[] {
  return leaves.map((leaf) => ({ ...leaf, annotation: "other", list: undefined }));
}
