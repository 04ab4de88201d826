import { describe, expect, test } from "vitest";
import { openAvro } from "#src/sources/lake/avro.js";

const many = 1_000_000;

function long(value: number): number[] {
  const bytes: number[] = [];
  let rest = value < 0 ? -value * 2 - 1 : value * 2;
  for (; rest >= 128; rest = Math.floor(rest / 128)) {
    bytes.push((rest % 128) + 128);
  }
  return [...bytes, rest];
}

const read = (type: unknown, ...bytes: number[]): unknown => {
  const nothing = { name: "nothing", type: { type: "record", name: "Nothing", fields: [] } };
  const schema = { type: "record", name: "R", fields: [nothing, { name: "a", type }] };
  return openAvro(JSON.stringify(schema))(Buffer.from(bytes))["a"];
};

describe("an array or a map of Avro", () => {
  test("has the values of all its blocks, of which one may tell its bytes", () => {
    const blocks = [...long(2), ...long(5), ...long(6), ...long(-1), ...long(1), ...long(7), 0];
    expect(read({ type: "array", items: "int" }, ...blocks)).toEqual([5, 6, 7]);
    const key = [...long(9), ...Buffer.from("__proto__")];
    const values = read(["null", { type: "map", values: "int" }], ...long(1), ...long(1), ...key, 10, 0);
    expect(Object.entries(values as object)).toEqual([["__proto__", 5]]);
  });

  test.each([
    { type: "array", items: "int" },
    { type: "array", items: "string" },
    { type: "array", items: { type: "array", items: "long" } },
    { type: "array", items: "null" },
    { type: "array", items: "Nothing" },
    { type: "map", values: "int" },
  ])("that is said to have more values than bytes is refused: %j", (type) => {
    expect(() => read(type, ...long(many), 0, 0)).toThrow(/more values than bytes/);
  });
});
