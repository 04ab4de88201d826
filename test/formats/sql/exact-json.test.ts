import { expect, test } from "vitest";
import { exactJson, parseExactJson } from "#src/formats/sql/check-expression.js";

test.each([
  '{"value":12345678901234567890123,"lower":18446744073709551615}',
  "[1e300,1.50,-0.0,0.1234567890123456789,5e-324]",
  String.raw`{"value":"{\"#number\":\"1\"} 12345678901234567890 \\"}`,
  '{"a":[1,-2,0.5,true,null,""]}',
])("JSON comes back with the numbers that it had: %s", (json) => {
  expect(exactJson(parseExactJson(json))).toBe(json);
});

test("numbers that float64 holds are parsed as numbers, and a text that is not JSON as undefined", () => {
  expect(parseExactJson('{"value":7,"text":"7"}')).toEqual({ value: 7, text: "7" });
  expect(parseExactJson("{")).toBe(undefined);
});
