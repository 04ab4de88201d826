const plainParam = { type: ["string", "number", "boolean"] };

/** Makes the JSON Schema of a param with a type. */
function typedParam(type: string, more: Readonly<Record<string, object>> = {}): object {
  return {
    type: "object",
    properties: { type: { const: type }, ...more, default: plainParam },
    required: ["type", ...Object.keys(more)],
    additionalProperties: false,
  };
}

/** The JSON Schema of a param's value. The loader reads any plain value as text. */
export const paramJsonSchema = {
  anyOf: [
    plainParam,
    typedParam("date"),
    typedParam("integer"),
    typedParam("enum", { values: { type: "array", minItems: 1, items: plainParam } }),
  ],
};
