import { assert, property, string } from "fast-check";
import { expect, test } from "vitest";
import { columnsIn, fillPrompt, parseTemplate } from "#src/models/binding/prompt.js";

function filled(text: string, values: Readonly<Record<string, string>> = {}): string {
  const parsed = parseTemplate(text);
  return "problem" in parsed ? parsed.problem : fillPrompt(parsed, (column) => values[column] ?? "");
}

test("values stand where their columns are named, and are no templates themselves", () => {
  expect(filled("a {{x}} b {{ y }} c {{x}}", { x: "{{y}}", y: "\\{{x}}" })).toBe("a {{y}} b \\{{x}} c {{y}}");
});

test("a backslash before two braces makes them two braces", () => {
  expect(filled("\\{{x}} {{x}}", { x: "1" })).toBe("{{x}} 1");
});

test("braces that begin no place are refused with what they are", () => {
  expect(filled("a {{x b")).toBe("`{{x b` begins no {{column}}; write \\{{ for two braces");
});

test("columns of several texts come once, in their order", () => {
  expect(columnsIn(["{{b}} {{a}}", undefined, "{{a}} {{c.d}}"])).toEqual(["b", "a", "c.d"]);
});

test("a text without braces is itself", () => {
  assert(
    property(string(), (text) => {
      expect(filled(text.replaceAll("{", ""))).toBe(text.replaceAll("{", ""));
    }),
  );
});
