// The options of the mock server, which its argument gives as JSON. `/_mock/control` takes them too, while it runs.
import { noFaults } from "./fates.mjs";

const defaults = {
  port: 0,
  seed: 1,
  faults: noFaults,
  latencyMs: 0,
  /** Keys that are taken; without any, none is asked for. */
  keys: [],
  models: ["mock-1"],
  /** The name that answers have; undefined: the one that the request names. */
  answersAs: undefined,
  /** Tokens of the prompt and the answer together. */
  context: 128_000,
  /** honoured, ignored (the answer is text) or refused (400). */
  structured: "honoured",
  /** Refuse max_tokens and temperature, as OpenAI's newer models do. */
  modern: false,
  /** Prices of a million tokens: input, cached_input, output. */
  price: { input: 0.15, cached_input: 0.075, output: 0.6 },
  /** What may be billed before each answer is insufficient_quota. */
  quota: undefined,
  /** requestsPerMinute, tokensPerMinute, burstSeconds; undefined: there is no limit. */
  limit: undefined,
  /** The length of embeddings. */
  dimensions: 8,
  /** After so many requests, others: { after, set } sets options, { after, restartMs } stops and starts again. */
  changes: [],
};

export function optionsOf(given) {
  return { ...defaults, ...given, faults: { ...noFaults, ...given.faults } };
}
