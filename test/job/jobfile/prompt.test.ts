import { describe, expect, test } from "vitest";
import { modelUri } from "#src/job/jobfile/model-spec.js";
import { load, minimalSpec, specRefusal } from "../../support/spec.js";

const server = (keys = ""): string => `  server: { protocol: openai, url: "http://vllm:8000", name: org/m${keys} }\n`;
const spec = (keys: string, ofServer = ""): string =>
  minimalSpec.replace("  path: model.onnx\n", `${server(ofServer)}${keys}`);
const user = '  prompt: { user: "{{body}}" }\n';

describe("model.prompt", () => {
  test("the columns of a prompt are the model's inputs", () => {
    const { model } = load(spec('  prompt: { system: "You are {{role}}.", user: "{{a}} {{ b.c }} {{a}}" }\n'));
    expect(model.inputs).toEqual({ role: ["role"], a: ["a"], "b.c": ["b.c"] });
    expect(modelUri(model)).toBe("openai:org/m");
  });

  test("columns of a response are texts unless they have another type", () => {
    const { model } = load(
      spec(`${user}  response: { label: { enum: [a, b] }, share: { type: number, minimum: 0 } }\n`),
    );
    expect(model.response).toEqual({
      label: { type: "string", enum: ["a", "b"] },
      share: { type: "number", minimum: 0 },
    });
  });

  test("sampling takes keys that only the server knows", () => {
    const { model } = load(
      spec(`${user}  sampling: { max_tokens: 5, top_k: 3, chat_template_kwargs: { enable_thinking: false } }\n`),
    );
    expect(model.sampling).toEqual({ max_tokens: 5, top_k: 3, chat_template_kwargs: { enable_thinking: false } });
  });

  test.each([
    ["no prompt", spec("")],
    ["a prompt for another protocol", minimalSpec.replace("  path: model.onnx\n", `  path: model.onnx\n${user}`)],
    ["a prompt without a column", spec("  prompt: { user: Hello }\n")],
    ["a place that does not end", spec('  prompt: { user: "{{body" }\n')],
    ["a place without a name", spec('  prompt: { user: "{{ }} {{body}}" }\n')],
    ["two texts for the user", spec('  prompt: { user: "{{body}}", file: prompt.txt }\n')],
    ["a system message for embeddings", spec('  prompt: { system: Hi, input: "{{body}}" }\n')],
    ["inputs beside a prompt", spec(`${user}  inputs: { a: [b] }\n`)],
    ["outputs beside a prompt", spec(`${user}  outputs: { a: b }\n`)],
    ["a response for embeddings", spec('  prompt: { input: "{{body}}" }\n  response: { label: {} }\n')],
    ["an empty response", spec(`${user}  response: {}\n`)],
    ["an enum of numbers", spec(`${user}  response: { label: { type: number, enum: [a] } }\n`)],
    ["limits of a text", spec(`${user}  response: { label: { minimum: 1 } }\n`)],
    ["a misspelt key of a response", spec(`${user}  response: { label: { maximun: 1 } }\n`)],
    [
      "a response named as a carried column",
      spec(`${user}  response: { id: {} }\n`).replace("output:", "output:\n  columns: [id]"),
    ],
    ["a key of requests in sampling", spec(`${user}  sampling: { stream: true }\n`)],
    ["two limits of an answer", spec(`${user}  sampling: { max_tokens: 1, max_completion_tokens: 1 }\n`)],
    ["a budget without a limit of answers", spec(`${user}  budget: { max_tokens: 1000 }\n`)],
    ["a cost without a price", spec(`${user}  sampling: { max_tokens: 5 }\n  budget: { max_cost: 5 }\n`)],
    ["golden rows", spec(user).concat("checks: { golden: { path: g.parquet } }\n")],
    [
      "a language model as challenger",
      `${spec(user)}challenger: { server: { protocol: openai, url: "http://a", name: m } }\n`,
    ],
    ["a path for openai", spec(user, ", path: /v1")],
    [
      "tries for another protocol",
      minimalSpec.replace("  path: model.onnx\n", '  server: { protocol: v2, url: "http://a", name: m, tries: 3 }\n'),
    ],
  ])("a spec with %s is refused", (_what, text) => {
    expect(specRefusal(text)).toMatchSnapshot();
  });
});
