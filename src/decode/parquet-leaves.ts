import { type Cursor, readI32, readInner } from "./thrift.js";

/** A column of values in a footer's schema. */
export interface Leaf {
  /** Number of the physical type. */
  readonly type: number;
  /** The highest repetition and definition level: above it, lists, and what may be NULL. */
  readonly repetition: number;
  readonly definition: number;
}

export interface SchemaElement {
  readonly children: number;
  /** undefined: it is a group. */
  readonly type: number | undefined;
  /** 0 required, 1 optional, 2 repeated. */
  readonly repetition: number;
}

export function readElement(cursor: Cursor, type: number, isRoot: boolean): SchemaElement {
  let children = 0;
  let physical: number | undefined;
  let repetition = -1;
  readInner(cursor, type, (id, inner) => {
    if (id === 1) {
      physical = readI32(cursor, inner);
    } else if (id === 3) {
      repetition = readI32(cursor, inner);
    } else if (id === 5) {
      children = readI32(cursor, inner);
    } else {
      return false;
    }
    return true;
  });
  // DuckDB takes a missing one for `required`, and then levels for values.
  if (!isRoot && (repetition < 0 || repetition > 2)) {
    throw new Error("a column is neither required nor optional nor repeated");
  }
  return { children, type: physical, repetition };
}

/** The schema is a tree, written parents first; its first element is the table. */
export function leavesOf(elements: readonly SchemaElement[]): Leaf[] {
  const leaves: Leaf[] = [];
  /** Of the groups that are open: children to come, and levels. */
  const groups: { left: number; repetition: number; definition: number }[] = [];
  for (const element of elements.slice(1)) {
    while (groups.at(-1)?.left === 0) {
      groups.pop();
    }
    const parent = groups.at(-1);
    const repetition = (parent?.repetition ?? 0) + (element.repetition === 2 ? 1 : 0);
    const definition = (parent?.definition ?? 0) + (element.repetition === 0 ? 0 : 1);
    if (parent !== undefined) {
      parent.left -= 1;
    }
    if (element.type === undefined) {
      groups.push({ left: element.children, repetition, definition });
    } else {
      leaves.push({ type: element.type, repetition, definition });
    }
  }
  return leaves;
}
