const plainParam = { type: ["string", "number", "boolean"] };

/** A param with a type. */
function typedParam(type: string, more: Readonly<Record<string, object>> = {}): object {
  return {
    type: "object",
    properties: { type: { const: type }, ...more, default: plainParam },
    required: ["type", ...Object.keys(more)],
    additionalProperties: false,
  };
}

/** JSON Schema of a param's value: the loader takes any plain value as text. */
export const paramJsonSchema = {
  anyOf: [
    plainParam,
    typedParam("date"),
    typedParam("integer"),
    typedParam("enum", { values: { type: "array", minItems: 1, items: plainParam } }),
  ],
};
