// What the mock server answers: a function of the last user message alone, so that any other implementation can compute
// what is right. All of it rests on the SHA-256 of that text, `digest`:
//   text             answer <first 8 hex digits of digest>
//   a JSON schema    an object of its properties; property i of the schema takes byte i of digest, b:
//     enum, const      the element at index b modulo the number of elements
//     boolean          whether b is odd
//     integer          minimum + b modulo (maximum - minimum + 1); default: from 0 to 100
//     number           minimum + b / 255 * (maximum - minimum); default: from 0 to 1
//     string           s<b>
//     array            one element, of byte i + 1
//     object           as the whole, from byte i on
//   an embedding     of `dimensions` (8) numbers: number i is (byte i modulo 32 of digest - 128) / 128
// Words in the message ask for more: REFUSE (a refusal), FILTER (content_filter), LONG (1,000 tokens of text).
import { createHash } from "node:crypto";
import { countTokens } from "./tokens.mjs";

export function digestOf(text) {
  return createHash("sha256").update(text).digest();
}

/** A value for a JSON schema. @throws Error for a schema that is none */
export function valueOf(schema, digest, at = 0) {
  const byte = digest[at % digest.length];
  const choices = schema.enum ?? (schema.const === undefined ? undefined : [schema.const]);
  if (choices !== undefined) {
    return choices[byte % choices.length];
  }
  const type = Array.isArray(schema.type) ? schema.type[0] : schema.type;
  switch (type) {
    case "object":
      return Object.fromEntries(
        Object.entries(schema.properties ?? {}).map(([name, of], index) => [name, valueOf(of, digest, at + index)]),
      );
    case "array":
      return [valueOf(schema.items ?? { type: "string" }, digest, at + 1)];
    case "boolean":
      return byte % 2 === 1;
    case "integer": {
      const { minimum = 0, maximum = minimum + 100 } = schema;
      return minimum + (byte % (maximum - minimum + 1));
    }
    case "number": {
      const { minimum = 0, maximum = minimum + 1 } = schema;
      return minimum + (byte / 255) * (maximum - minimum);
    }
    case "string":
      return `s${byte}`;
    case "null":
      return null;
    default:
      throw new Error(`unrecognized type ${String(type)}`);
  }
}

/** The choice of an answer: its message, why it ended, and its tokens. `limit`: the most tokens of the answer. */
export function choiceOf({ user, schema, limit }) {
  if (user.includes("REFUSE")) {
    const refusal = "I'm sorry, but I can't assist with that.";
    return { message: { role: "assistant", content: null, refusal }, finish: "stop", tokens: countTokens(refusal) };
  }
  const digest = digestOf(user);
  const whole =
    schema === undefined
      ? `answer ${digest.toString("hex").slice(0, 8)}${user.includes("LONG") ? " and so on".repeat(400) : ""}`
      : JSON.stringify(valueOf(schema, digest));
  const isLong = countTokens(whole) > limit;
  const content = isLong
    ? Buffer.from(whole)
        .subarray(0, limit * 4)
        .toString()
    : whole;
  const finish = user.includes("FILTER") ? "content_filter" : isLong ? "length" : "stop";
  return { message: { role: "assistant", content, refusal: null }, finish, tokens: countTokens(content) };
}

export function embeddingOf(text, dimensions = 8) {
  const digest = digestOf(text);
  return Array.from({ length: dimensions }, (_, index) => (digest[index % digest.length] - 128) / 128);
}
