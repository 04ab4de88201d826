// What the mock server makes of one request to its API: an answer and what is billed for it, or an error.
import { choiceOf, digestOf, embeddingOf } from "./answers.mjs";
import { errors } from "./errors.mjs";
import { isGarbled, isPoison } from "./fates.mjs";
import { countTokens, promptTokens, textOf } from "./tokens.mjs";

/** Whether a key is missing or wrong: an error. */
export function refuseKey({ keys }, authorization = "") {
  if (keys.length === 0) {
    return undefined;
  }
  const [, key] = /^Bearer (.+)$/.exec(authorization) ?? [];
  return key === undefined ? errors.noKey() : keys.includes(key) ? undefined : errors.wrongKey(key);
}

/**
 * Reads a chat or embeddings request.
 * @returns an error; or the prompt, which its fate depends on, the tokens that it may take, and its answer
 */
export function read(options, count, path, bytes) {
  let body;
  try {
    body = JSON.parse(bytes);
  } catch {
    return { error: errors.notJson() };
  }
  if (!options.models.includes(body.model)) {
    return { error: errors.noModel(body.model) };
  }
  return path === "/v1/embeddings" ? readEmbeddings(options, body) : readChat(options, count, body);
}

function readEmbeddings({ dimensions, context }, { input, model, dimensions: wanted = dimensions }) {
  const texts = [input].flat().map(String);
  const tokens = texts.reduce((sum, text) => sum + countTokens(text), 0);
  const longest = Math.max(...texts.map(countTokens));
  if (longest > context) {
    return { error: errors.tooLong(context, longest) };
  }
  const data = texts.map((text, index) => ({ object: "embedding", index, embedding: embeddingOf(text, wanted) }));
  return {
    prompt: texts.join("\n"),
    tokens,
    answer: (name) => ({
      usage: { prompt_tokens: tokens, cached_tokens: 0, completion_tokens: 0 },
      body: { object: "list", data, model: name ?? model, usage: { prompt_tokens: tokens, total_tokens: tokens } },
    }),
  };
}

/** What a rate limit counts for an answer whose length the request does not bound. */
const usualTokens = 256;

function refuseParameters({ modern, structured }, { max_tokens: maxTokens, temperature, response_format: format }) {
  if (modern && maxTokens !== undefined) {
    return errors.maxTokens();
  }
  if (modern && temperature !== undefined && temperature !== 1) {
    return errors.temperature(temperature);
  }
  return structured === "refused" && format?.type === "json_schema" ? errors.noFormat() : undefined;
}

function readChat(options, count, body) {
  const { messages } = body;
  if (!Array.isArray(messages) || messages.length === 0) {
    return { error: errors.noMessages() };
  }
  const prompt = messages.map(({ role, content }) => `${role}: ${textOf(content)}`).join("\n");
  const user = textOf(messages.findLast(({ role }) => role === "user")?.content);
  const error = refuseParameters(options, body) ?? (isPoison(options, prompt) ? errors.poison() : undefined);
  if (error !== undefined) {
    return { error };
  }
  const tokens = promptTokens(messages);
  if (tokens >= options.context) {
    return { error: errors.tooLong(options.context, tokens) };
  }
  const wanted = body.max_completion_tokens ?? body.max_tokens;
  const most = Math.min(wanted ?? options.context, options.context - tokens);
  const { json_schema: format } = body.response_format ?? {};
  try {
    const schema = options.structured === "honoured" ? format?.schema : undefined;
    const choice = choiceOf({ user, schema, limit: most });
    const answer = (name, isFirst) =>
      chatAnswer(options, count, { body, prompt, messages, tokens, choice, name, isFirst });
    return { prompt, tokens: tokens + Math.min(most, wanted ?? usualTokens), answer };
  } catch (cause) {
    return { error: errors.badSchema(format?.name, cause.message) };
  }
}

function chatAnswer(options, count, { body, prompt, messages, tokens, choice, name, isFirst }) {
  const isJson = body.response_format !== undefined && choice.message.content !== null;
  const garbled = isFirst && isJson && isGarbled(options, prompt);
  const content = garbled ? `Here you are: ${choice.message.content}`.slice(0, -1) : choice.message.content;
  count.garbled += garbled ? 1 : 0;
  const cached = cachedTokens(messages);
  const usage = {
    prompt_tokens: tokens,
    completion_tokens: choice.tokens,
    total_tokens: tokens + choice.tokens,
    prompt_tokens_details: { cached_tokens: cached, audio_tokens: 0 },
    completion_tokens_details: { reasoning_tokens: 0, audio_tokens: 0 },
  };
  return {
    usage: { prompt_tokens: tokens, cached_tokens: cached, completion_tokens: choice.tokens },
    body: {
      id: `chatcmpl-${digestOf(prompt).toString("base64url").slice(0, 29)}`,
      object: "chat.completion",
      created: Math.floor(Date.now() / 1000),
      model: name ?? body.model,
      choices: [{ index: 0, message: { ...choice.message, content }, logprobs: null, finish_reason: choice.finish }],
      usage,
      service_tier: "default",
      system_fingerprint: "fp_mock",
    },
  };
}

/** Tokens of the system message, in steps of 16: as a server that has seen it before. */
function cachedTokens(messages) {
  return Math.floor(countTokens(textOf(messages.find(({ role }) => role === "system")?.content)) / 16) * 16;
}
