import { expect, test } from "vitest";
import { sideBySide } from "#src/models/binding/signatures.js";
import { tensor, typed } from "../../support/contracts.js";

test("a name with line breaks or control characters is one line of the table", () => {
  const signature = { inputs: [tensor("x\u001b[2J", "float32", null)], outputs: [tensor("y", "float32", null)] };
  const columns = [typed("a\nb: evil", "int64"), typed("c", "utf8")];
  expect(sideBySide(signature, columns, "in\n/a.parquet").split("\n")).toEqual([
    String.raw`  model inputs:             columns of in\x0a/a.parquet:`,
    String.raw`    x\x1b[2J  float32 [N]     a\x0ab: evil  int64`,
    "  model outputs:              c             utf8",
    "    y  float32 [N]",
  ]);
});
