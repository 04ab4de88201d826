import type { ResponseColumn, ResponseColumns } from "../../text/response.js";
import { z } from "../../util/zod.js";
import { anyNumber, count, name } from "../values.js";

const column = z
  .strictObject({
    type: z
      .enum(["string", "number", "integer", "boolean"])
      .default("string")
      .describe("Type of the column: text, float64, int64 or bool. Default: string."),
    enum: z.array(z.string()).min(1).max(1000).optional().describe("The texts that an answer may have."),
    minimum: anyNumber.optional().describe("Smallest number."),
    maximum: anyNumber.optional().describe("Largest number."),
    max_length: count(1, 1_000_000).optional().describe("Most characters of a text."),
    description: z.string().optional().describe("Describes this column to the model."),
  })
  .superRefine(({ type, enum: allowed, minimum, maximum, max_length: most }, context) => {
    const wrong = (key: string, message: string): void => {
      context.addIssue({ code: "custom", path: [key], message });
    };
    const isNumber = type === "number" || type === "integer";
    if (type !== "string" && allowed !== undefined) {
      wrong("enum", `only a text has this key, and type is ${type}`);
    }
    if (type !== "string" && most !== undefined) {
      wrong("max_length", `only a text has this key, and type is ${type}`);
    }
    for (const [key, given] of Object.entries({ minimum, maximum })) {
      if (given !== undefined && !isNumber) {
        wrong(key, "only numbers have this key: type: number, or type: integer");
      }
    }
    if (minimum !== undefined && maximum !== undefined && minimum > maximum) {
      wrong("minimum", "expected no more than maximum");
    }
  }) satisfies z.ZodType<ResponseColumn>;

export const response = z
  .record(name, column)
  .refine((given) => Object.keys(given).length > 0, "expected at least one column, or leave it out for one text column")
  .describe(
    "Output columns, which answers fill: { label: { enum: [billing, bug] }, confidence: { type: number, minimum: 0, maximum: 1 } }. The server is asked for JSON of this form, and each answer is checked. Default: one text column `response`.",
  ) satisfies z.ZodType<ResponseColumns>;
